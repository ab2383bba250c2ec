"""Every kind of place in which commands run: here and behind SSH, each with and without a terminal."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.fish_home import let_fish_start_at_once
from tests.support.sshd import SshServer, start_sshd

from harness import Config, ExecutionContext, connect

__all__ = ["PLACES", "Place", "open_place"]

PLACES = ("local", "local+bash", "local+dash", "ssh", "ssh+bash", "ssh+dash", "local+bash+plain")
"""With a shell's name there is a terminal, whose panes run it; ``plain`` is one without tmux's control mode."""


@dataclass(frozen=True)
class Place:
    """An open context, and how to open another one to the same target: another harness."""

    ctx: ExecutionContext
    target: str
    config: Config
    home: Path
    tmux: bool

    @asynccontextmanager
    async def again(self, **settings: Any) -> AsyncIterator[ExecutionContext]:
        """A second context to the same target, as another program has it."""
        async with connect(self.target, tmux=self.tmux, config=replace(self.config, **settings)) as ctx:
            yield ctx


@asynccontextmanager
async def open_place(name: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    """One of :data:`PLACES`, with a home and a state of its own; everything is ended afterwards."""
    where, shell, plain = (*name.split("+"), "", "")[:3]
    async with AsyncExitStack() as stack:
        private = Path(tempfile.mkdtemp(prefix="hx", dir="/tmp"))
        stack.callback(shutil.rmtree, private, ignore_errors=True)
        home = _own_home(private, monkeypatch)
        server: SshServer | None = None
        if where == "ssh":
            server = start_sshd(private / "sshd")
            stack.callback(server.stop)
            home = server.home
        base = {"tmux_socket": f"hx-{secrets.token_hex(4)}", "shell": f"/bin/{shell or 'sh'}", "cwd": str(home)}
        base |= {"control_mode": "never"} if plain else {}
        config = server.config(**base) if server else Config(**base)  # type: ignore[arg-type]  # texts, all of them
        if shell:
            kill = ["tmux", "-L", config.tmux_socket, "kill-server"]
            stack.callback(subprocess.run, kill, capture_output=True, timeout=20)
        target = server.target if server else "local:"
        ctx = await stack.enter_async_context(connect(target, tmux=bool(shell), config=config))
        yield Place(ctx, target, config, home, bool(shell))


def _own_home(private: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, folder in (("HOME", "home"), ("XDG_STATE_HOME", "state"), ("XDG_RUNTIME_DIR", "run")):
        (private / folder).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(private / folder))
    for name in ("TMUX", "ENV", "ZDOTDIR", "PROMPT_COMMAND", "SSH_AUTH_SOCK", "SSH_ASKPASS"):
        monkeypatch.delenv(name, raising=False)
    let_fish_start_at_once(private / "home")
    return private / "home"
