"""``edit``: exact places, whatever the line endings; the difference; hints when there is no such place."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.toolkit import CallOutcome, CallStatus, Executor, ToolCall
from harness.toolkit.session.file_versions import ReadTracker
from harness_tools.core import tools
from harness_tools.edit import EDIT_LIMIT, Edit
from harness_tools.text_changes import (
    DIFF_SHOWN,
    Change,
    apply_changes,
    changes_at,
    diff_of,
    find_spans,
    line_numbers,
    nearest,
    overlapping,
)

"""The same examples each time, however slow the machine is."""

# -- places

PIECES = st.lists(st.sampled_from([b"a", b"b", b"\n", b"\r\n", b"\r", b"\xc3\xa9", b"\xe9"]), max_size=30).map(b"".join)


@given(PIECES, PIECES.filter(bool))
def test_each_place_holds_the_text_and_no_place_is_missed(data: bytes, text: bytes) -> None:
    spans = find_spans(data, text, 100)
    loose = b"\n" in text and b"\r" not in text
    for start, end in spans:
        found = data[start:end]
        assert (found.replace(b"\r\n", b"\n") if loose else found) == text
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    plain = data.replace(b"\r\n", b"\n") if loose else data
    assert len(spans) == plain.count(text)


@given(PIECES, PIECES.filter(bool), PIECES)
def test_what_is_not_replaced_stays_byte_for_byte(data: bytes, text: bytes, new: bytes) -> None:
    spans = find_spans(data, text, 100)
    made = apply_changes(data, changes_at(data, spans, text, new))
    kept = [data[end:start] for (_, end), (start, _) in zip([(0, 0), *spans], [*spans, (len(data), 0)], strict=True)]
    at = 0
    for piece in kept:
        at = made.find(piece, at) + len(piece)
        assert at >= len(piece)
    if b"\r\n" not in data:
        assert made == data.replace(text, new)


@pytest.mark.parametrize(
    ("data", "old", "new", "made"),
    [
        (b"a\r\nb\r\nc", b"a\nb", b"x\ny\nz", b"x\r\ny\r\nz\r\nc"),
        (b"a\nb\r\nc\r\n", b"c", b"c\nd", b"a\nb\r\nc\r\nd\r\n"),
        (b"a\nb\r\nc", b"a", b"a\nx", b"a\nx\nb\r\nc"),
        (b"a\nb\r\nc", b"c", b"c\nd", b"a\nb\r\nc\r\nd"),
        (b"a\r\nb", b"a\r\n", b"a\n", b"a\nb"),
        (b"\xef\xbb\xbfone\r\n", b"one", b"two", b"\xef\xbb\xbftwo\r\n"),
        (b"caf\xe9 \xc3\xa9\n", b"caf", b"tea", b"tea\xe9 \xc3\xa9\n"),
        (b"a\r\r\nb", b"b", b"c\nd", b"a\r\r\nc\r\nd"),
    ],
)
def test_new_lines_end_as_those_around_them(data: bytes, old: bytes, new: bytes, made: bytes) -> None:
    assert apply_changes(data, changes_at(data, find_spans(data, old, 1), old, new)) == made


def test_many_places_in_one_giant_line_take_no_longer_than_in_many() -> None:
    data = b"x\r\n" + b"a " * 1_000_000
    changes = changes_at(data, find_spans(data, b"a", 20_000)[:20_000], b"a", b"b\nc")
    assert diff_of(data, changes, "/f").removed == 1
    assert apply_changes(data, changes).startswith(b"x\r\nb\r\nc b\r\nc ")
    words = find_spans(data, b"a a", 10, words=True)
    assert words[:2] == [(3, 6), (7, 10)]


def test_many_places_are_found_and_counted_up_to_a_limit() -> None:
    assert len(find_spans(b"a" * 1_000, b"a", 10)) == 11
    assert line_numbers(b"a\nb\n\nc", [0, 2, 5]) == [1, 2, 4]


# -- the difference


@st.composite
def contents_and_changes(draw: st.DrawFn) -> tuple[bytes, list[Change]]:
    data = draw(st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"c", b"d\r\n"]), max_size=30).map(b"".join))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    new = st.lists(st.sampled_from([b"x\n", b"y", b"\n"]), max_size=3).map(b"".join)
    pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
    real = pairs[:1] if len(pairs) == 1 else [(start, end) for start, end in pairs if start < end]
    return data, [Change(start, end, draw(new)) for start, end in real]


@given(contents_and_changes())
def test_a_diff_describes_the_change_exactly(made: tuple[bytes, list[Change]]) -> None:
    before, changes = made
    diff = diff_of(before, changes, "/f")
    assert diff.left_out == 0
    assert patched(before, diff.text) == apply_changes(before, changes)


def patched(before: bytes, text: str) -> bytes:
    """A reader of unified diffs that knows nothing of how they are made."""
    old = before.decode().split("\n")
    made: list[str] = []
    at = 0
    for row in text.split("\n@@ ")[1:]:
        title, *body = row.split("\n")
        start, _, count = title.split()[0].removeprefix("-").partition(",")
        begin = int(start) - (1 if count != "0" else 0)
        made += old[at:begin]
        at = begin
        lines = [line for line in body if line]
        for number, line in enumerate(lines):
            ends = not (number + 1 < len(lines) and lines[number + 1].startswith("\\"))
            if line[0] in " -":
                assert old[at] == line[1:], (text, at)
                assert ends == (at < len(old) - 1)
                at += 1
            if line[0] in " +":
                made.append(line[1:])
                unended = not ends
        if lines and at >= len(old) - (0 if old[-1] else 1):
            last = [line for number, line in enumerate(lines) if line[0] in " +"]
            if last and unended:
                return "\n".join(made).encode()
            return "".join(f"{line}\n" for line in made).encode()
    return "\n".join(made + old[at:]).encode()


@pytest.mark.usefixtures("needs_process")
def test_gnu_patch_makes_the_same_of_a_diff(tmp_path: Path) -> None:
    before = b"".join(b"line %d\n" % number for number in range(60)) + b"no end"
    spans = [*find_spans(before, b"line 3\n", 1), *find_spans(before, b"line 30", 1), *find_spans(before, b"no end", 1)]
    changes = [Change(spans[0][0], spans[0][1], b""), Change(*spans[1], b"x\ny"), Change(*spans[2], b"the end\n")]
    diff = diff_of(before, changes, "file")
    (tmp_path / "file").write_bytes(before)
    subprocess.run(["patch", "-s", "file"], input=diff.text.encode(), cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "file").read_bytes() == apply_changes(before, changes)
    assert (diff.hunks, diff.added, diff.removed) == (3, 3, 3)


def test_a_long_diff_is_cut_between_hunks_and_counted() -> None:
    before = b"".join(b"%d\n" % number for number in range(20_000))
    changes = [Change(start, end, b"x\n") for start, end in find_spans(before, b"5\n", 10_000)]
    diff = diff_of(before, changes, "/f")
    assert (diff.added, diff.removed) == (2_000, 2_000)
    assert diff.text.endswith(f"[{diff.left_out} of {diff.hunks} hunks are not shown]\n")
    assert len(diff.text) < DIFF_SHOWN + 200
    one = diff_of(b"a\n" * 20_000, [Change(0, 40_000, b"b\n" * 20_000)], "/f")
    assert one.text.endswith("more lines of this hunk are not shown]\n")
    assert len(one.text) < DIFF_SHOWN + 200
    wide = diff_of(b"x" * 100_000, [Change(50_000, 50_001, b"y")], "/f")
    assert len(wide.text) < 2_000


# -- what is nearest


@pytest.mark.parametrize(
    ("data", "text", "hint"),
    [
        (b"a\n\tif x:\n", b"    if x:\n", "Line 2 differs in white space only: '\\tif x:'"),
        (b"a\nb\nc\nd\n", b"b\nc\nx", "It matches from line 2 up to line 4, which is 'd' instead of 'x'"),
        (b"a\r\nb\r\n", b"a\nb\nc", "up to line 3, which is '' instead of 'c'"),
        (b"def total(items):\n", b"def totals(item):", "The nearest line is 1: 'def total(items):'"),
        (b"x = foo(1)\n", b"foo(1)\nbar", "Its first line is in line 1"),
        (b"a\nb", b"b\nc", "Lines 2 to 2 are the same, and then the file ends."),
        (b"abc", b"xyz", ""),
        (b"abc", b"\n\n", ""),
        (b"", b"x", ""),
    ],
)
def test_the_nearest_place_is_told(data: bytes, text: bytes, hint: str) -> None:
    found = nearest(data, text)
    assert hint in found if hint else found == ""


@given(st.binary(max_size=300), st.binary(min_size=1, max_size=100))
def test_a_hint_is_short_whatever_the_file_holds(data: bytes, text: bytes) -> None:
    assert len(nearest(data, text)) < 5_000


# -- on this machine


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    """This machine without a terminal, with its state apart."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as opened:
        yield opened


