"""100 MB to and from a server, beside scp and sftp over a master."""

from __future__ import annotations

import os
import shlex
from contextlib import AsyncExitStack
from pathlib import Path

from .model import Check, Line, Row, at_most, median_of
from .timing import Action, program, take_turns
from .world import Size, World

__all__ = ["files_row"]

MEGABYTE = 1_000_000
FACTOR = 1.3
SCP, SFTP = "scp over a master", "sftp -b over a master"
DOWN, UP = "from the server", "to the server"
DIFFERENCES = (
    "What scp does not do: all compute a SHA-256 here, write_file, upload and download wait until the data is on the "
    "disk, and read_file holds the content in memory. Both ends of the link share this machine's cores."
)


async def files_row(world: World, size: Size) -> Row:
    """Reading, writing, uploading and downloading 100 MB of random bytes."""
    count = size.pick(100, 4)
    here, there = world.directory / "payload", f"/tmp/hxb-{os.getpid()}-payload"
    data = os.urandom(count * MEGABYTE)
    here.write_bytes(data)
    Path(there).write_bytes(data)
    os.chmod(there, 0o644)
    try:
        lines = await _measure(world, size, data, here, there)
    finally:
        for path in Path("/tmp").glob(f"hxb-{os.getpid()}-*"):
            path.unlink()
    return Row("files", f"{count} MB over SSH", tuple(lines), tuple(_checks(lines, count)), (DIFFERENCES,))


EXACT = "the SHA-256 of the content is made, and a write is on the disk before it is answered; scp does neither"


def _checks(lines: list[Line], count: int) -> list[Check]:
    checks = []
    for group in (DOWN, UP):
        limit = FACTOR * median_of(lines, SCP, group)
        for line in lines:
            if line.group == group and line.what not in (SCP, SFTP):
                promise = f"{line.what}, {count} MB: at most {FACTOR} x scp"
                checks.append(at_most(promise, line.median, limit, reason=EXACT))
    return checks


async def _measure(world: World, size: Size, data: bytes, here: Path, there: str) -> list[Line]:
    rounds = size.pick(4, 1)
    out, copy = f"{there}-out", world.directory / "copy"
    down: dict[str, Action] = {}
    up: dict[str, Action] = {}
    async with AsyncExitStack() as stack:
        for engine in ("openssh", "asyncssh"):
            ctx = await stack.enter_async_context(world.ssh(engine, tmux=False))

            async def read(ctx=ctx) -> None:  # type: ignore[no-untyped-def]  # binds the loop's variable
                assert (await ctx.read_file(there)).data == data

            async def write(ctx=ctx, path=f"{out}-{engine}") -> None:  # type: ignore[no-untyped-def]  # as above
                assert (await ctx.write_file(path, data)).bytes_written == len(data)

            async def download(ctx=ctx) -> None:  # type: ignore[no-untyped-def]  # as above
                assert await ctx.download(there, str(copy)) == len(data)

            async def upload(ctx=ctx, path=f"{out}-{engine}-u") -> None:  # type: ignore[no-untyped-def]  # as above
                assert (await ctx.upload(str(here), path)).bytes_written == len(data)

            down |= {f"read_file, {engine}": read, f"download, {engine}": download}
            up |= {f"write_file, {engine}": write, f"upload, {engine}": upload}
        control = stack.enter_context(world.master())
        down |= _copies(world, control, remote=there, local=str(copy), to_server=False)
        up |= _copies(world, control, remote=f"{out}-scp", local=str(here), to_server=True)
        lines = await take_turns(down, rounds, group=DOWN, warm_up=1)
        assert copy.read_bytes() == data
        return lines + await take_turns(up, rounds, group=UP, warm_up=1)


def _copies(world: World, control: Path, *, remote: str, local: str, to_server: bool) -> dict[str, Action]:
    port = str(world.sshd.port)
    options = ["-q", "-F", str(world.sshd.ssh_config), "-o", f"ControlPath={control}", "-P", port]
    place = f"{world.user}@127.0.0.1"
    words = [local, f"{place}:{remote}"] if to_server else [f"{place}:{remote}", local]
    order = f"put {local} {remote}-sftp" if to_server else f"get {remote} {local}"
    by_hand = ["sftp", *options, "-b", "-", place]
    return {
        SCP: program(["scp", *options, *words]),
        SFTP: program(["sh", "-c", f"echo {shlex.quote(order)} | {shlex.join(by_hand)}"]),
    }
