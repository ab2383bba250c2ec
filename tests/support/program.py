"""The installed ``harness`` program, run in a home of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Program", "program"]

TIMEOUT = 60.0


@dataclass
class Program:
    """Runs ``harness`` with ``home`` as its home and current directory. ``always`` is put before every command."""

    path: str
    home: Path
    environ: dict[str, str]
    always: tuple[str, ...] = ()

    def start(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        """Start it; the caller ends it."""
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        argv = [self.path, *self.always, *words]
        return subprocess.Popen(argv, cwd=self.home, env=self.environ, **(streams | more))

    def run(self, *words: str, stdin: bytes | None = None, **variables: str) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        return subprocess.run(
            [self.path, *self.always, *words],
            cwd=self.home,
            env=self.environ | variables,
            input=stdin if stdin is not None else b"",
            capture_output=True,
            timeout=TIMEOUT,
        )


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program, in an empty home."""
    path = shutil.which("harness", path=os.path.dirname(sys.executable))
    assert path is not None, "install the project first: pip install -e ."
    home = tmp_path / "home"
    home.mkdir()
    private = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HARNESS_", "TMUX", "NO_COLOR"))}
    return Program(path, home, kept | private | {"TERM": "xterm-256color"})
