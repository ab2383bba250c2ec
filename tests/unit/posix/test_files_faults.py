"""What happens to files when writers race, links break, disks fill up and processes die."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.file_targets import BARE, BUSYBOX, DASH, FileTarget, Flavour, open_file_target

from harness.errors import FileError, FileExists, NoSpace, PermissionDenied, StaleFileError
from harness_backends.posix.files.file_calls import version_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("needs_process")]

MIXED = [DASH, BUSYBOX, DASH, DASH]
RIVALS = [[DASH, DASH, DASH, DASH], [BARE, BARE, BARE], MIXED]
BIG = 4 << 20


async def several(stack: AsyncExitStack, flavours: list[Flavour], directory: Path) -> list[FileTarget]:
    stack.callback(shutil.rmtree, directory / "applets", ignore_errors=True)
    targets = []
    for number, flavour in enumerate(flavours):
        own = directory / f"tools{number}"
        own.mkdir()
        (own / "home").symlink_to(directory)
        targets.append(await stack.enter_async_context(open_file_target(flavour, own)))
    return targets


@pytest.mark.parametrize("flavours", RIVALS, ids=["full", "bare", "mixed"])
@pytest.mark.parametrize("size", [10, 60_000, 1_500_000])
async def test_of_several_writers_who_expect_the_same_version_one_wins(
    flavours: list[Flavour], size: int, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        targets = await several(stack, flavours, tmp_path)
        version: str | None = None
        for round_number in range(5):
            won: list[bytes] = []

            async def attempt(content: bytes, target: FileTarget, expect: str | None, winners: list[bytes]) -> None:
                try:
                    await target.files.write("shared", content, expect=expect)
                except StaleFileError:
                    return
                winners.append(content)

            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    for number, target in enumerate(targets):
                        content = f"{round_number}:{number}".encode().ljust(size)
                        tasks.start_soon(attempt, content, target, version, won)
            assert len(won) == 1
            read = await targets[0].files.read("shared")
            assert read.data == won[0]
            version = read.version


async def test_writers_who_read_and_retry_lose_no_update(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        targets = await several(stack, [DASH, BUSYBOX, DASH], tmp_path)
        await targets[0].files.write("counter", b"0")

        async def count(target: FileTarget) -> None:
            done = 0
            while done < 8:
                read = await target.files.read("counter")
                try:
                    await target.files.write("counter", b"%d" % (int(read.data) + 1), expect=read.version)
                except StaleFileError:
                    continue
                done += 1

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for target in targets:
                    tasks.start_soon(count, target)
        assert (await targets[0].files.read("counter")).data == b"24"


async def test_of_several_creators_one_wins(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        targets = await several(stack, [DASH, BUSYBOX, BARE], tmp_path)
        for name in ("one", "two", "three"):
            won: list[int] = []

            async def create(number: int, path: str, winners: list[int]) -> None:
                try:
                    await targets[number].files.write(path, str(number).encode(), mode="create")
                except FileExists:
                    return
                winners.append(number)

            async with anyio.create_task_group() as tasks:
                for number in range(len(targets)):
                    tasks.start_soon(create, number, name, won)
            assert (tmp_path / name).read_bytes() == b"".join(str(number).encode() for number in won)
            assert len(won) == 1


async def test_appends_of_several_writers_are_all_kept_whole(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        targets = await several(stack, MIXED, tmp_path)

        async def append(target: FileTarget, letter: bytes) -> None:
            for _ in range(5):
                await target.files.write("log", letter * 30_000 + b"\n", mode="append")

        async with anyio.create_task_group() as tasks:
            for target, letter in zip(targets, (b"a", b"b", b"c", b"d"), strict=True):
                tasks.start_soon(append, target, letter)
        lines = (tmp_path / "log").read_bytes().splitlines()
        assert sorted(lines) == sorted(letter * 30_000 for letter in (b"a", b"b", b"c", b"d") for _ in range(5))


async def test_a_reader_sees_the_old_content_or_the_new(tmp_path: Path) -> None:
    async with open_file_target(DASH, tmp_path) as target:
        await target.files.write("f", b"a" * BIG)
        for letter in (b"b", b"c", b"d"):
            seen = set()

            def look(_done: int, _total: int | None, found: set[bytes] = seen) -> None:
                found.add(bytes(set((target.home / "f").read_bytes())))

            old = (target.home / "f").read_bytes()[:1]
            await target.files.write("f", letter * BIG, progress=look)
            assert seen <= {old, letter}


async def endless(started: anyio.Event, progressed: int = 1 << 20) -> AsyncIterator[bytes]:
    yield b"n" * progressed
    started.set()
    await anyio.sleep_forever()


def hidden(directory: Path) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith(".hx-")]


async def upload_from_pipe(
    target: FileTarget, chunks: AsyncIterator[bytes], path: str = "f", force: bool = False
) -> None:
    """A streamed write whose content the test controls."""
    from harness.backend import ANY
    from harness_backends.posix.files.content import WriteRequest

    writer = target.files._writer
    await writer.stream(WriteRequest(path, BIG, expect=ANY, force=force), chunks, await writer.hasher(), None)


@pytest.mark.parametrize("flavour", [DASH, BUSYBOX, BARE], ids=lambda flavour: flavour.name)
async def test_a_transfer_that_is_cancelled_leaves_the_old_file_and_nothing_else(
    flavour: Flavour, tmp_path: Path
) -> None:
    async with open_file_target(flavour, tmp_path) as target:
        (target.home / "f").write_bytes(b"old")
        started = anyio.Event()
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(upload_from_pipe, target, endless(started))
                await started.wait()
                tasks.cancel_scope.cancel()
        assert (target.home / "f").read_bytes() == b"old"
        assert hidden(target.home) == []


@pytest.mark.parametrize("single", [False, True])
async def test_a_transfer_that_is_cancelled_takes_back_its_directories(single: bool, tmp_path: Path) -> None:
    async with open_file_target(DASH, tmp_path) as target:
        await target.files.mkdir("there")
        target.transport.single = single
        started = anyio.Event()
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(upload_from_pipe, target, endless(started), "there/new/deep/f")
                await started.wait()
                assert len(hidden(target.home / "there/new/deep")) == 1
                tasks.cancel_scope.cancel()
        assert os.listdir(target.home / "there") == []


@pytest.mark.parametrize("flavour", [DASH, BUSYBOX], ids=lambda flavour: flavour.name)
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["slow", "killed"])
async def test_what_a_receiver_cannot_remove_any_more_is_removed_for_it(
    number: signal.Signals, flavour: Flavour, tmp_path: Path
) -> None:
    async with open_file_target(flavour, tmp_path) as target:
        (target.home / "f").write_bytes(b"old")
        (target.home / "f").chmod(0o400)
        started = anyio.Event()
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(upload_from_pipe, target, endless(started), "f", True)
                await started.wait()
                assert len(hidden(target.home)) == 1
                target.transport.signal_last(number)  # a stopped one is as slow as on a target that is very busy
                tasks.cancel_scope.cancel()
        assert (target.home / "f").read_bytes() == b"old"
        assert hidden(target.home) == []


async def test_a_receiver_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    async with open_file_target(DASH, tmp_path) as target:

        async def killed() -> AsyncIterator[bytes]:
            yield b"n" * (1 << 20)
            target.transport.signal_last(signal.SIGKILL)
            yield b"n" * (1 << 20)

        with anyio.fail_after(20), pytest.raises(FileError, match="exit code 137"):
            await upload_from_pipe(target, killed())
        assert os.listdir(target.home) == []


@pytest.mark.parametrize("flavour", [DASH, BUSYBOX, BARE], ids=lambda flavour: flavour.name)
async def test_a_crash_of_the_target_leaves_the_old_file_and_its_leftover_goes_later(
    flavour: Flavour, tmp_path: Path
) -> None:
    async with open_file_target(flavour, tmp_path) as target:
        (target.home / "f").write_bytes(b"old")

        async def killed() -> AsyncIterator[bytes]:
            yield b"n" * (1 << 20)
            target.transport.kill_all()
            yield b"n" * (1 << 20)

        with anyio.fail_after(20), pytest.raises(FileError):
            await upload_from_pipe(target, killed())
        assert (target.home / "f").read_bytes() == b"old"
        (leftover,) = hidden(target.home)
        assert (target.home / leftover).stat().st_mode & 0o777 == 0o600
    old = time.time() - 90_000
    (target.home / ".hx-tmp-other").touch()
    os.utime(target.home / leftover, (old, old))
    async with open_file_target(flavour, tmp_path) as target:
        await target.files.write("f", b"new")
        assert hidden(target.home) == [".hx-tmp-other"]


async def short(pieces: int) -> AsyncIterator[bytes]:
    for _ in range(pieces):
        yield b"n" * 1000


async def failing() -> AsyncIterator[bytes]:
    yield b"n" * (1 << 20)
    raise FileError("the source broke")


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(("chunks", "words"), [(lambda: short(3), "arrived incomplete"), (failing, "source broke")])
async def test_content_that_does_not_arrive_whole_changes_nothing(
    chunks: type[AsyncIterator[bytes]], words: str, single: bool, tmp_path: Path
) -> None:
    async with open_file_target(DASH, tmp_path) as target:
        await target.files.write("f", b"old")
        target.transport.single = single
        with pytest.raises(FileError, match=words):
            await upload_from_pipe(target, chunks())
        assert (target.home / "f").read_bytes() == b"old"
        assert hidden(target.home) == []


@pytest.mark.parametrize("flavour", [DASH, BUSYBOX, BARE], ids=lambda flavour: flavour.name)
async def test_a_target_with_one_channel_moves_large_files_too(flavour: Flavour, tmp_path: Path) -> None:
    async with open_file_target(flavour, tmp_path) as target:
        target.transport.single = True
        content = os.urandom(700_000)
        (tmp_path / "source").write_bytes(content)
        written = await target.files.upload(str(tmp_path / "source"), "sub/up")
        read = await target.files.read("sub/up")
        assert (read.data, read.version) == (content, written.version)
        await target.files.download("sub/up", str(tmp_path / "back"))
        assert (tmp_path / "back").read_bytes() == content
        assert target.transport.opened == 1
        assert hidden(target.home / "sub") == []


@pytest.mark.parametrize("flavour", [DASH, BUSYBOX], ids=lambda flavour: flavour.name)
@pytest.mark.parametrize("single", [False, True])
async def test_a_file_that_may_not_grow_so_large_is_no_space(flavour: Flavour, single: bool, tmp_path: Path) -> None:
    limited = replace(flavour, prefix=("sh", "-c", 'ulimit -f 200 && exec "$@"', "sh"))
    async with open_file_target(limited, tmp_path) as target:
        await target.files.write("f", b"old")
        target.transport.single = single
        with pytest.raises(NoSpace):
            await target.files.write("f", b"n" * BIG)
        assert (target.home / "f").read_bytes() == b"old"
        assert hidden(target.home) == []


def small_disk(directory: Path) -> tuple[str, ...]:
    """A program prefix that gives what it starts a disk of 300 KiB; or, without the right to mount, a size limit."""
    directory.mkdir()
    unshare = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-rm")
    prefix = (*unshare, "sh", "-c", 'mount -t tmpfs -o size=300k none "$0" && exec "$@"', str(directory))
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
        return prefix
    return ("sh", "-c", 'ulimit -f 200 && exec "$@"', "sh")


async def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    prefix = small_disk(tmp_path / "home")
    async with open_file_target(replace(DASH, prefix=prefix), tmp_path) as target:
        await target.files.write("f", b"old" * 1000)
        target.transport.single = True  # every process would get a disk of its own
        with pytest.raises(NoSpace):
            await target.files.write("f", b"n" * 500_000)
        with pytest.raises(NoSpace):
            await target.files.write("new", b"n" * 500_000, mode="create")
        assert (await target.files.read("f")).data == b"old" * 1000
        assert [entry.name for entry in await target.files.list_dir(".")] == ["f"]


async def test_an_append_that_a_full_disk_cuts_off_says_so(tmp_path: Path) -> None:
    prefix = small_disk(tmp_path / "home")
    async with open_file_target(replace(DASH, prefix=prefix), tmp_path) as target:
        target.transport.single = True
        await target.files.mkdir("empty")
        with pytest.raises(NoSpace, match="may end with a part"):
            await add_until_full(target)
        size = (await target.files.stat("log")).size
        assert size > 50_000
        if "unshare" in prefix:
            await a_write_that_fails_takes_back_its_directories(target)


async def add_until_full(target: FileTarget) -> None:
    for _ in range(100):
        await target.files.write("log", b"n" * 9000, mode="append")


async def a_write_that_fails_takes_back_its_directories(target: FileTarget) -> None:
    """On a disk that is full."""
    for path in ("a/b/c", "empty/d/e", "empty/./f/./g"):
        with pytest.raises(NoSpace):
            await target.files.write(path, b"n" * 9000)
    assert {entry.name for entry in await target.files.list_dir(".")} == {"empty", "log"}
    assert [entry.name for entry in await target.files.list_dir("empty")] in ([], ["f"])


async def test_a_file_that_is_a_mount_is_not_replaced_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    unshare = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-rm")
    mounted = ("sh", "-c", 'cd "$0" && mount --bind outside inside && exec "$@"', str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    for name in ("outside", "inside"):
        (tmp_path / "home" / name).write_text(name)
    async with open_file_target(replace(DASH, prefix=(*unshare, *mounted)), tmp_path) as target:
        with pytest.raises(FileError, match=r"mount point.*cat >FILE"):
            await target.files.write("inside", b"new")
        await target.files.write("inside", b", and more", mode="append")
    assert (target.home / "outside").read_text() == "outside, and more"
    assert hidden(target.home) == []


async def test_a_file_whose_directory_takes_no_new_one_is_not_said_to_be_missing(tmp_path: Path) -> None:
    async with open_file_target(DASH, tmp_path) as target:
        for size in (2, 100_000):
            with pytest.raises(PermissionDenied, match=r"cannot create files.*cat >FILE"):
                await target.files.write("/proc/self/oom_score_adj", b"0" * size)


@pytest.mark.slow
async def test_a_lock_that_a_dead_writer_left_is_broken_after_a_minute(tmp_path: Path) -> None:
    async with open_file_target(BARE, tmp_path) as target:
        lock = target.home / ".hx-lock"
        lock.mkdir()
        with anyio.fail_after(20), pytest.raises(FileError, match="locked"):
            await target.files.write("f", b"x")
        long_ago = time.time() - 150
        os.utime(lock, (long_ago, long_ago))
        await target.files.write("f", b"x")
        assert os.listdir(target.home) == ["f"]


@pytest.mark.parametrize("flavour", [DASH, BUSYBOX], ids=lambda flavour: flavour.name)
@pytest.mark.parametrize("single", [False, True])
async def test_a_file_that_grows_while_it_is_read_is_read_as_it_was(
    flavour: Flavour, single: bool, tmp_path: Path
) -> None:
    content = os.urandom(3_000_000)
    async with open_file_target(flavour, tmp_path) as target:
        path = target.home / "log"
        path.write_bytes(content)
        await target.files.stat("log")
        target.transport.single = single

        def grow(_done: int, _total: int | None) -> None:
            with path.open("ab") as file:
                file.write(b"more" * 1000)

        read = await target.files.read("log", progress=grow)
        assert read.data == content
        assert read.version in (version_of(content, "sha256"), version_of(content, "cksum"))
        assert await target.files.download("log", str(tmp_path / "copy"), grow) > len(content)


@pytest.mark.slow
async def test_a_hundred_megabytes_go_both_ways_in_bounded_memory(tmp_path: Path) -> None:
    size = 100 << 20
    source = tmp_path / "source"
    with source.open("wb") as file:
        for _ in range(100):
            file.write(os.urandom(1 << 20))
    async with open_file_target(DASH, tmp_path) as target:
        await target.files.upload(str(source), "warm")
        before = peak_reset()
        result = await target.files.upload(str(source), "up")
        assert await target.files.download("up", str(tmp_path / "back")) == size
        assert peak() - before < 24 << 20
        assert result.version == "sha256:" + sha256sum(source) == "sha256:" + sha256sum(tmp_path / "back")
        before = peak_reset()
        read = await target.files.read("up")
        assert peak() - before < size + (40 << 20)
        assert read.version == result.version
        before = peak_reset()
        assert (await target.files.write("again", read.data)).version == read.version
        assert peak() - before < 24 << 20


def sha256sum(path: Path) -> str:
    return subprocess.run(["sha256sum", path], capture_output=True, check=True).stdout.split()[0].decode()


def peak_reset() -> int:
    """Begin to measure the peak of this process's memory; returns what it uses now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
