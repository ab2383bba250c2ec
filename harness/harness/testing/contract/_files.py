"""Checks of files on the target: exact bytes, any name, atomic writes, typed errors."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from ...context import ExecutionContext
from ...errors import (
    FileError,
    FileExists,
    FileNotFound,
    IsADirectory,
    NotADirectory,
    PermissionDenied,
    StaleFileError,
)
from ._registry import check, scratch, until

LONG = 64 << 20
"""Size in bytes of a file that takes longer to write than to cancel."""

NAMES = [
    "plain",
    "with space",
    "new\nline",
    "-dash",
    "--",
    "*glob?[a]",
    "'single' \"double\"",
    "$(id) `id` $HOME",
    "back\\slash",
    "é漢😀",
    "\udcff\udc80",
    "~tilde",
    "#hash;&|",
    ".hidden",
    "tab\t",
    "x" * 200,
]


async def refused(operation: Awaitable[object], kind: type[Exception]) -> Exception:
    """Assert that the operation raises ``kind``, and return the error."""
    try:
        result = await operation
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got {result!r}")


@check("What is written is read back byte for byte, whatever its size.")
async def files_round_trip(ctx: ExecutionContext) -> None:
    contents = [b"", b"\n", b"no newline", bytes(range(256)), random.Random(1).randbytes(300_000), bytes(5_000_000)]
    async with scratch(ctx) as directory:
        for data in contents:
            written = await ctx.write_file(f"{directory}/f", data)
            assert written.bytes_written == len(data), written
            content = await ctx.read_file(f"{directory}/f")
            assert content.data == data
            assert content.size == len(data), content.size
            assert content.version == written.version
            assert content.path == f"{directory}/f", content.path


@check("A part of a file can be read; beyond its end there is nothing.")
async def files_are_read_in_parts(ctx: ExecutionContext) -> None:
    data = random.Random(2).randbytes(500_000)
    async with scratch(ctx) as directory:
        path = f"{directory}/f"
        written = await ctx.write_file(path, data)
        for offset, limit in [
            (0, 10),
            (10, 1),
            (499_999, 10),
            (0, 0),
            (100_000, 300_000),
            (500_000, 5),
            (900_000, None),
        ]:
            part = await ctx.read_file(path, offset=offset, limit=limit)
            assert part.data == data[offset : None if limit is None else offset + limit], (offset, limit)
            assert (part.size, part.version) == (len(data), written.version), (offset, limit)


@check("The version is a function of the content.")
async def versions_identify_content(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        first = await ctx.write_file(f"{directory}/a", b"one")
        second = await ctx.write_file(f"{directory}/b", b"two")
        third = await ctx.write_file(f"{directory}/a", b"two")
        assert first.version != second.version
        assert second.version == third.version == (await ctx.read_file(f"{directory}/a")).version


@check("A write that expects another version is StaleFileError, and the file stays as it was.")
async def lost_races_are_refused(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        path = f"{directory}/f"
        old = await ctx.write_file(path, b"old")
        new = await ctx.write_file(path, b"new", expect=old.version)
        assert new.created is False, new
        await refused(ctx.write_file(path, b"lost", expect=old.version), StaleFileError)
        await refused(ctx.write_file(path, b"lost", expect=None), (FileError))
        await refused(ctx.write_file(f"{directory}/none", b"lost", expect=old.version), FileError)
        assert (await ctx.read_file(path)).data == b"new"
        assert (await ctx.write_file(f"{directory}/fresh", b"x", expect=None)).created is True


@check("Of many writers that expect the same version, exactly one wins.")
async def one_writer_wins(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        path = f"{directory}/f"
        old = await ctx.write_file(path, b"old")
        won: list[bytes] = []

        async def write(data: bytes) -> None:
            try:
                await ctx.write_file(path, data, expect=old.version)
            except StaleFileError:
                return
            won.append(data)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(write, b"%d" % number)
        assert len(won) == 1, won
        assert (await ctx.read_file(path)).data == won[0]


@check("Many files are written at once, each whole and with its mode; one that is refused keeps no other from it.")
async def many_files_at_once(ctx: ExecutionContext) -> None:
    contents = [bytes([65 + number]) * (number * 4_000) for number in range(12)]
    refused_ones: set[int] = set()

    async def write(number: int, path: str, version: str) -> None:
        try:
            result = await ctx.write_file(path, contents[number], expect=version, parents=False)
            assert result.version == (await ctx.read_file(path)).version
        except StaleFileError:
            refused_ones.add(number)

    async with scratch(ctx) as directory:
        paths = [f"{directory}/{number}" for number in range(12)]
        versions = [(await ctx.write_file(path, "old", permissions=0o640)).version for path in paths]
        for path in paths[::5]:
            await ctx.write_file(path, "by another")
        async with anyio.create_task_group() as tasks:
            for number, path in enumerate(paths):
                tasks.start_soon(write, number, path, versions[number])
        assert refused_ones == {0, 5, 10}, refused_ones
        for number, path in enumerate(paths):
            expected = b"by another" if number in refused_ones else contents[number]
            assert (await ctx.read_file(path)).data == expected, number
            assert (await ctx.stat(path)).mode == 0o640, number
        assert len(await ctx.list_dir(directory)) == 12


@check("mode='create' refuses an existing file, mode='append' adds to it or makes it.")
async def write_modes(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        path = f"{directory}/f"
        assert (await ctx.write_file(path, b"a", mode="create")).created is True
        await refused(ctx.write_file(path, b"b", mode="create"), FileExistsError)
        assert (await ctx.write_file(path, b"c", mode="append")).created is False
        assert (await ctx.write_file(f"{directory}/new", b"d", mode="append")).created is True
        assert (await ctx.read_file(path)).data == b"ac"
        assert (await ctx.read_file(f"{directory}/new")).data == b"d"


@check("An overwrite keeps the permissions; permissions= sets them; nothing is left beside the file.")
async def permissions_are_kept(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        path = f"{directory}/f"
        await ctx.write_file(path, b"a", permissions=0o640)
        assert (await ctx.stat(path)).mode & 0o777 == 0o640
        await ctx.write_file(path, b"b")
        assert (await ctx.read_file(path)).mode & 0o777 == 0o640
        await ctx.write_file(path, b"c", permissions=0o600)
        assert (await ctx.stat(path)).mode & 0o777 == 0o600
        assert [entry.name for entry in await ctx.list_dir(directory)] == ["f"]


@check("A read-only file is written with force alone, also by root.")
async def read_only_files_are_refused(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        path = f"{directory}/f"
        await ctx.write_file(path, b"old", permissions=0o444)
        await refused(ctx.write_file(path, b"new"), PermissionDenied)
        await refused(ctx.write_file(path, b"new", mode="append"), PermissionDenied)
        assert (await ctx.read_file(path)).data == b"old"
        await ctx.write_file(path, b"new", mode="append", force=True)
        await ctx.write_file(path, (await ctx.read_file(path)).data + b"er", force=True)
        assert (await ctx.read_file(path)).data == b"oldnewer"
        assert (await ctx.stat(path)).mode & 0o777 == 0o444


@check("A write through a link changes the file it points to, and the link stays.")
async def links_are_followed(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        await ctx.write_file(f"{directory}/real", b"old")
        await ctx.run_shell(f"ln -s real {directory}/link; ln -s loop {directory}/loop")
        await ctx.write_file(f"{directory}/link", b"new")
        assert (await ctx.read_file(f"{directory}/real")).data == b"new"
        link = await ctx.stat(f"{directory}/link", follow=False)
        assert (link.type, link.target) == ("link", "real"), link
        assert (await ctx.stat(f"{directory}/link")).type == "file"
        await refused(ctx.read_file(f"{directory}/loop"), FileError)


@check("Missing directories are made, unless parents=False.")
async def parents_are_made(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        await refused(ctx.write_file(f"{directory}/a/b/f", b"x", parents=False), FileNotFound)
        await ctx.write_file(f"{directory}/a/b/f", b"x")
        assert (await ctx.read_file(f"{directory}/a/b/f")).data == b"x"


@check("Any name works: blanks, newlines, dashes, wildcards, quotes, bytes that are no text.")
async def names_are_exact(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        for number, name in enumerate(NAMES):
            await ctx.write_file(f"{directory}/{name}", str(number))
        assert {entry.name for entry in await ctx.list_dir(directory)} == set(NAMES)
        assert {entry.name for entry in await ctx.walk(directory)} == set(NAMES)
        for number, name in enumerate(NAMES):
            assert (await ctx.read_file(f"{directory}/{name}")).text == str(number), name
            assert (await ctx.stat(f"{directory}/{name}")).type == "file", name
            await ctx.rename(f"{directory}/{name}", f"{directory}/renamed")
            await ctx.rename(f"{directory}/renamed", f"{directory}/{name}")
            await ctx.remove(f"{directory}/{name}")
        assert await ctx.list_dir(directory) == []


@check("Errors have types that say what is wrong, are the matching builtins too, and name the path and the target.")
async def file_errors_are_typed(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        await ctx.write_file(f"{directory}/f", b"x")
        error = await refused(ctx.read_file(f"{directory}/none"), FileNotFoundError)
        assert f"{directory}/none" in str(error), error
        assert str(ctx.target) in str(error), error
        await refused(ctx.stat(f"{directory}/none"), FileNotFound)
        await refused(ctx.list_dir(f"{directory}/none"), FileNotFound)
        await refused(ctx.remove(f"{directory}/none"), FileNotFound)
        await refused(ctx.rename(f"{directory}/none", f"{directory}/x"), FileNotFound)
        await refused(ctx.read_file(directory), IsADirectory)
        await refused(ctx.write_file(directory, b"x"), IsADirectory)
        await refused(ctx.read_file(f"{directory}/f/below"), FileError)
        await refused(ctx.list_dir(f"{directory}/f"), NotADirectory)
        await refused(ctx.mkdir(f"{directory}/f"), FileExists)
        await refused(ctx.read_file(f"{directory}/nul\0"), ValueError)


@check("What the target's user may not do is PermissionDenied.")
async def permissions_are_honoured(ctx: ExecutionContext) -> None:
    if ctx.capabilities.uid == 0:
        await refused(ctx.remove("/"), FileError)
        return
    await refused(ctx.write_file("/etc/hx-check", b"x"), PermissionDenied)
    async with scratch(ctx) as directory:
        await ctx.write_file(f"{directory}/secret", b"x", permissions=0o000)
        await refused(ctx.read_file(f"{directory}/secret"), PermissionError)


@check("Special files are refused and never make a call hang.")
async def special_files_do_not_hang(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        await ctx.run_shell(f"mkfifo {directory}/fifo")
        with anyio.fail_after(20):
            await refused(ctx.read_file(f"{directory}/fifo"), FileError)
            await refused(ctx.write_file(f"{directory}/fifo", b"x"), FileError)
        assert (await ctx.stat(f"{directory}/fifo")).type == "other"


@check("Files whose size is not known before, as in /proc, are read whole.")
async def files_without_a_size(ctx: ExecutionContext) -> None:
    if not (await ctx.run_shell("test -r /proc/version", tty=False)).ok:
        return
    expected = (await ctx.run_shell("cat /proc/version", tty=False)).stdout
    assert (await ctx.read_file("/proc/version")).text == expected


@check("Directories are made, listed in order, walked, matched by patterns and removed.")
async def directories(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        await refused(ctx.mkdir(f"{directory}/a/b"), FileNotFound)
        await ctx.mkdir(f"{directory}/a/b", parents=True)
        await ctx.mkdir(f"{directory}/a/b", exist_ok=True)
        for name in ("z.txt", "a/y.txt", "a/b/x.txt", "a/.hidden.txt", "a/other"):
            await ctx.write_file(f"{directory}/{name}", b"12345")
        listed = await ctx.list_dir(directory)
        assert [(entry.name, entry.type) for entry in listed] == [("a", "dir"), ("z.txt", "file")], listed
        assert listed[1].size == 5, listed
        walked = [entry.name for entry in await ctx.walk(directory)]
        assert walked == ["a", "a/.hidden.txt", "a/b", "a/b/x.txt", "a/other", "a/y.txt", "z.txt"], walked
        assert await ctx.glob("*.txt", root=directory) == ["z.txt"]
        assert await ctx.glob("**/*.txt", root=directory) == ["a/b/x.txt", "a/y.txt", "z.txt"]
        assert await ctx.glob("a/[xy].t?t", root=directory) == ["a/y.txt"]
        await refused(ctx.remove(f"{directory}/a"), FileError)
        await ctx.remove(f"{directory}/a", recursive=True)
        await ctx.remove(f"{directory}/a", missing_ok=True)
        assert [entry.name for entry in await ctx.list_dir(directory)] == ["z.txt"]


@check("rename replaces a file only when asked to.")
async def renames(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        await ctx.write_file(f"{directory}/a", b"a")
        await ctx.write_file(f"{directory}/b", b"b")
        await refused(ctx.rename(f"{directory}/a", f"{directory}/b"), FileExists)
        assert (await ctx.read_file(f"{directory}/b")).data == b"b"
        await ctx.rename(f"{directory}/a", f"{directory}/b", overwrite=True)
        assert [entry.name for entry in await ctx.list_dir(directory)] == ["b"]
        assert (await ctx.read_file(f"{directory}/b")).data == b"a"


@check("~ and relative paths mean the home of the target's user.")
async def home_is_the_targets(ctx: ExecutionContext) -> None:
    name = ".hx-check-home"
    await ctx.write_file(f"~/{name}", b"x")
    try:
        assert (await ctx.read_file(name)).data == b"x"
        assert (await ctx.stat(f"~/{name}")).size == 1
        assert (await ctx.read_file(f"{ctx.capabilities.home}/{name}")).data == b"x"
    finally:
        await ctx.remove(f"~/{name}")


@check("Files are copied both ways exactly, with progress that ends at the size.")
async def uploads_and_downloads(ctx: ExecutionContext) -> None:
    data = random.Random(3).randbytes(3_000_000)
    steps: list[int] = []
    with tempfile.TemporaryDirectory() as here:
        source, copy = Path(here, "source"), Path(here, "copy")
        await anyio.Path(source).write_bytes(data)
        async with scratch(ctx) as directory:
            written = await ctx.upload(str(source), f"{directory}/f", progress=lambda done, whole: steps.append(done))
            assert (written.bytes_written, written.created) == (len(data), True), written
            assert steps == sorted(steps)
            assert steps[-1] == len(data), steps[-3:]
            assert await ctx.download(f"{directory}/f", str(copy)) == len(data)
            await refused(ctx.download(f"{directory}/none", str(copy)), FileNotFound)
            await refused(ctx.download(f"{directory}/f", str(copy), overwrite=False), FileExists)
        assert await anyio.Path(copy).read_bytes() == data


@check("A cancelled upload or write leaves the old file or all of the new one, and nothing else.")
async def cancelled_writes_leave_nothing(ctx: ExecutionContext) -> None:
    with tempfile.TemporaryDirectory() as here:
        source = Path(here, "source")
        await anyio.Path(source).write_bytes(bytes(LONG))
        async with scratch(ctx) as directory:
            await ctx.write_file(f"{directory}/f", b"old")
            await cancelled(partial(ctx.upload, str(source), f"{directory}/f"))
            await cancelled(partial(ctx.write_file, f"{directory}/f", bytes(LONG)))

            async def nothing_left() -> bool:
                return [entry.name for entry in await ctx.list_dir(directory)] == ["f"]

            await until(nothing_left, "only the file is there")
            assert (await ctx.stat(f"{directory}/f")).size in (3, LONG)


async def cancelled(write: Callable[..., Coroutine[Any, Any, object]]) -> None:
    """Start a write, and cancel it after its first bytes."""
    begun = anyio.Event()

    def progress(done: int, whole: int | None) -> None:
        begun.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(write, progress=progress))
        await begun.wait()
        tasks.cancel_scope.cancel()
