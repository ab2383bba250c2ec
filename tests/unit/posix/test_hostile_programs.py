"""Programs on the target that print rubbish or without end, in the place of those that are asked."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import anyio
import pytest
from tests.support.toolbox import toolbox

import harness
from harness import ExecutionContext
from harness.errors import FileError, HarnessError
from harness.results import DirEntry
from harness.toolkit import ToolCall
from harness.toolkit.permissions.paths.hard_denials import BelowSearch
from harness_backends.posix.files.file_calls import EntryParser
from harness_tools.search import tools

MANNERS = {
    "rubbish": "echo rubbish '*' $((1 + 1))",
    "flood": "exec timeout 60 yes {mark}",
    "nothing": "exit 0",
}


@pytest.fixture
def mark() -> str:
    return f"m{uuid.uuid4().hex}"


def put(directory: Path, program: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a program the first of that name."""
    directory.mkdir()
    (directory / program).write_text(f"#!/bin/sh\n{text}\n")
    (directory / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def running(mark: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes()
        except OSError:
            continue
        if mark.encode() in words:
            found.append(words.decode("utf-8", "replace"))
    return found


async def attempts(execution: ExecutionContext, top: Path) -> list[str]:
    """What came of each operation on files: nothing, or what the error says."""
    said = []
    for work in (
        lambda: execution.stat(str(top / "link")),
        lambda: execution.read_file(str(top / "file")),
        lambda: execution.read_file(str(top / "file"), offset=1),
        lambda: execution.list_dir(str(top)),
        lambda: execution.glob(f"{top}/*"),
        lambda: execution.write_file(str(top / "new"), b"text"),
        lambda: execution.remove(str(top / "old")),
    ):
        try:
            await work()
        except FileError as error:
            said.append(str(error))
    return said


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("program", ["stat", "find", "readlink", "sha256sum", "head"])
@pytest.mark.parametrize("manner", MANNERS)
async def test_operations_on_files_are_right_or_say_what_is_wrong_at_once(
    program: str, manner: str, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "bin", program, MANNERS[manner].replace("{mark}", mark), monkeypatch)
    top = tmp_path / "top"
    top.mkdir()
    (top / "file").write_text("hello\n")
    (top / "old").write_text("")
    (top / "link").symlink_to("file")
    async with harness.connect("local:") as execution:
        with anyio.fail_after(50):
            said = await attempts(execution, top)
            while running(mark):  # noqa: ASYNC110  # one that was ended is there for a moment, and nothing tells its end
                await anyio.sleep(0.05)
    assert not [text for text in said if "unpack" in text or "invalid literal" in text or "out of range" in text]


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("program", ["id", "uname", "date", "getent", "ls", "tmux"])
@pytest.mark.parametrize("manner", MANNERS)
async def test_connecting_works_or_says_what_is_wrong_at_once(
    program: str, manner: str, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "bin", program, MANNERS[manner].replace("{mark}", mark), monkeypatch)
    said = "ran\n"
    with anyio.fail_after(20):
        try:
            async with harness.connect("local:") as execution:
                said = (await execution.run_shell("echo ran")).stdout
        except HarnessError as error:
            said = str(error)
        while running(mark):  # noqa: ASYNC110  # as above
            await anyio.sleep(0.05)
    assert said == "ran\n" or program in ("id", "ls")  # who owns the directory of the jobs is not known then


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("program", ["find", "head"])
@pytest.mark.parametrize("manner", MANNERS)
async def test_a_look_for_files_that_are_kept_back_ends_at_once(
    program: str, manner: str, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "bin", program, MANNERS[manner].replace("{mark}", mark), monkeypatch)
    (tmp_path / ".aiexclude").write_text("x\n")
    async with harness.connect("local:") as execution:
        with anyio.fail_after(50):
            found = await BelowSearch(execution, privileged=False).aiexclude_directories([str(tmp_path)])
    assert isinstance(found, str) or (program, manner, found) == ("find", "nothing", [])


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("manner", ["rubbish", "flood"])
async def test_a_search_says_that_the_answer_cannot_be_read(
    manner: str, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = 'case "$*" in *x.n) exec /usr/bin/find "$@" ;; esac'  # what shows that it is GNU's
    put(tmp_path / "bin", "find", f"{usual}\n{MANNERS[manner].replace('{mark}', mark)}", monkeypatch)
    (tmp_path / "plain.txt").write_text("x")
    async with harness.connect("local:") as execution:
        box = toolbox(tools(), execution=execution)
        for name, arguments in (("glob", {"pattern": f"{tmp_path}/*"}), ("ls", {"path": str(tmp_path), "long": True})):
            with anyio.fail_after(50):
                outcome = await box.executor.call(ToolCall(name, arguments))
            assert "the search returned invalid output" in outcome.result.text


@pytest.mark.parametrize("data", [b"rubbish\n", b"x" * 70_000, b"x41ed 5 name\n", b"MARKx41ed five name\n", b"MARKx"])
def test_entries_that_are_none_are_not_read(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"entr|unpack|invalid"):
        read_all(EntryParser("MARK"), data)


def read_all(parser: EntryParser, data: bytes) -> list[DirEntry]:
    return [*parser.feed(data), *parser.finish()]
