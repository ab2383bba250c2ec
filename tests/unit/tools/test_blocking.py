"""No tool waits for a pipe that has the name of a file."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.toolkit import CallOutcome, Executor, ToolCall
from harness.toolkit.catalog import load_catalogue
from harness.toolkit.session.file_versions import ReadTracker
from harness_tools.dev.clean_diff import first_blocking

pytestmark = pytest.mark.usefixtures("needs_process")

PATIENCE = 50
"""Seconds: less than the tools' own limit, which is what would end the waiting."""


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    async with connect("local:") as opened:
        yield opened


def box(execution: ExecutionContext) -> Toolbox:
    made = toolbox([], execution=execution)
    reads = ReadTracker().of("s1", execution)
    services, events = made.executor.services, made.executor.events
    made.executor = Executor(execution, load_catalogue().known, services, events, reads, "s1")
    return made


async def call(made: Toolbox, name: str, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(PATIENCE):
        return await made.executor.call(ToolCall(name, arguments))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree"
    (top / "sub/deep").mkdir(parents=True)
    (top / "sub/a.py").write_text("import os  # needle\n")
    (top / "sub/deep/b.go").write_text("package b // needle\n")
    for name in ("p", "go.mod", "sub/p.py", "sub/.rgignore", "sub/deep/p.go"):
        os.mkfifo(top / name)
    return top


async def test_a_pipe_in_the_place_of_a_file_is_named_and_not_opened(here: ExecutionContext, tree: Path) -> None:
    made, pipe, file = box(here), str(tree / "p"), str(tree / "sub/a.py")
    await call(made, "read_file", path=file)
    steps: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {"path": pipe}),
        ("read_file", {"path": pipe, "byte_offset": 1}),
        ("read_file", {"path": pipe, "encoding": "utf-16"}),
        ("write_file", {"path": pipe, "content": "x"}),
        ("edit", {"path": pipe, "old_string": "a", "new_string": "b"}),
        ("sig", {"file": str(tree / "sub/p.py")}),
        ("conflicts", {"file": [pipe]}),
        ("transform", {"file": pipe, "pipeline": [{"op": "count", "key": "a"}]}),
        ("repfor", {"search": "a", "replace": "b", "file": [pipe]}),
        ("splice", {"source": pipe, "target": file, "mode": "append"}),
        ("splice", {"source": file, "target": pipe, "mode": "append"}),
        ("split", {"file": pipe, "lines": [1]}),
        ("tabcount", {"file": pipe}),
        ("notab", {"file": pipe}),
        ("utf8", {"file": pipe}),
        ("grep", {"pattern": "x", "path": pipe}),
        ("checkfor", {"search": "x", "file": [pipe]}),
    ]
    for name, arguments in steps:
        outcome = await call(made, name, **arguments)
        assert outcome.result.is_error, name
        said = ("is a pipe, a socket or a device", "neither a directory nor a regular file", "it is not a file")
        assert any(text in outcome.result.text for text in said), (name, outcome.result.text)


async def test_pipes_in_a_tree_hold_no_search(here: ExecutionContext, tree: Path) -> None:
    places = {tree: 2, tree / "sub": 2, tree / "sub/deep": 1}
    for ignore in ("", "sub/deep/.gitignore", ".gitignore"):
        if ignore:
            os.mkfifo(tree / ignore)
        made = box(here)
        for place, count in places.items():
            found = await call(made, "grep", pattern="needle", path=str(place))
            assert not found.result.is_error, (ignore, place, found.result.text)
            assert found.result.text.count("needle") == count, (ignore, place, found.result.text)
    for name, arguments in {
        "glob": {"pattern": "**/*.py", "path": str(tree)},
        "stump": {"dir": str(tree)},
        "ls": {"path": str(tree), "all": True},
        "imports": {"dir": str(tree), "recursive": True},
        "checkfor": {"search": "needle", "dir": [str(tree / "sub")]},
        "repfor": {"search": "needle", "replace": "x", "dir": [str(tree)], "recursive": True, "dry_run": True},
    }.items():
        outcome = await call(made, name, **arguments)
        assert not outcome.result.is_error, (name, outcome.result.text)


def git(directory: Path, *words: str) -> None:
    named = ("-c", "user.name=A", "-c", "user.email=a@b.example")
    subprocess.run(["git", *named, *words], cwd=directory, capture_output=True, check=True, timeout=PATIENCE)


async def test_what_git_would_wait_for_is_named_and_not_opened(here: ExecutionContext, tmp_path: Path) -> None:
    made, repo = box(here), tmp_path / "repo"
    (repo / "sub").mkdir(parents=True)
    git(repo, "init", "-q")
    for name in ("f", "sub/g"):
        (repo / name).write_text("old\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "x")
    (repo / "f").write_text("new\n")
    (repo / ".gitignore").write_text("")
    (repo / ".git/info/exclude").unlink()
    (repo / ".git/info/exclude").symlink_to("/dev/null")
    os.mkfifo(repo / "f.pipe")
    assert not (await call(made, "clean_diff", path=str(repo), include_untracked=True)).result.is_error
    for name in ("sub/.gitignore", "sub/.gitattributes", ".git/config.worktree", ".git/refs/heads/other"):
        os.mkfifo(repo / name)
        outcome = await call(made, "clean_diff", path=str(repo / "sub"), include_untracked=True)
        assert outcome.result.error_code == "not_a_file", outcome.result.text
        assert outcome.result.text == f"not compared: {repo}/{name} is a pipe or a device, and git would wait for it"
        (repo / name).unlink()
    assert not (await call(made, "clean_diff", path=str(repo / "sub"))).result.is_error


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox", "mksh"])
def test_pipes_and_devices_are_found_and_nothing_else(tmp_path: Path, shell: str) -> None:
    words = [shutil.which(shell) or "", *(["sh"] if shell == "busybox" else [])]
    (tmp_path / "a b/.git").mkdir(parents=True)
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "file").write_text("x")
    (tmp_path / "broken").symlink_to("nowhere")
    os.mkfifo(tmp_path / "a b/.git/.gitignore")

    def found(pattern: str = "") -> str:
        script = first_blocking('"$1/"', pattern)
        return subprocess.run(
            [*words, "-c", script, "sh", str(tmp_path)], capture_output=True, check=True, timeout=PATIENCE, text=True
        ).stdout

    assert found(".gitignore") == ""
    assert found() == f"{tmp_path}/a b/.git/.gitignore\n"
    (tmp_path / "a b/.gitignore").symlink_to(".git/.gitignore")
    assert found(".gitignore") == f"{tmp_path}/a b/.gitignore\n"
