"""Places to break: a state directory, a tmux server and, for SSH, a server and a link of a test's own."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
from tests.support.fish_home import let_fish_start_at_once
from tests.support.sshd import SshServer

from harness import ExecutionContext, ShellResult, Status, connect
from harness.config import Config
from harness.testing.delay import DelayProxy

TICK = 0.02


@dataclass
class Place:
    """Where harnesses run. ``directory`` is free for the test's own files."""

    directory: Path
    socket: str
    target: str = "local:"
    config: Config = field(default_factory=Config)
    sshd: SshServer | None = None
    proxy: DelayProxy | None = None

    @property
    def state(self) -> Path:
        """The state directory of the harnesses here."""
        home = self.sshd.home if self.sshd is not None else Path(os.environ["HOME"])
        return home / ".local/state/harness"

    def connect(self, *, tmux: bool = True, **overrides: Any) -> Any:
        """A harness, as an async context manager."""
        return connect(self.target, tmux=tmux, config=replace(self.config, tmux_socket=self.socket, **overrides))

    def path(self, name: str) -> Path:
        """A file of the test."""
        return self.directory / name

    # -- what is there

    def tmux(self, *arguments: str) -> str:
        """The answer of the tmux server; empty when there is none."""
        argv = ["tmux", "-L", self.socket, *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "TMUX"}
        return subprocess.run(argv, capture_output=True, text=True, timeout=20, env=environment).stdout.strip()

    def drainers(self) -> list[int]:
        """The always-attached readers."""
        return [int(pid) for flags, pid in self._clients() if "no-output" in flags]

    def clients(self) -> list[int]:
        """The control clients of harnesses."""
        return [int(pid) for flags, pid in self._clients() if "control-mode" in flags and "no-output" not in flags]

    def _clients(self) -> list[tuple[str, str]]:
        lines = self.tmux("list-clients", "-F", "#{client_flags} #{client_pid}").splitlines()
        return [(flags, pid) for flags, _, pid in (line.partition(" ") for line in lines)]

    def server_pid(self) -> int:
        """The tmux server."""
        return int(self.tmux("display-message", "-p", "#{pid}"))

    def busy(self) -> str:
        """Who holds the default pane."""
        return self.tmux("display-message", "-p", "-t", "=harness:", "#{@harness_busy}")

    def keyboard_is_free(self) -> bool:
        """The operator's keys reach the default pane."""
        return self.tmux("display-message", "-p", "-t", "=harness:", "#{pane_input_off}") == "0"

    def leftovers(self) -> list[str]:
        """Pipes and buffers that no harness needs any more."""
        pipes = [path.name for path in (self.state / "run").glob("*")]
        return pipes + self.tmux("list-buffers").splitlines()

    def end(self) -> None:
        """End the tmux server, whatever state it is in, and every program in its panes."""
        pid = self.tmux("display-message", "-p", "#{pid}")
        sessions = set(self.tmux("list-panes", "-a", "-F", "#{pane_pid}").split())
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.tmux("kill-server")
        if pid.isdecimal():
            kill(int(pid))
        for process in Path("/proc").glob("[0-9]*"):
            if session_of(int(process.name)) in sessions:
                kill(int(process.name))


def session_of(pid: int) -> str:
    """The session that a process belongs to; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[3]
    except OSError:
        return ""


@contextlib.contextmanager
def private_place(directory: Path) -> Iterator[Place]:
    """A place on this machine; ``HOME`` and the XDG directories are the caller's to set."""
    place = Place(directory, f"hx-{secrets.token_hex(4)}", config=Config(connect_timeout=10))
    try:
        yield place
    finally:
        place.end()


@contextlib.contextmanager
def private_home() -> Iterator[Path]:
    """A short-named directory: control sockets need short names."""
    home = Path(tempfile.mkdtemp(prefix="hxf", dir="/tmp"))
    let_fish_start_at_once(home)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal a process, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def alive(pid: int) -> bool:
    """The process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


async def until(condition: Callable[[], bool], what: str, within: float = 30.0) -> float:
    """Wait for something that cannot signal; returns the seconds that it took."""
    began = anyio.current_time()
    try:
        with anyio.fail_after(within):
            while not condition():  # noqa: ASYNC110  # another process makes it true
                await anyio.sleep(TICK)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what}") from None
    return anyio.current_time() - began


async def within(seconds: float, work: Awaitable[ShellResult]) -> ShellResult:
    """A result that must come in time."""
    with anyio.fail_after(seconds):
        return await work


async def usable(ctx: ExecutionContext, seconds: float = 30.0) -> None:
    """The context gives exact results."""
    word = secrets.token_hex(4)
    result = await within(seconds, ctx.run_shell(f"echo {word}", timeout=seconds))
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 0, f"{word}\n"), result


async def feed(pipe: Path, data: bytes, seconds: float = 20.0) -> None:
    """Write to a named pipe as soon as somebody reads it."""
    with anyio.fail_after(seconds):
        while True:
            try:
                descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                await anyio.sleep(TICK)
                continue
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
            return


def lines(path: Path) -> list[str]:
    """The lines of a file; none when there is no file."""
    return path.read_text().splitlines() if path.exists() else []


@asynccontextmanager
async def opened(place: Place, bound: float = 90.0, **overrides: Any) -> AsyncIterator[ExecutionContext]:
    """A harness, from its opening to its closing within ``bound`` seconds."""
    with anyio.fail_after(bound):
        async with place.connect(**overrides) as ctx:
            yield ctx