def box(execution: ExecutionContext) -> Toolbox:
    made = toolbox(tools(), execution=execution)
    old = made.executor
    reads = ReadTracker().of("s1", execution)
    made.executor = Executor(execution, old.registry, old.services, old.events, reads, "s1")
    return made


async def call(made: Toolbox, name: str, path: Path, **arguments: Any) -> CallOutcome:
    return await made.executor.call(ToolCall(name, {"path": str(path), **arguments}))


async def edit(made: Toolbox, path: Path, old: str, new: str, **arguments: Any) -> CallOutcome:
    """Read it, and change it."""
    await call(made, "read_file", path)
    return await call(made, "edit", path, old_string=old, new_string=new, **arguments)


async def test_one_place_is_changed_and_the_difference_comes_back(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "file.py"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree caf\xe9\r\n")
    file.chmod(0o751)
    link = tmp_path / "link"
    link.symlink_to("file.py")
    outcome = await edit(made, link, "one\ntwo", "one\nzwei")
    assert outcome.result.text == (
        f"Changed 1 place of {file}\n--- {file}\n+++ {file}\n@@ -1,3 +1,3 @@\n"
        " \ufeffone\r\n-two\r\n+zwei\r\n three caf\udce9\r\n"
    )
    assert file.read_bytes() == b"\xef\xbb\xbfone\r\nzwei\r\nthree caf\xe9\r\n"
    assert (file.stat().st_mode & 0o777, link.is_symlink()) == (0o751, True)
    data = outcome.result.data
    assert isinstance(data, dict)
    assert (data["replacements"], data["lines"], data["lines_added"], data["lines_removed"]) == (1, [1], 1, 1)
    again = await call(made, "edit", file, oldString="zwei\nthree caf\udce9", newString="deux\nth\udcff\udce9")
    assert file.read_bytes() == b"\xef\xbb\xbfone\r\ndeux\r\nth\xff\xe9\r\n"
    assert again.status is CallStatus.OK, "what was written is known"


async def test_edits_of_one_response_follow_each_other(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "file"
    file.write_text("".join(f"<{number}>\n" for number in range(8)))
    await call(made, "read_file", file)
    calls = [
        ToolCall("edit", {"path": str(file), "old_string": f"<{number}>", "new_string": f"[{number}]"})
        for number in range(8)
    ]
    outcomes = await made.executor.batch(calls)
    assert [outcome.status for outcome in outcomes] == [CallStatus.OK] * 8
    assert file.read_text() == "".join(f"[{number}]\n" for number in range(8))


@pytest.mark.parametrize(
    ("data", "text", "other"),
    [
        (b"aaa", b"aa", (1, 3)),
        (b"aba", b"ab", None),
        (b"abab", b"ab", None),
        (b"-\n\n\n-", b"\n\n", (2, 4)),
        (b"-\r\n\r\n\r\n-", b"\n\n", (3, 7)),
        (b"-\r\n-", b"\n", None),
        (b"-}\r\n}\r\n}\r\n-", b"}\n}\n", (4, 10)),
    ],
)
def test_places_that_overlap_are_two(data: bytes, text: bytes, other: tuple[int, int] | None) -> None:
    assert overlapping(data, find_spans(data, text, 1)[0], text) == other


@pytest.mark.parametrize(
    ("data", "old", "new", "made"),
    [
        (b"a\r\nb\nc\r\n", b"a\nb\nc", b"a\nX\nc", b"a\r\nX\nc\r\n"),
        (b"a\r\nb\nc\r\n", b"a\nb\n", b"1\n2\n", b"1\r\n2\nc\r\n"),
        (b"a\nb\r\nc\n", b"a\nb\nc\n", b"a\nb\nX\nc\n", b"a\nb\r\nX\nc\n"),
        (b"a\nb\r\nc\n", b"a\nb\nc\n", b"", b""),
        (b"a\nb\r\n", b"a\nb\n", b"a\nb\na\nb\n", b"a\nb\r\na\r\nb\r\n"),
        (b"a\nb\r\n", b"a\nb\n", b"a\r\nb", b"a\r\nb"),
    ],
)
def test_lines_of_the_text_that_do_not_change_keep_their_ends(data: bytes, old: bytes, new: bytes, made: bytes) -> None:
    assert apply_changes(data, changes_at(data, find_spans(data, old, 1), old, new)) == made


async def test_which_of_two_places_that_overlap_is_meant_is_not_guessed(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "file"
    file.write_text("a\n}\n}\n}\n")
    twice = (await edit(made, file, "}\n}\n", "}\nb\n}\n")).result
    assert (twice.error_code, "2 times, in lines 2, 3" in twice.text) == ("ambiguous", True)
    once = (await edit(made, file, "}\n}\n", "b\n", expected_count=1)).result
    assert once.error_code == "count_mismatch"
    assert file.read_text() == "a\n}\n}\n}\n"
    assert (await edit(made, file, "}\n}\n", "}\n")).status is CallStatus.OK, "both places come to the same"
    assert file.read_text() == "a\n}\n}\n"


async def test_a_place_that_is_not_clear_changes_nothing_and_is_told(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "file"
    file.write_text("a\nb\na\n" + "a\n" * 30)
    unread = await call(made, "edit", file, old_string="b", new_string="c")
    assert unread.result.error_code == "not_read"
    many = (await edit(made, file, "a", "x")).result
    assert many.error_code == "ambiguous"
    assert "contains old_string 32 times, in lines 1, 3, 4, " in many.text
    assert " and 12 more: " in many.text
    count = (await edit(made, file, "a", "x", expected_count=3)).result
    assert (count.error_code, "but 3 expected" in count.text) == ("count_mismatch", True)
    none = (await edit(made, file, "zz", "x")).result
    assert (none.error_code, none.data) == ("no_match", {"matches": 0})
    returns = (await edit(made, file, "b\r\n", "x")).result
    assert "contains carriage returns" in returns.text
    assert file.read_text() == "a\nb\na\n" + "a\n" * 30
    assert (await edit(made, file, "a", "", expected_count=32)).status is CallStatus.OK
    assert file.read_text() == "\nb\n\n" + "\n" * 30
    assert (await edit(made, file, "b\n", "c", replace_all="true")).status is CallStatus.OK
    assert file.read_text() == "\nc\n" + "\n" * 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"old_string": "", "new_string": "x"}, "old_string: "),
        ({"old_string": "x", "new_string": "x"}, "are the same"),
        ({"old_string": "x"}, "new_string: required"),
        ({"old_string": "x", "new_string": "y", "expected_count": 0}, "expected_count: "),
        ({"old_string": "x", "new_string": "\ud800"}, "new_string: "),
        ({"old_string": "x", "oldString": "y", "new_string": "z"}, "given twice"),
        ({"old_string": "x", "new_string": "y", "replaceall": True}, "did you mean 'replace_all'"),
    ],
)
async def test_mistakes_are_mistakes_of_the_arguments(
    here: ExecutionContext, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    outcome = await call(box(here), "edit", tmp_path / "x", **arguments)
    assert outcome.result.error_code == "invalid_args"
    assert message in outcome.result.text


async def test_a_file_that_changed_meanwhile_is_left_alone(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "file"
    file.write_text("one\n")
    await call(made, "read_file", file)
    file.write_text("two\n")
    assert (await call(made, "edit", file, old_string="two", new_string="x")).result.error_code == "stale"
    assert (
        await call(made, "edit", tmp_path / "no", old_string="a", new_string="b")
    ).result.error_code == "file_not_found"
    assert file.read_text() == "two\n"


async def test_large_files_are_edited_and_huge_ones_are_not_fetched(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "large"
    with file.open("wb") as out:
        out.writelines(b"%07d caf\xe9 \r\n" % number for number in range(200_000))
        out.write(b"no end")
    await call(made, "read_file", file, limit=5)
    outcome = await call(made, "edit", file, old_string="0199999 ", new_string="the last\nof all ")
    assert outcome.result.text.endswith("+the last\r\n+of all caf\udce9 \r\n no end\n\\ No newline at end of file\n")
    assert file.stat().st_size == 15 * 200_000 + 6 + 9
    too_many = await call(made, "edit", file, old_string="caf", new_string="x", replace_all=True)
    assert too_many.result.error_code == "too_many"
    with file.open("r+b") as grown:
        grown.truncate(EDIT_LIMIT + 1)
    await call(made, "read_file", file, limit=5)
    refused = await call(made, "edit", file, old_string="0000001", new_string="x")
    assert refused.result.error_code == "too_big"


async def test_a_file_does_not_grow_beyond_what_is_edited(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here), tmp_path / "grows"
    file.write_text("x" * 1_000)
    await call(made, "read_file", file)
    refused = await call(made, "edit", file, old_string="x", new_string="y" * 100_000, replace_all=True)
    assert (refused.result.error_code, file.read_text()) == ("too_big", "x" * 1_000)
    assert "would grow to 100000000 bytes" in refused.result.text


def test_the_approver_sees_both_texts() -> None:
    tool = Edit()
    args = tool.parse({"path": "a", "old_string": "x\ny", "new_string": "z"})
    assert tool.preview(args) == "-x\n-y\n+z\n"
    assert [(subject.kind, subject.text) for subject in tool.subjects(args)] == [("write", "a")]
