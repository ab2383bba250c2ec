"""``conflicts``: markers as git writes them, and as they are left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.testing.memory import MemoryBackend
from harness.toolkit import CallOutcome, ToolCall
from harness.toolkit.values import Subject
from harness_tools.dev.conflicts import SIZE, Conflicts, lines_of, scan

MERGE = "a\n<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> other\nb\n"
DIFF3 = "<<<<<<< HEAD\nours\n||||||| 1a2b3c\nbase\n=======\n>>>>>>> other branch\n"


def found(text: str) -> tuple[list[tuple[Any, ...]], list[tuple[int, str]]]:
    result = scan(lines_of(text))
    return [tuple(one) for one in result.conflicts], [(one.line, one.problem) for one in result.broken]


@pytest.mark.parametrize(
    ("text", "conflicts"),
    [
        ("", []),
        ("a\nb\n", []),
        (MERGE, [(2, 6, "HEAD", "other", "", ("ours",), ("theirs",), None)]),
        (MERGE.replace("\n", "\r\n"), [(2, 6, "HEAD", "other", "", ("ours",), ("theirs",), None)]),
        (DIFF3, [(1, 6, "HEAD", "other branch", "1a2b3c", ("ours",), (), ("base",))]),
        ("<<<<<<<\n=======\n>>>>>>>", [(1, 3, "", "", "", (), (), None)]),
        ("<<<<<<< a\n=======\n=======\n>>>>>>> b\n", [(1, 4, "a", "b", "", (), ("=======",), None)]),
        (
            "<<<<<<< a\n========\n=======\nTitle\n======== x\n>>>>>>> b\n",
            [(1, 6, "a", "b", "", ("========",), ("Title", "======== x"), None)],
        ),
        ("Title\n=======\n||||||| x\n", []),
        ("<<<<<<<x\n=======\n>>>>>>>y\n", []),
        (" <<<<<<< a\n", []),
        (
            "<<<<<<<<< a\nx\n=======\n=========\n>>>>>>> c\n>>>>>>>>> b\n",
            [(1, 6, "a", "b", "", ("x", "======="), (">>>>>>> c",), None)],
        ),
    ],
)
def test_blocks_are_found_in_every_style(text: str, conflicts: list[Any]) -> None:
    assert found(text) == (conflicts, [])


def test_the_markers_of_an_inner_merge_belong_to_the_base() -> None:
    inner = "<<<<<<<<< one\nx\n=========\ny\n>>>>>>>>> two"
    text = f"<<<<<<< HEAD\nours\n||||||| merged common ancestors\n{inner}\n=======\ntheirs\n>>>>>>> other\n"
    conflicts, broken = found(text)
    assert (conflicts[0][7], broken) == (tuple(inner.split("\n")), [])


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("<<<<<<< a\nx\n", [(1, "no ======= follows")]),
        ("<<<<<<< a\n||||||| b\nx\n", [(1, "no ======= follows")]),
        ("x\n<<<<<<< a\n=======\ny\n", [(2, "no >>>>>>> follows")]),
        ("<<<<<<< a\nx\n<<<<<<< b\n=======\n>>>>>>> c\n", [(1, "no ======= follows")]),
        ("x\n>>>>>>> other\n", [(2, "no <<<<<<< precedes it")]),
        (">>>>>>>\n", []),
    ],
)
def test_markers_without_a_whole_block_are_reported(text: str, broken: list[Any]) -> None:
    assert found(text)[1] == broken


LINES = st.sampled_from(
    ["<<<<<<< a", "<<<<<<<< a", "=======", "========", "||||||| b", ">>>>>>> c", ">>>>>>>> c", "x", "", "\r", "<<<<<<<"]
)


@given(st.lists(LINES, max_size=40))
def test_no_line_of_a_block_is_lost(lines: list[str]) -> None:
    for one in scan(lines).conflicts:
        inside = [*one.ours, *(one.base or ()), *one.theirs]
        markers = 3 + (one.base is not None)
        assert one.end_line - one.line + 1 == len(inside) + markers
        assert [line for line in lines[one.line : one.end_line] if line == "x"] == [
            line for line in inside if line == "x"
        ]


# -- the tool


async def call(made: Toolbox, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(100):
        return await made.executor.call(ToolCall("conflicts", arguments))


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as opened:
        yield opened


def git(directory: Path, *words: str) -> None:
    alone = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=A", "-c", "user.email=a@b.example")
    subprocess.run(["git", *identity, *words], cwd=directory, env=alone, capture_output=True, timeout=60)


@pytest.mark.parametrize("style", ["merge", "diff3", "zdiff3"])
async def test_what_git_writes_is_read(here: ExecutionContext, tmp_path: Path, style: str) -> None:
    file = tmp_path / "a file"
    git(tmp_path, "init", "-q", "-b", "main")
    for branch, middle in (("main", "base"), ("other", "same\nother"), ("main", "same\nmain")):
        git(tmp_path, "checkout", "-q", *(["-b"] if branch == "other" else []), branch)
        file.write_text(f"above\n{middle}\nbelow\n")
        git(tmp_path, "add", "a file")
        git(tmp_path, "commit", "-q", "-m", "x")
    git(tmp_path, "-c", f"merge.conflictStyle={style}", "merge", "-q", "other")
    data: Any = (await call(toolbox([Conflicts()], execution=here), files=[str(file)])).result.data
    (one,) = data["files"][0]["conflicts"]
    assert (one["ours_ref"], one["theirs_ref"], data["has_diff3"]) == ("HEAD", "other", style != "merge")
    assert one["ours"].endswith("main")
    assert one["theirs"].endswith("other")
    assert one.get("base") == (None if style == "merge" else "base")
    assert one["context_above"] == ("above" if style == "diff3" else "same")
    assert one["context_below"] == "below"


async def test_one_bad_file_does_not_hide_the_others(here: ExecutionContext, tmp_path: Path) -> None:
    (tmp_path / "good").write_text(MERGE)
    (tmp_path / "open").write_text("<<<<<<< a\n")
    (tmp_path / "binary").write_bytes(b"<<<<<<< a\n\0")
    (tmp_path / "latin").write_bytes(b"<<<<<<< a\ncaf\xe9\n=======\n>>>>>>> b\n")
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(SIZE + 1)
    names = ["good", "missing", "open", "binary", "latin", "huge", "."]
    made = toolbox([Conflicts()], execution=here)
    outcome = await call(made, file=[f"{tmp_path}/{name}" for name in names])
    data: Any = outcome.result.data
    errors = {Path(one["file"]).name: one["error"] for one in data["files"] if "error" in one}
    assert set(errors) == {"missing", "binary", "huge", tmp_path.name}
    assert outcome.result.text.splitlines()[0] == (
        "Found 2 conflicts in 7 files; 1 marker without a complete conflict; 4 could not be read"
    )
    assert data["files"][2]["unterminated"] == [{"line": 1, "ref": "a", "problem": "no ======= follows"}]
    assert data["files"][4]["conflicts"][0]["ours"] == "caf\udce9"
    assert (
        made.executor.reads.last_read_version(f"{tmp_path}/good", whole=False) is None
    )  # it was not the model that read it
    failed = await call(made, file=str(tmp_path / "missing"))
    assert (failed.result.error_code, "missing" in failed.result.text) == ("unreadable", True)


async def test_a_result_without_conflicts_is_no_error_and_depends_on_its_file() -> None:
    backend = MemoryBackend()
    made = toolbox([Conflicts()], backend=backend)
    await made.executor.execution.write_file("/f", "nothing\n")
    outcome = await call(made, path="/f")
    data: Any = outcome.result.data
    assert (outcome.result.is_error, data["total"], data["summary"]) == (False, 0, "Found 0 conflicts in 1 file")
    depends: Any = outcome.result.metadata["depends"]
    assert [path for path, _ in depends] == ["/f"]


async def test_the_text_shows_each_side_as_what_it_is() -> None:
    made = toolbox([Conflicts()])
    await made.executor.execution.write_file("/f", f"top\n{DIFF3}end\n")
    assert (await call(made, file="/f")).result.text.splitlines() == [
        "Found 1 conflict in 1 file",
        "/f:2-7",
        "  | top",
        "  ours (HEAD):",
        "    ours",
        "  base (1a2b3c):",
        "    base",
        "  theirs (other branch): (nothing)",
        "  | end",
    ]


async def test_what_is_too_long_is_counted() -> None:
    side = "".join(f"{'x' * 600}{number}\n" for number in range(100))
    made = toolbox([Conflicts()])
    block = f"<<<<<<< a\n{side}=======\n{side}>>>>>>> b\n"
    await made.executor.execution.write_file("/f", block * 30)
    outcome = await call(made, file="/f")
    data: Any = outcome.result.data
    shown = data["files"][0]["conflicts"]
    assert (data["total"], data["left_out"]) == (30, 30 - len(shown))
    assert 0 < len(shown) < 30
    kept = len(shown[0]["ours"].split("\n"))
    assert shown[0]["lines_left_out"] == 2 * (100 - kept)
    assert len(json.dumps(data)) < 50_000
    assert len(outcome.result.text) <= 24_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "file: required"),
        ({"file": []}, "file: "),
        ({"file": ["a"] * 101}, "file: "),
        ({"file": [""]}, "file"),
        ({"file": "a\0"}, "NUL"),
        ({"file": [3]}, "file"),
        ({"file": "a", "context_lines": -1}, "context_lines: "),
        ({"file": "a", "context": 1}, "did you mean 'context_lines'"),
    ],
)
async def test_mistakes_are_told(arguments: Any, message: str) -> None:
    outcome = await call(toolbox([Conflicts()]), **arguments)
    assert outcome.result.error_code == "invalid_args"
    assert re.search(message, outcome.result.text), outcome.result.text


def test_the_policy_sees_every_file() -> None:
    tool = Conflicts()
    assert tool.subjects(tool.parse({"file": ["a", "~/b"]})) == (Subject("read", "a"), Subject("read", "~/b"))
    assert not tool.traits.mutating
