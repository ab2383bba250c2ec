"""Nobody overwrites what he has not seen: on the real local target, with editors that are no harness."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.support.toolbox import Trace, Words

from harness import ExecutionContext, connect
from harness.errors import FileError, FileExists, FileNotFound, IsADirectory
from harness.results import FileContent
from harness.testing.memory import MemoryBackend, memory_context
from harness.toolkit import Registry, ToolContext, ToolResult
from harness.toolkit.events import EventBus
from harness.toolkit.session.file_versions import (
    FILES_KEPT,
    ReadTracker,
    WriteOutcome,
    guarded_edit,
    guarded_write,
    read_seen,
)

Writer = Callable[[ToolContext, str], object]


@pytest.fixture
async def execution(
    needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ExecutionContext]:
    """The local target, with its state apart."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as opened:
        yield opened


def context(
    execution: ExecutionContext, tracker: ReadTracker, session: str = "s1", cwd: str | None = None
) -> ToolContext:
    reads = tracker.of(session, execution)
    return ToolContext(execution, Registry(), EventBus(), reads, Words(Trace()), session_id=session, cwd=cwd)


@pytest.fixture
def ctx(execution: ExecutionContext) -> ToolContext:
    """A call of a session that has read nothing."""
    return context(execution, ReadTracker())


def code(answer: WriteOutcome | ToolResult) -> str:
    return "written" if isinstance(answer, WriteOutcome) else answer.error_code


