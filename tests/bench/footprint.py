"""What a harness weighs, alone and with many hosts, and what it costs to wait."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import Any

from harness.config import Config

from .model import Check, Line, Row, at_least, at_most
from .world import ROOT, Link, Size, World

__all__ = ["memory_row", "scale_row", "scale_tmux_row", "waiting_row"]


class Child:
    """A harness in another process; see :mod:`tests.bench.child`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def answer(self) -> dict[str, Any]:
        """What it says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the measured process ended with {self._process.wait(10)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def go_on(self) -> None:
        """Let it take its next step."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()


@contextmanager
def child(
    kind: str, target: str, config: Config, *, tmux: bool, count: int, commands: int = 0, sockets: Sequence[str] = ()
) -> Iterator[Child]:
    """Start one; it is told to end, and waited for."""
    argv = [sys.executable, "-m", "tests.bench.child", kind, str(count), str(commands)]
    order = {"target": target, "tmux": tmux, "config": asdict(config), "sockets": sockets}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            yield Child(process)
            process.stdin.close()
            process.wait(60)
        finally:
            process.kill()


# -- one idle context


async def memory_row(world: World, size: Size) -> Row:
    """A harness with one idle SSH + tmux context."""
    lines: list[Line] = []
    checks: list[Check] = []
    for engine in ("openssh", "asyncssh"):
        with child("idle", world.target(), world.config(engine), tmux=True, count=0) as one:
            found = one.answer()
            one.go_on()
            one.answer()
        resident, own = found["rss"] / 1024, found["uss"] / 1024
        group = f"one idle SSH + tmux context, {engine}"
        lines += [Line("resident", (resident,), "MB", group), Line("of its own", (own,), "MB", group)]
        checks.append(at_most(f"{group}: at most 60 MB", resident, 60, "MB"))
    notes = ("The OpenSSH engine's master is a process of its own, shared by all harnesses of the user; not counted.",)
    return Row("memory", "Memory", tuple(lines), tuple(checks), notes)


# -- waiting


async def waiting_row(world: World, size: Size) -> Row:
    """A silent command, waited for; by all kinds of context at the same time, since none of them does anything."""
    seconds = size.pick(60, 5)
    lines: list[Line] = []
    checks: list[Check] = []
    for kind, (carried, woken) in _wait(world, seconds).items():
        lines += [
            Line("bytes over the link", (carried,), "B", kind),
            Line("wake-ups of the harness", (woken,), "", kind),
        ]
        promise = f"sleep {seconds}, {kind}: less than 10 kB over the link"
        checks.append(at_most(promise, carried, 9_999, "B", LOOKS))
        limit = max(15, seconds)  # dispatch, result and keep-alives; anything that polls is far above
        promise = f"sleep {seconds}, {kind}: nothing polls (at most {limit} wake-ups)"
        checks.append(at_most(promise, woken, limit, ""))
    return Row("waiting", f"Waiting for a silent command, {seconds} s", tuple(lines), tuple(checks), (WAIT_NOTE,))


LOOKS = (
    "keep-alives are half of it; the rest is the dispatch through tmux and three looks at what runs, "
    "after 1, 5 and 30 s"
)
WAIT_NOTE = (
    "All kinds wait at the same time. "
    "Bytes are those of TCP's payload in both directions, dispatch, result and keep-alives (each 5 s) included. "
    "Wake-ups are the voluntary context switches of all threads."
)


def _wait(world: World, seconds: int) -> dict[str, tuple[float, float]]:
    """Bytes carried and wake-ups, by kind of context. All wait at once."""
    waiting: dict[str, tuple[Link, Child, int]] = {}
    with ExitStack() as stack:
        for engine in ("openssh", "asyncssh"):
            for tmux in (True, False):
                link = stack.enter_context(world.counted_link())
                config = replace(world.config(engine), dedicated_connection=True)
                one = stack.enter_context(child("idle", world.target(link.port), config, tmux=tmux, count=seconds))
                one.answer()
                waiting[f"{engine}{', tmux' if tmux else ''}"] = (link, one, sum(link.carried().values()))
        for _, one, _ in waiting.values():
            one.go_on()
        return {kind: _waited(*what) for kind, what in waiting.items()}


def _waited(link: Link, one: Child, before: int) -> tuple[float, float]:
    found = one.answer()
    assert found["exit_code"] == 0, found
    carried = sum(link.carried().values()) - before
    one.go_on()
    return float(carried), float(found["wake_ups"])


# -- many


BARE = "a bare asyncssh connection with one channel takes 31 KB of it, measured apart"


async def scale_row(world: World, size: Size) -> Row:
    """Many hosts in one process."""
    return _scale(world, size, tmux=False)


async def scale_tmux_row(world: World, size: Size) -> Row:
    """Many hosts in one process, each with a tmux server of its own."""
    return _scale(world, size, tmux=True)


def _scale(world: World, size: Size, *, tmux: bool) -> Row:
    count, commands = size.pick(200, 8), size.pick(20, 3)
    kind = f"{count} contexts, asyncssh{' + tmux' if tmux else ''}"
    config = replace(world.config("asyncssh"), login_timeout=300.0, connect_timeout=120.0)
    sockets = [world.new_socket() for _ in range(count)] if tmux else []
    with child("fleet", world.target(), config, tmux=tmux, count=count, commands=commands, sockets=sockets) as many:
        found = many.answer()
        many.go_on()
    rate = count * commands / found["elapsed"]
    each = (found["idle"]["uss"] - found["before"]["uss"]) / count
    share, per_command = found["cpu"] / found["elapsed"], found["cpu"] / count / commands * 1e3
    lines = (
        Line("commands/s in all", (rate,), "/s"),
        Line("one command, all at once", tuple(found["values"]), "ms"),
        Line("memory of each, idle", (each,), "KB"),
        Line("opening all", (found["opened"],), "s"),
    )
    reason = (
        f"the harness itself used {share:.0%} of one core; the server's side, "
        "where each command is a process in a session of its own, runs on the same machine"
    )
    checks = (
        at_least(f"{kind}: at least 2,000 commands/s in all", rate, 2000, "/s", reason),
        at_most(f"{kind}: at most 100 KB each", each, 100, "KB", BARE),
    )
    note = f"The harness used {share:.0%} of one core, {per_command:.2f} ms of it per command."
    return Row("scale-tmux" if tmux else "scale", f"Scale: {kind}", lines, checks, (note,))
