"""A terminal context with a tmux server of its own, seen from outside as well.

``libtmux`` judges what is there. An :class:`Operator` is a person: a real tmux client, attached as ``harness attach``
does it, in a screen of its own that another tmux server draws.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import libtmux
import pytest
from tests.support.fish_home import let_fish_start_at_once
from tests.support.resources import skip_without_ssh_terminal
from tests.support.sshd import SshServer, master_pids, start_sshd

from harness import ExecutionContext, connect
from harness.config import Config

__all__ = ["Desk", "OpenDesk", "Operator", "desk", "everywhere", "open_desk", "until"]

PATIENCE = 30.0


async def until(condition: Callable[[], object], timeout: float = PATIENCE) -> None:
    """Return when a condition of the outside world, which cannot signal, has become true."""
    with anyio.fail_after(timeout):
        while not condition():  # noqa: ASYNC110  # nobody sets an event for it
            await anyio.sleep(0.02)


@dataclass(frozen=True)
class Operator:
    """A person at a terminal of ``width`` x ``height``."""

    server: libtmux.Server

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names for them."""
        self.server.cmd("send-keys", "--", *keys)

    def type(self, text: str) -> None:
        """Type text as it is."""
        self.server.cmd("send-keys", "-l", "--", text)

    @property
    def screen(self) -> str:
        """What the person sees."""
        return "\n".join(self.server.cmd("capture-pane", "-p").stdout)

    async def sees(self, text: str) -> None:
        """Wait until it is on their screen."""
        await until(lambda: text in self.screen)


@dataclass(frozen=True)
class Desk:
    """One context and its surroundings. ``home`` and ``state`` are directories of the target."""

    ctx: ExecutionContext
    tmux: libtmux.Server
    config: Config
    home: Path
    state: Path
    stack: AsyncExitStack

    def show(self, form: str, pane: str = "") -> str:
        """One of tmux's formats, for the default pane or another."""
        return "\n".join(self.tmux.cmd("display-message", "-p", "-t", pane or "=harness:main", form).stdout)

    async def operator(self, width: int = 60, height: int = 20, *, read_only: bool = False) -> Operator:
        """A person attaches."""
        if str(self.ctx.target).startswith("ssh"):
            skip_without_ssh_terminal()
        server = libtmux.Server(socket_name=f"op-{secrets.token_hex(4)}", config_file="/dev/null")
        argv = self.ctx.attach_command_read_only if read_only else self.ctx.attach_command
        clients = len(self.people())
        size = ("-x", str(width), "-y", str(height))
        server.cmd("new-session", "-d", *size, f"exec env -u TMUX TERM=screen-256color {shlex.join(argv)}")
        self.stack.callback(server.kill)
        await until(lambda: len(self.people()) > clients)
        return Operator(server)

    def people(self) -> list[str]:
        """The attached clients that are not control clients."""
        listed = self.tmux.cmd("list-clients", "-F", "#{client_control_mode} #{client_name}").stdout
        return [line[2:] for line in listed if line.startswith("0 ")]

    def processes(self, words: str) -> list[int]:
        """The processes of this desk whose command line is this."""
        return [pid for pid in _processes_of(self.home) if _command_line(pid) == words]

    async def open_gate(self, name: str = "gate") -> None:
        """Let a program go that reads the named pipe ``name`` in the home, once it does."""
        await until(lambda: self._open_gate(name))

    def _open_gate(self, name: str) -> bool:
        try:
            os.close(os.open(self.home / name, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody reads it yet
            return False
        return True


def _processes_of(home: Path) -> list[int]:
    mark = f"HOME={home}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
    return ""


OpenDesk = Callable[..., Awaitable[Desk]]


@asynccontextmanager
async def a_desk(sshd: SshServer | None, home: Path, settings: dict[str, Any]) -> AsyncIterator[Desk]:
    """A context here or behind the server; what is left of it afterwards is ended."""
    base = {"tmux_socket": f"hx-{secrets.token_hex(4)}", "shell": "/bin/bash", "cwd": str(home)} | settings
    config = sshd.config(**base) if sshd else Config(**base)
    state = home / ".local/state/harness" if sshd else Path(os.environ["XDG_STATE_HOME"], "harness")
    server = libtmux.Server(socket_name=config.tmux_socket)
    async with AsyncExitStack() as stack:
        if "tmux_socket" not in settings:
            stack.callback(_end_what_is_left, home)
        kill = ["tmux", "-L", config.tmux_socket, "kill-server"]
        if "tmux_socket" not in settings:
            stack.callback(subprocess.run, kill, capture_output=True, timeout=PATIENCE)
        target = sshd.target if sshd else "local:"
        ctx = await stack.enter_async_context(connect(target, tmux=True, config=config))
        yield Desk(ctx, server, config, home, state, stack)


def _end_masters(runtime: Path) -> None:
    for pid in master_pids(runtime):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _end_what_is_left(home: Path) -> None:
    """End the processes that were started in this desk's home and outlived its tmux server."""
    for pid in _processes_of(home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def open_desk(needs_tmux: None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenDesk]:
    """Opens desks: ``await open_desk("ssh", width=80)``. Each is closed after the test, the last one first."""
    async with AsyncExitStack() as stack:
        private = Path(tempfile.mkdtemp(prefix="hx", dir="/tmp"))
        private.chmod(0o711)
        stack.callback(shutil.rmtree, private, ignore_errors=True)
        for name, folder in (("HOME", "home"), ("XDG_STATE_HOME", "state"), ("XDG_RUNTIME_DIR", "run")):
            monkeypatch.setenv(name, str(private / folder))
            (private / folder).mkdir(mode=0o700)
        let_fish_start_at_once(private / "home")
        for name in ("TMUX", "ENV", "ZDOTDIR", "PROMPT_COMMAND", "SSH_AUTH_SOCK", "SSH_ASKPASS"):
            monkeypatch.delenv(name, raising=False)
        stack.callback(_end_masters, private / "run")

        async def opener(where: str = "local", rc: dict[str, str] | None = None, **settings: Any) -> Desk:
            sshd = start_sshd(private / secrets.token_hex(2)) if where == "ssh" else None
            if sshd:
                stack.callback(sshd.stop)
            home = sshd.home if sshd else private / "home"
            for name, text in (rc or {}).items():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                (home / name).write_text(text)
            return await stack.enter_async_context(a_desk(sshd, home, settings))

        yield opener


@pytest.fixture
async def desk(open_desk: OpenDesk, request: pytest.FixtureRequest) -> Desk:
    """A desk here, or where the test's parameter says: ``@everywhere``."""
    return await open_desk(getattr(request, "param", "local"))


everywhere = pytest.mark.parametrize("desk", ["local", "ssh"], indirect=True)
