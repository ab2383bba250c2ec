"""Large outputs, long sessions and full scrollbacks."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from harness import ExecutionContext

from .latency import shell_true
from .model import Check, Line, Row, at_most, cut_tails
from .timing import take_turns, time_once
from .world import Size, World

__all__ = ["flat_row", "throughput_row"]

ENOUGH = 16 << 20
PIPED = "tmux alone, pipe-pane to a file"
WATCHED = "tmux alone, with a control client into /dev/null as well"


async def throughput_row(world: World, size: Size) -> Row:
    """``seq 1 1000000`` through a pane, exact, beside what tmux itself needs for it."""
    lines: list[Line] = []
    checks: list[Check] = []
    count = size.pick(1_000_000, 50_000)
    rounds = size.pick(7, 2)
    expected = b"".join(b"%d\n" % number for number in range(1, count + 1))
    async with AsyncExitStack() as stack:
        local = await stack.enter_async_context(world.local())
        remote = await stack.enter_async_context(world.ssh())
        piped = stack.enter_context(_piped_pane(world, count, len(expected) + count))
        watched = stack.enter_context(_piped_pane(world, count, len(expected) + count, watched=True))
        sides = {
            "run_shell, local": _seq(local, count, expected),
            PIPED: piped,
            "run_shell, SSH + tmux, openssh": _seq(remote, count, expected),
            WATCHED: watched,
        }
        lines += await take_turns(sides, rounds, warm_up=1)
    limit = 1.5 * lines[1].median
    reason = f"tmux itself takes {lines[3].median / lines[1].median:.1f} x as long once a control client is attached"
    for line in (lines[0], lines[2]):
        name = f"seq 1 {count} exact, {line.what.removeprefix('run_shell, ')}"
        checks.append(at_most(f"{name}: at most 1.5 x tmux's own time", line.median, limit, reason=reason))
    return Row("throughput", f"seq 1 {count:,} through a pane", tuple(lines), tuple(checks), (THROUGHPUT_NOTE,))


THROUGHPUT_NOTE = "Every result was compared with the true output, byte by byte."


def _seq(ctx: ExecutionContext, count: int, expected: bytes) -> Callable[[], Awaitable[None]]:
    async def act() -> None:
        result = await ctx.run_shell(f"seq 1 {count}", max_output=ENOUGH)
        assert result.exit_code == 0, result.status
        assert result.stdout_bytes == expected, "the output is not exact"

    return act


@contextmanager
def _piped_pane(
    world: World, count: int, written: int, *, watched: bool = False
) -> Iterator[Callable[[], Awaitable[None]]]:
    """A pane of a server of its own; timed until everything is in the file."""
    socket = world.new_socket()
    log = world.directory / f"piped-{socket}"

    def tmux(*words: str) -> None:
        subprocess.run(["tmux", "-f", "/dev/null", "-L", socket, *words], check=True, capture_output=True, timeout=60)

    tmux("new-session", "-d", "-x", "150", "-y", "40", "/bin/bash", "--norc")
    tmux("set-option", "-g", "history-limit", "50000")
    tmux("pipe-pane", f"exec cat >>{log}")

    async def act() -> None:
        before = log.stat().st_size if log.exists() else 0
        tmux("send-keys", f"seq 1 {count}; tmux -L {socket} wait-for -S done", "Enter")
        tmux("wait-for", "done")
        _until_written(log, before + written)

    try:
        with _control_client(socket) if watched else contextlib.nullcontext():
            yield act
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            tmux("kill-server")


@contextmanager
def _control_client(socket: str) -> Iterator[None]:
    argv = ["tmux", "-L", socket, "-C", "attach-session", "-f", "ignore-size"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as client:
        yield
        assert client.stdin is not None
        client.stdin.close()
        client.wait(10)


def _until_written(log: Path, size: int) -> None:
    """Wait for cat, which is a few milliseconds behind; a file cannot signal."""
    while log.stat().st_size < size:
        time.sleep(0.001)


async def flat_row(world: World, size: Size) -> Row:
    """The ten-thousandth command, and a command in a pane whose scrollback is full."""
    count = size.pick(10_000, 300)
    values: list[float] = []
    async with world.local() as ctx:
        act = shell_true(ctx)
        for _ in range(10):
            await act()
        for _ in range(count):
            values.append(await time_once(act))
    first, last = cut_tails(values)
    tenth = count // 10
    lines = [
        Line(f"commands 10 to {tenth + 10:,}", tuple(values[:tenth]), group="many commands"),
        Line(f"commands {count - tenth + 10:,} to {count + 10:,}", tuple(values[-tenth:]), group="many commands"),
        *await _scrollback(world, size),
    ]
    checks = (
        at_most(f"command {count:,} costs what command 10 does (within 20 %)", last, first * 1.2),
        at_most("a full scrollback costs nothing (within 20 %)", lines[3].median, lines[2].median * 1.2),
    )
    return Row("flat", "Flat cost", tuple(lines), checks, (FLAT_NOTE,))


FLAT_NOTE = (
    "The first and the last commands are minutes apart: on a busy machine their ratio says how the load changed. The "
    "scrollbacks take turns."
)


async def _scrollback(world: World, size: Size) -> list[Line]:
    async with AsyncExitStack() as stack:
        empty = await stack.enter_async_context(world.local())
        full = await stack.enter_async_context(world.local())
        await full.run_shell("seq 1 60000")
        sides = {"empty scrollback": shell_true(empty), "full scrollback (50,000 lines)": shell_true(full)}
        return await take_turns(sides, size.pick(200, 20), group="scrollback")
