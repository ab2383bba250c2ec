"""Panes on this machine with a given shell and a given start-up file, in a home and a tmux server of their own."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from tests.support.fish_home import let_fish_start_at_once

from harness import ExecutionContext, ShellResult, connect
from harness.config import Config

PANE_SHELLS = ("bash", "zsh", "dash", "busybox", "mksh", "fish")
_START_UP = {"bash": ".bash_profile", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}
_KEEP_OUT = ("TMUX", "ENV", "ZDOTDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "PS1", "PROMPT_COMMAND", "BASH_ENV")


def shell_path(shell: str) -> str:
    """Where a shell is; its absence is an error, not a reason to skip."""
    path = shutil.which(shell)
    assert path, f"{shell} is not installed"
    return path


@dataclass(frozen=True)
class PaneShell:
    """A context whose default pane runs the shell."""

    shell: str
    home: Path
    socket: str
    ctx: ExecutionContext

    @property
    def nonces(self) -> list[str]:
        """The secrets of the panes."""
        return [path.read_text().strip() for path in self.home.glob("state/harness/panes/*/nonce")]

    async def run(self, command: str, timeout: float = 15) -> ShellResult:
        """One command in the pane."""
        return await self.ctx.run_shell(command, timeout=timeout)

    async def gives(self, command: str, out: str, code: int = 0) -> None:
        """Run a command that must complete with exactly this output and code."""
        result = await self.run(command)
        assert (result.status, result.exit_code, result.stdout) == ("completed", code, out), (command, result)

    async def screen(self) -> str:
        """Everything that the pane shows, scrollback included."""
        return await self.ctx.capture_pane(start="-", end="-")


@asynccontextmanager
async def open_pane_shell(
    shell: str, start_up: str = "", control_mode: Literal["auto", "never"] = "auto", **environment: str
) -> AsyncIterator[PaneShell]:
    """Open it, and end its tmux server after."""
    socket = f"pane-{secrets.token_hex(4)}"
    with (
        tempfile.TemporaryDirectory(prefix="pane", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        home = Path(folder)
        path = home / _START_UP.get(shell, ".profile")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(start_up)
        let_fish_start_at_once(home)
        for name in _KEEP_OUT:
            patch.delenv(name, raising=False)
        for name, value in {
            "HOME": folder,
            "XDG_STATE_HOME": f"{folder}/state",
            "TMUX_TMPDIR": folder,
            **environment,
        }.items():
            patch.setenv(name, value)
        try:
            config = Config(tmux_socket=socket, shell=shell_path(shell), prompt_timeout=10, control_mode=control_mode)
            async with connect("local:", tmux=True, config=config) as ctx:
                yield PaneShell(shell, home, socket, ctx)
        finally:
            subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True, timeout=20)