async def test_a_new_file_is_written_and_may_be_written_again(ctx: ToolContext, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "new"
    first = await guarded_write(ctx, str(file), b"one\n")
    assert isinstance(first, WriteOutcome)
    assert (first.result.created, first.path) == (True, str(file))
    assert code(await guarded_write(ctx, str(file), b"two\n")) == "written"
    assert code(await guarded_edit(ctx, str(file), lambda old: old.data + b"three\n")) == "written"
    assert code(await guarded_write(ctx, str(file), b"four\n")) == "written"
    assert file.read_bytes() == b"four\n"


async def test_a_file_that_was_not_read_is_not_written(ctx: ToolContext, tmp_path: Path) -> None:
    file = tmp_path / "there"
    file.write_bytes(b"old")
    answers = [
        await guarded_write(ctx, str(file), b"new"),
        await guarded_write(ctx, str(file), b"new", mode="append"),
        await guarded_edit(ctx, str(file), lambda old: b"new"),
    ]
    assert [code(answer) for answer in answers] == ["not_read"] * 3
    assert file.read_bytes() == b"old"
    await read_seen(ctx, str(file))
    assert code(await guarded_write(ctx, str(file), b"new")) == "written"


def edit_with_another_program(file: Path, content: str) -> None:
    """Rewrite a file in place, as an editor on the host does, with the size and the times that it had."""
    before = file.stat()
    subprocess.run(["sh", "-c", 'printf %s "$1" > "$2"', "sh", content, str(file)], check=True)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (before.st_size, before.st_mtime_ns, before.st_ino) == (after.st_size, after.st_mtime_ns, after.st_ino)


@pytest.mark.parametrize("how", ["overwrite", "append", "edit"])
async def test_a_change_by_another_program_is_noticed_though_size_and_times_are_the_same(
    ctx: ToolContext, tmp_path: Path, how: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"listen 80")

    async def change() -> WriteOutcome | ToolResult:
        if how == "edit":
            return await guarded_edit(ctx, str(file), lambda old: old.data.replace(b"listen", b"bind"))
        return await guarded_write(ctx, str(file), b"bind 80", mode="append" if how == "append" else "overwrite")

    await read_seen(ctx, str(file))
    edit_with_another_program(file, "listen 81")
    refused = await change()
    assert isinstance(refused, ToolResult)
    assert (refused.error_code, file.read_bytes()) == ("stale", b"listen 81")
    assert "read it again" in refused.text
    await read_seen(ctx, str(file))
    assert code(await change()) == "written"


async def test_a_change_between_the_look_and_the_write_is_noticed_by_the_target(
    ctx: ToolContext, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"listen 80")
    await read_seen(ctx, str(file))

    def make(old: FileContent) -> bytes:
        edit_with_another_program(file, "listen 81")
        return b"mine"

    assert code(await guarded_edit(ctx, str(file), make)) == "stale"
    assert file.read_bytes() == b"listen 81"


async def test_a_file_that_a_command_changed_must_be_read_again(ctx: ToolContext, tmp_path: Path) -> None:
    file = tmp_path / "file"
    await guarded_write(ctx, str(file), b"mine")
    await ctx.execution.run_shell(f"printf hers > '{file}'")
    assert code(await guarded_write(ctx, str(file), b"mine again")) == "stale"


async def test_a_part_that_was_read_permits_an_edit_and_no_replacement(
    execution: ExecutionContext, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    ctx = context(execution, ReadTracker())
    assert (await read_seen(ctx, str(file), offset=2, limit=3)).data == b"234"
    refused = await guarded_write(ctx, str(file), b"all new")
    assert isinstance(refused, ToolResult)
    assert "only partly read" in refused.text
    assert code(await guarded_edit(ctx, str(file), lambda old: old.data[1:])) == "written"
    assert code(await guarded_write(ctx, str(file), b"still not")) == "not_read"
    await read_seen(ctx, str(file))
    await read_seen(ctx, str(file), limit=1)
    assert code(await guarded_write(ctx, str(file), b"all new")) == "written"


@pytest.mark.parametrize(
    ("parts", "answer"),
    [
        ([(0, 4), (4, 6)], "written"),
        ([(0, 6), (4, 99)], "written"),
        ([(0, 4), (5, 5)], "not_read"),
        ([(4, 6), (0, 4)], "written"),
        ([(8, 2), (0, 4), (3, 5)], "written"),
        ([(8, 2), (0, 4), (5, 3)], "not_read"),
        ([(0, 4), (0, 4)], "not_read"),
    ],
)
async def test_parts_without_a_gap_are_the_whole_in_any_order(
    ctx: ToolContext, tmp_path: Path, parts: list[tuple[int, int]], answer: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    for offset, limit in parts:
        await read_seen(ctx, str(file), offset=offset, limit=limit)
    assert code(await guarded_write(ctx, str(file), b"all new")) == answer


async def test_parts_of_two_versions_are_no_whole(ctx: ToolContext, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    await read_seen(ctx, str(file), limit=5)
    file.write_bytes(b"0123456798")
    await read_seen(ctx, str(file), offset=5)
    assert code(await guarded_write(ctx, str(file), b"all new")) == "not_read"


async def test_an_empty_file_is_read_whole_at_once(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    await read_seen(ctx, str(tmp_path / "file"), limit=10)
    assert code(await guarded_write(ctx, str(tmp_path / "file"), b"new")) == "written"


async def test_the_setting_lets_a_part_count_as_the_whole(execution: ExecutionContext, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    ctx = context(execution, ReadTracker(allow_overwrite_after_partial_read=True))
    await read_seen(ctx, str(file), limit=1)
    assert code(await guarded_write(ctx, str(file), b"all new")) == "written"


async def test_a_link_and_what_it_leads_to_are_one_file(ctx: ToolContext, tmp_path: Path) -> None:
    file, link = tmp_path / "real", tmp_path / "link"
    (tmp_path / "dir").mkdir()
    file.write_bytes(b"old")
    link.symlink_to(file)
    await read_seen(ctx, str(link))
    assert code(await guarded_write(ctx, f"{tmp_path}/dir/../real", b"new")) == "written"
    assert code(await guarded_write(ctx, str(link), b"newer")) == "written"
    assert (link.is_symlink(), file.read_bytes()) == (True, b"newer")


async def test_a_link_that_leads_elsewhere_now_is_another_file(ctx: ToolContext, tmp_path: Path) -> None:
    link = tmp_path / "link"
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"same")
    link.symlink_to(tmp_path / "one")
    await read_seen(ctx, str(link))
    link.unlink()
    link.symlink_to(tmp_path / "two")
    assert code(await guarded_write(ctx, str(link), b"new")) == "not_read"


async def test_a_new_file_through_a_link_is_known_by_its_real_path(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    made = await guarded_write(ctx, f"{tmp_path}/alias/file", b"one")
    assert isinstance(made, WriteOutcome)
    assert made.path == f"{tmp_path}/real/file"
    assert code(await guarded_write(ctx, f"{tmp_path}/real/file", b"two")) == "written"


async def test_two_sessions_read_for_themselves(execution: ExecutionContext, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    tracker = ReadTracker()
    agent, helper = context(execution, tracker, "s1"), context(execution, tracker, "s1/helper")
    await read_seen(agent, str(file))
    assert code(await guarded_write(helper, str(file), b"hers")) == "not_read"
    await read_seen(helper, str(file))
    assert code(await guarded_write(helper, str(file), b"hers")) == "written"
    assert code(await guarded_write(agent, str(file), b"mine")) == "stale"


async def test_two_targets_are_two_files(execution: ExecutionContext, tmp_path: Path) -> None:
    tracker, path = ReadTracker(), str(tmp_path / "file")
    here, there = context(execution, tracker), context(memory_context(MemoryBackend()), tracker)
    await guarded_write(here, path, b"here")
    await there.execution.write_file(path, b"here")
    assert code(await guarded_write(there, path, b"there")) == "not_read"


async def test_a_file_that_is_gone_is_new_again_and_an_edit_says_so(ctx: ToolContext, tmp_path: Path) -> None:
    file = tmp_path / "file"
    await guarded_write(ctx, str(file), b"one")
    file.unlink()
    with pytest.raises(FileNotFound):
        await guarded_edit(ctx, str(file), lambda old: b"")
    assert code(await guarded_write(ctx, str(file), b"two")) == "written"


async def test_what_is_forgotten_must_be_read(ctx: ToolContext, tmp_path: Path) -> None:
    file = tmp_path / "file"
    await guarded_write(ctx, str(file), b"one")
    ctx.reads.forget(str(file))
    assert code(await guarded_write(ctx, str(file), b"two")) == "not_read"


async def test_what_the_target_says_itself_comes_through(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExists):
        await guarded_write(ctx, str(tmp_path / "file"), b"x", mode="create")
    ctx.reads.record_read(str(tmp_path), "x", whole=True)
    with pytest.raises(IsADirectory):
        await guarded_write(ctx, str(tmp_path), b"x")


async def test_what_is_no_file_is_said_to_be_none_and_not_to_be_read_first(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("dir")
    for name, said in (("dir", "is a directory"), ("link", "is a directory"), ("pipe", "is a pipe, a socket or")):
        path = str(tmp_path / name)
        with pytest.raises(FileError, match=said):
            await guarded_write(ctx, path, b"x")
        with pytest.raises(FileError, match=said):
            await guarded_write(ctx, path, b"x", mode="append")
        with pytest.raises(FileError, match=said):
            await guarded_edit(ctx, path, lambda old: b"x")


async def test_an_edit_may_refuse_and_then_nothing_is_written(ctx: ToolContext, tmp_path: Path) -> None:
    file = tmp_path / "file"
    await guarded_write(ctx, str(file), b"one")
    refusal = ToolResult.failure("no_match", "no such text")
    assert await guarded_edit(ctx, str(file), lambda old: refusal) is refusal
    assert file.read_bytes() == b"one"


async def test_an_appended_file_is_known_whole_only_if_it_was(ctx: ToolContext, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    await read_seen(ctx, str(file), limit=2)
    assert code(await guarded_write(ctx, str(file), b"!", mode="append")) == "written"
    assert code(await guarded_write(ctx, str(file), b"all")) == "not_read"
    fresh = tmp_path / "fresh"
    assert code(await guarded_write(ctx, str(fresh), b"a", mode="append")) == "written"
    assert code(await guarded_write(ctx, str(fresh), b"b")) == "written"


async def test_relative_paths_start_from_the_calls_directory(execution: ExecutionContext, tmp_path: Path) -> None:
    ctx = context(execution, ReadTracker(), cwd=str(tmp_path))
    assert code(await guarded_write(ctx, "file", b"one")) == "written"
    assert (tmp_path / "file").read_bytes() == b"one"


async def test_the_tracker_forgets_what_was_used_longest_ago() -> None:
    reads = ReadTracker().of("s", memory_context(MemoryBackend()))
    reads.record_read("/first", "v", whole=True)
    reads.record_read("/second", "v", whole=True)
    for number in range(FILES_KEPT - 2):
        reads.record_read(f"/{number}", "v", whole=True)
    assert reads.last_read_version("/first", whole=True) == "v"
    reads.record_read("/last", "v", whole=True)
    assert (reads.last_read_version("/first", whole=True), reads.last_read_version("/second", whole=True)) == (
        "v",
        None,
    )
