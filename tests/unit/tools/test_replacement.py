"""``repfor`` in many files: several on their way at once, each by itself, and what is told when the link is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.toolbox import ALLOWED, Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.errors import ConnectionLost
from harness.results import WriteResult
from harness.testing.memory import MemoryBackend, memory_context
from harness.toolkit import CallOutcome, CallStatus, Executor, ToolCall
from harness.toolkit.interfaces import Verdict
from harness.toolkit.session.file_versions import ReadTracker
from harness_tools.dev import tools
from harness_tools.dev.replacement import AT_ONCE, NAMED, named

FILES = 40


def box(execution: ExecutionContext, cwd: str, answer: Any = lambda request: ALLOWED) -> Toolbox:
    made = toolbox(tools(), execution=execution, answer=answer)
    old = made.executor
    reads = ReadTracker().of("s1", execution)
    made.executor = Executor(execution, old.registry, old.services, old.events, reads, "s1", cwd=cwd)
    return made


async def repfor(made: Toolbox, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(120):
        return await made.executor.call(ToolCall("repfor", {"search": "old", "replace": "new", **arguments}))


def grow(top: Path) -> list[Path]:
    """Files of three directories, some of them too long for a script, with modes of their own."""
    paths = [top / f"d{number % 3}" / f"f{number:02}.txt" for number in range(FILES)]
    for number, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"old %d\n" % number + b"filler\n" * (number % 8) * 1000)
        path.chmod(0o600 + number % 8)
    return paths


@pytest.mark.usefixtures("needs_process")
async def test_many_files_are_changed_each_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    top = tmp_path / "tree"
    paths = grow(top)
    late = {paths[7], paths[23]}

    def answer(request: Any) -> Verdict:
        for path in late:
            if any(subject.text == str(path) for subject in request.subjects):
                path.write_text("old, by an editor\n")  # after the last look, before the first write
        return ALLOWED

    async with connect("local:") as execution:
        made = box(execution, str(top), answer)
        await repfor(made, dir=".", recursive=True, dry_run=True)
        done = await repfor(made, dir=".", recursive=True)
    assert done.result.error_code == "partial"
    data: Any = done.result.data
    assert data["files_modified"] == FILES - 2
    assert [(one["file"], one["code"]) for one in data["errors"]] == [(str(path), "stale") for path in sorted(late)]
    told = [one["path"] for group in data["directories"] for one in group["files"]]
    assert told == sorted(str(path) for path in paths if path not in late)
    for number, path in enumerate(paths):
        start = b"old, by an editor\n" if path in late else b"new %d\n" % number
        rest = b"" if path in late else b"filler\n" * (number % 8) * 1000
        assert path.read_bytes() == start + rest
        assert path.stat().st_mode & 0o777 == 0o600 + number % 8
    assert not list(top.rglob(".hx-*"))


async def in_memory() -> tuple[MemoryBackend, ExecutionContext]:
    backend = MemoryBackend()
    execution = memory_context(backend)
    for number in range(30):
        await execution.write_file(f"/home/user/w/{number:02}.txt", "old\n")
    return backend, execution


async def test_several_files_are_on_their_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, execution = await in_memory()
    made = box(execution, "/home/user/w")
    await repfor(made, dir=".", dry_run=True)
    write, begun, full = backend.files.write, 0, anyio.Event()

    async def together(*arguments: Any, **more: Any) -> WriteResult:
        nonlocal begun
        begun += 1
        if begun == AT_ONCE:
            full.set()
        await full.wait()
        return await write(*arguments, **more)

    monkeypatch.setattr(backend.files, "write", together)
    done = await repfor(made, dir=".")
    assert (done.status, begun) == (CallStatus.OK, 30)


async def test_after_a_lost_link_it_is_told_what_was_changed_and_what_may_have_been(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend, execution = await in_memory()
    made = box(execution, "/home/user/w")
    await repfor(made, dir=".", dry_run=True)
    write, begun = backend.files.write, list[str]()

    async def breaks(path: str, *arguments: Any, **more: Any) -> WriteResult:
        begun.append(path)
        if path.endswith("03.txt"):
            raise ConnectionLost("the link was lost", target="memory://here")
        return await write(path, *arguments, **more)

    monkeypatch.setattr(backend.files, "write", breaks)
    done = await repfor(made, dir=".")
    assert done.status is CallStatus.UNKNOWN
    changed = [name for name in begun if (await execution.read_file(name)).data == b"new\n"]
    assert 0 < len(changed) < 30
    text = done.result.text
    assert f"changed: {', '.join(sorted(changed))};" in text
    assert "may have been changed, so check before you retry: /home/user/w/03.txt;" in text
    assert f"not changed: {29 - len(changed)} more" in text
    assert len(begun) == len(changed) + 1


def test_a_message_names_some_of_many() -> None:
    assert named(["a", "b"]) == "a, b"
    assert named([str(number) for number in range(NAMED + 3)]).endswith(f"{NAMED - 1} and 3 more")
