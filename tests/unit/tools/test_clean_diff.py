"""``clean_diff``: what git prints is read, whatever it is; the rest needs real repositories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toolbox import toolbox

from harness.testing.memory import MemoryBackend, ScriptedReply
from harness.toolkit import ToolCall
from harness.toolkit.values import Subject
from harness_tools.dev.clean_diff import CleanDiff, diff_command, mistake_of
from harness_tools.dev.clean_diff_report import changes_of, new_file, new_files, quoted

RAW = ":100644 100644 {old} {new} M\0f\0".format(old="1" * 40, new="0" * 40)
TEXT = """\
diff --git a/f b/f
index 1..2 100644
--- a/f
+++ b/f
@@ -1,2 +1,2 @@ def x():
-a
+b
 c
\\ No newline at end of file
"""


def test_a_change_has_its_places() -> None:
    (change,) = changes_of(f"{RAW}1\t1\tf\0\0{TEXT}")
    assert (change.status, change.added, change.removed) == ("modified", 1, 1)
    (hunk,) = change.hunks
    assert (hunk.header, hunk.lines, hunk.unended) == ("def x():", ("-a", "+b", " c"), "both")


def test_a_line_that_looks_like_a_headline_is_a_line() -> None:
    text = TEXT.replace("-a\n", "-diff --git a/x b/x\n").replace("+b\n", "+@@ -1 +1 @@\n")
    (change,) = changes_of(f"{RAW}1\t1\tf\0\0{text}")
    assert change.hunks[0].lines[:2] == ("-diff --git a/x b/x", "+@@ -1 +1 @@")


def test_an_output_that_was_cut_off_says_so() -> None:
    whole = f"{RAW}1\t1\tf\0\0{TEXT}"
    for end in range(len(whole)):
        for change in changes_of(whole[:end], complete=False):
            assert not change.whole


PIECES = [
    RAW,
    "1\t1\tf\0",
    "-\t-\tg\0",
    "1\t2\t\0a\0b\0",
    "\0",
    TEXT,
    "diff --git a/f b/f\n",
    "@@ -1 +1 @@\n",
    "+x\n",
    "\\ No\n",
]
PIECES += [
    ":",
    ":1 2 3 4 R\0a\0",
    "* Unmerged path f\n",
    "Binary files a/f and b/f differ\n",
    "@@ -9999999999999 +1 @@\n",
    "\n",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.booleans())
def test_whatever_a_target_prints_is_read_without_a_fault(output: str, complete: bool) -> None:
    changes_of(output, complete=complete)
    new_file("f", output, complete=complete)


def test_what_cannot_be_read_gives_no_file_the_lines_of_another() -> None:
    made = ["", "new file mode 100644\n@@ -0,0 +1 @@\n+1\n", "", "", "new file mode 100644\n@@ -0,0 +1 @@\n+2\n", "+"]
    found = new_files(["a", "b", "c", "d", "e", "f", "g"], "\0\n".join(made))
    assert [[line for hunk in one.hunks for line in hunk.lines] for one in found] == [
        [],
        ["+1"],
        [],
        [],
        ["+2"],
        [],
        [],
    ]
    assert [one.whole for one in found] == [False, True, False, False, True, False, False]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a b", "a b"),
        ("é", '"\\303\\251"'),
        ('"', '"\\""'),
        ("a\tb\n", '"a\\tb\\n"'),
        ("\\", '"\\\\"'),
        ("\x01\x7f", '"\\001\\177"'),
        (b"\xff".decode(errors="surrogateescape"), '"\\377"'),
    ],
)
def test_names_are_written_as_git_writes_them(name: str, shown: str) -> None:
    assert quoted(name) == shown


@given(st.text(max_size=20))
def test_a_revision_never_becomes_an_option_or_several_words(ref: str) -> None:
    if not mistake_of(ref):
        assert not ref.startswith(("-", "^"))
        assert not any(part.startswith("-") for part in ref.split(".."))
        assert "\0" not in ref
        assert "\n" not in ref


async def test_nothing_of_an_argument_is_read_by_the_shell() -> None:
    command = diff_command(ref="HEAD@{'$(touch x)'}", files=["$(touch y)", "-z", "a'b"], most=10)
    assert """'HEAD@{'"'"'$(touch x)'"'"'}' -- '$(touch y)' -z 'a'"'"'b'""" in command


async def test_a_target_that_prints_nonsense_is_no_defect_of_ours() -> None:
    for output in (b"", b"\0", b"\xff\xfe" * 50, b"/r\0\0:1 2 3 4 M\0"):
        backend = MemoryBackend(lambda command, output=output: ScriptedReply(output))
        made = toolbox([CleanDiff()], backend=backend)
        await made.executor.execution.mkdir("/r")
        outcome = await made.executor.call(ToolCall("clean_diff", {"path": "/r", "include_untracked": True}))
        assert outcome.error is None, outcome.result.text


async def test_a_command_that_failed_is_told_with_what_git_said() -> None:
    made = toolbox(
        [CleanDiff()], backend=MemoryBackend(lambda command: ScriptedReply(stderr="fatal: bad object\n", exit_code=128))
    )
    await made.executor.execution.mkdir("/r")
    outcome = await made.executor.call(ToolCall("clean_diff", {"path": "/r"}))
    assert (outcome.result.error_code, outcome.result.text) == (
        "git_failed",
        "git ended with exit code 128: fatal: bad object",
    )


def test_the_policy_sees_the_repository_and_each_file() -> None:
    tool = CleanDiff()
    args: Any = tool.parse({"path": "/r", "file_filter": ["a", "/etc/shadow"]})
    assert tool.subjects(args) == (Subject("read", "/r"), Subject("read", "/r/a"), Subject("read", "/etc/shadow"))
    assert not tool.traits.mutating
    assert tool.traits.requires == ("git",)
