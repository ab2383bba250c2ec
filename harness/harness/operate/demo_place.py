"""Where demos happen: an embedded SSH server with some logs, and settings that keep clear of the user's own."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp

import anyio

from ..config import Config
from ..context import ExecutionContext, connect
from ..errors import UnsupportedOperation
from ..testing.ssh_server import embedded_ssh_server

__all__ = ["DemoPlace", "Say", "open_place", "say_how_to_attach", "wait_for_a_signal"]

Say = Callable[[str], None]

CLOSE_TIMEOUT = 5.0
LOGS = {"access.log": 30_000, "app.log": 4_000, "cron.log": 200, "worker.log": 12_000}


@dataclass(frozen=True, slots=True)
class DemoPlace:
    """An open one. ``home`` is the home on the host, on this machine, and ``state`` a directory for harness's own."""

    ctx: ExecutionContext
    home: Path
    state: Path


@asynccontextmanager
async def open_place() -> AsyncIterator[DemoPlace]:
    """A host behind SSH, with a tmux session; both are gone at the end.

    Raises:
        UnsupportedOperation: a program or the ``asyncssh`` extra is missing; the hint says how to get it.
    """
    _check_programs()
    with _folder() as folder:
        _make_logs(folder / "var" / "log")
        (folder / "logrotate.conf").write_text("rotate weekly\nkeep 4\n")
        async with _server(folder) as (target, config), connect(target, tmux="demo", config=config) as ctx:
            yield DemoPlace(ctx, folder, folder / "state")


def say_how_to_attach(ctx: ExecutionContext, say: Say, *, keep: bool) -> None:
    """Say which command an operator types to watch."""
    command = shlex.join(ctx.attach_command)
    if keep:
        say("\nAttach from another terminal (leave with C-b d):\n")
        say(f"    {command}\n")
        say("The server and the session stay until you press C-c here.")
    else:
        say("\nAn operator would have watched with `harness attach`, which runs:\n")
        say(f"    {command}\n")
        say("(Try it: start the demo with --keep.)")


async def wait_for_a_signal() -> None:
    """Until a SIGINT, SIGTERM or SIGHUP."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            return


@asynccontextmanager
async def _server(home: Path) -> AsyncIterator[tuple[str, Config]]:
    """An embedded SSH server, and settings that keep everything about it apart from the user's own sessions."""
    socket = f"harness-demo-{os.getpid()}"
    state = {"XDG_STATE_HOME": str(home / "state")}
    async with embedded_ssh_server(shell="/bin/bash", home=home, env=state) as server:
        config = replace(server.config(), tmux_socket=socket, tmux_at="target", fresh_connection=True)
        try:
            yield server.target, config
        finally:
            await _kill_tmux(socket)


async def _kill_tmux(socket: str) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
        await anyio.run_process(["tmux", "-L", socket, "kill-server"], check=False)
    _remove_socket(socket)


def _remove_socket(name: str) -> None:
    """tmux leaves it behind when its server ends."""
    folder = Path(os.environ.get("TMUX_TMPDIR") or "/tmp", f"tmux-{os.getuid()}")  # noqa: S108  # tmux's own place
    (folder / name).unlink(missing_ok=True)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(mkdtemp(prefix="harness-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_logs(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, lines in LOGS.items():
        statuses = ("500" if number % 97 == 0 else "200" for number in range(lines))
        text = "".join(f"web1 request={n} status={status} path=/item/{n * 7919}\n" for n, status in enumerate(statuses))
        (folder / name).write_text(text)


def _check_programs() -> None:
    missing = [program for program in ("tmux", "ssh") if shutil.which(program) is None]
    if missing:
        raise UnsupportedOperation(
            f"the demo needs {' and '.join(missing)}", hint="on Debian or Ubuntu: apt-get install tmux openssh-client"
        )
