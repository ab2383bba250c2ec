"""A tmux server of an operator's own: nothing of harness is in it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from tests.support.desk import until
from tests.support.program import Program

__all__ = ["OperatorTmux", "operator_tmux"]


@dataclass
class OperatorTmux:
    """The server at ``socket``; in its first pane, a shell at which the operator works with ``harness``."""

    socket: Path
    program: Program
    shell: str = ""
    commands: int = 0

    def tmux(self, *words: str) -> str:
        """Run a tmux command, as the operator does, and return what it prints."""
        argv = ["tmux", "-u", "-S", str(self.socket), "-f", "/dev/null", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, env=self.program.environ)
        return done.stdout.rstrip("\n")

    def start(self) -> None:
        """Start the server, or another one at the same socket."""
        self.shell = self.open("bash --norc", new="new-session")

    def open(self, command: str, new: str = "new-window") -> str:
        """Open a window that runs a command, and return the id of its pane."""
        words = ["-x", "100", "-y", "20", "-s", "work"] if new == "new-session" else ["-t", "work:"]
        return self.tmux(new, "-d", *words, "-P", "-F", "#{pane_id}", command)

    def show(self, pane: str, form: str) -> str:
        """Return one of tmux's formats."""
        return self.tmux("display-message", "-p", "-t", pane, form)

    def screen(self, pane: str) -> str:
        """Return what a pane shows."""
        return self.tmux("capture-pane", "-p", "-J", "-t", pane)

    def press(self, pane: str, line: str) -> None:
        """Type a line and Enter, as the operator does."""
        self.tmux("send-keys", "-t", pane, "-l", line)
        self.tmux("send-keys", "-t", pane, "Enter")

    def environ(self, pane: str = "") -> dict[str, str]:
        """Return the variables by which a program in a pane knows its tmux."""
        server = self.show(pane or self.shell, "#{socket_path},#{pid},0")
        return {"TMUX": server, "TMUX_PANE": pane or self.shell}

    async def types(self, *words: str, pane: str = "") -> tuple[int, str]:
        """Type a command of harness at the shell of a pane; return its exit code and what it printed."""
        self.commands += 1
        out = self.program.home / f"out{self.commands}"
        self.press(pane or self.shell, f"{shlex.join([self.program.path, *words])} >{out} 2>&1; echo $? >{out}.code")
        code = Path(f"{out}.code")
        await until(lambda: code.exists() and code.read_text().endswith("\n"), timeout=30)
        return int(code.read_text()), await anyio.Path(out).read_text()


@contextmanager
def operator_tmux(program: Program) -> Iterator[OperatorTmux]:
    """Start an operator's tmux, and end it."""
    folder = Path(tempfile.mkdtemp(prefix="hx-own-"))  # short, as a socket's path must be
    opened = OperatorTmux(folder / "s", program)
    try:
        opened.start()
        yield opened
    finally:
        subprocess.run(["tmux", "-S", str(opened.socket), "kill-server"], capture_output=True, check=False)
        shutil.rmtree(folder)
