"""What one command costs: in a local pane, over SSH in a pane, and over SSH without one, at several delays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import asyncssh

from harness import ExecutionContext

from .model import Check, Line, Row, at_most, median_of
from .peers import Peers, libtmux_pane
from .timing import Action, program, run_program, take_turns
from .world import DELAYS, Size, World

__all__ = ["local_row", "ssh_plain_row", "ssh_tmux_row"]

LOCAL_SHELLS = ("/bin/bash", "/bin/dash", "/usr/bin/zsh")
LOCAL = 'run_shell("true")'
POLL = "libtmux send_keys + capture_pane, polled each 50 ms"
MASTER = "ssh -S MASTER host true"
FLOOR = "one line to a held sh and back, over ssh -S MASTER"
ASYNCSSH = "asyncssh conn.run('true')"


def shell_true(ctx: ExecutionContext, command: str = "true") -> Action:
    """One command as an action; a result that is not right is an error."""

    async def act() -> None:
        result = await ctx.run_shell(command)
        assert result.exit_code == 0, result
        assert result.stdout == "", result

    return act


# -- local


WOKEN = "no program is started for it, but tmux and the harness wake each other five times"


async def local_row(world: World, size: Size, peers: Peers) -> Row:
    """``run_shell("true")`` on this machine, beside libtmux and the tmux terminals of two agent frameworks."""
    lines = await _local_shells(world, size, peers)
    lines += await _local_sleepers(world, size)
    checks = [
        at_most(f"run_shell in a local pane, {shell}: at most 1 ms", median_of(lines, LOCAL, shell), 1.0, reason=WOKEN)
        for shell in ("bash", "dash", "zsh")
        if any(line.group == shell for line in lines)
    ]
    return Row("local", "A command in a local pane", tuple(lines), tuple(checks))


async def _local_shells(world: World, size: Size, peers: Peers) -> list[Line]:
    lines: list[Line] = []
    for shell in LOCAL_SHELLS:
        if not Path(shell).exists():
            continue
        rounds = size.pick(300, 30)
        async with world.local(shell) as ctx:
            lines += await take_turns({LOCAL: shell_true(ctx)}, rounds, group=Path(shell).name, warm_up=10)
        if shell == LOCAL_SHELLS[0]:
            with libtmux_pane(world) as act:
                lines += await take_turns({POLL: act("true")}, size.pick(60, 5), group="bash")
            lines += await take_turns({"sh -c true, no terminal": program(["sh", "-c", "true"])}, rounds, group="bash")
            lines += peers.lines(size.pick(40, 5))
    return lines


async def _local_sleepers(world: World, size: Size) -> list[Line]:
    """What is added to commands that take a while: where polling pays."""
    ours: list[float] = []
    theirs: list[float] = []
    async with world.local() as ctx:
        with libtmux_pane(world) as act:
            for number in range(size.pick(30, 3)):
                seconds = 0.05 + 0.013 * (number % 16)
                for values, action in (
                    (ours, shell_true(ctx, f"sleep {seconds:.3f}")),
                    (theirs, act(f"sleep {seconds:.3f}")),
                ):
                    began = time.perf_counter()
                    await action()
                    values.append((time.perf_counter() - began - seconds) * 1e3)
    group = "added to sleep 0.05 to 0.25"
    return [Line("run_shell", tuple(ours), group=group), Line(POLL, tuple(theirs), group=group)]


# -- SSH


async def ssh_tmux_row(world: World, size: Size) -> Row:
    """Commands in a pane on the server."""
    return await _ssh_row(world, size, tmux=True)


async def ssh_plain_row(world: World, size: Size) -> Row:
    """Commands on the server, each in a fresh ``sh``."""
    return await _ssh_row(world, size, tmux=False)


async def _ssh_row(world: World, size: Size, *, tmux: bool) -> Row:
    lines: list[Line] = []
    checks: list[Check] = []
    kind = "SSH + tmux" if tmux else "plain SSH"
    for delay in DELAYS if not size.quick else DELAYS[:2]:
        here = await _at_delay(world, size, delay, tmux=tmux)
        lines += here
        checks += _checks(here, delay, kind, 2.0 if tmux else 1.0)
    name = "ssh-tmux" if tmux else "ssh-plain"
    return Row(name, f"A command over {kind}", tuple(lines), tuple(checks), (LINK_NOTE,))


LINK_NOTE = (
    "The delay is added by a proxy on loopback that both sides go through (none at 0 ms). One line to a held `sh` and "
    "back is what a round trip over this link costs at least, the proxy's own time included."
)


def _checks(lines: list[Line], delay: int, kind: str, allowed: float) -> Iterator[Check]:
    group = f"{delay} ms"
    for engine in ("openssh", "asyncssh"):
        ours = median_of(lines, f"run_shell, {engine}", group)
        promise = f"{kind}, {engine}: at most 1 round trip ({delay} ms) + {allowed:g} ms"
        floor = median_of(lines, FLOOR, group)
        reason = f"a bare line to a held sh and back takes {floor:.2f} ms here"
        yield at_most(promise, ours, delay + allowed, reason=reason)
        if kind == "plain SSH":
            yield at_most(f"{kind}, {engine}: never slower than {MASTER}", ours, median_of(lines, MASTER, group))


async def _at_delay(world: World, size: Size, delay: int, *, tmux: bool) -> list[Line]:
    rounds = size.pick(150 if not delay else 30, 5)
    async with AsyncExitStack() as stack:
        link = stack.enter_context(world.link(delay))
        sides: dict[str, Action] = {}
        for engine in ("openssh", "asyncssh"):
            ctx = await stack.enter_async_context(world.ssh(engine, tmux=tmux, port=link.port))
            sides[f"run_shell, {engine}"] = shell_true(ctx)
        control = stack.enter_context(world.master(link.port))
        place = f"{world.user}@127.0.0.1"
        by_master = world.ssh_argv(link.port, "-S", str(control), place)
        run_program([*by_master, "true"])
        sides[FLOOR] = stack.enter_context(_held_shell([*by_master, "sh"]))
        sides[MASTER] = program([*by_master, "true"])
        connection = await stack.enter_async_context(_asyncssh(world, link.port))
        sides[ASYNCSSH] = lambda: connection.run("true", check=True)
        return await take_turns(sides, rounds, group=f"{delay} ms", warm_up=5)


def _asyncssh(world: World, port: int) -> asyncssh.SSHClientConnection:
    return asyncssh.connect(  # type: ignore[return-value]  # an awaitable that is a context manager too
        "127.0.0.1",
        port,
        username=world.user,
        client_keys=[str(world.sshd.identity)],
        known_hosts=str(world.sshd.known_hosts),
        agent_path=None,
        config=None,
    )


@contextmanager
def _held_shell(argv: list[str]) -> Iterator[Action]:
    """A shell that answers lines; blocking, and therefore as fast as it gets."""
    import subprocess

    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        async def act() -> None:
            stdin.write(b"echo\n")
            assert stdout.read(1) == b"\n"

        yield act
        stdin.close()
        process.wait(10)
