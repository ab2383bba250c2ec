"""The installed ``harness`` program, run in a home of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.preloaded import PreloadedPopen, can_preload
from tests.support.sshd import SshServer

__all__ = ["Program", "options_of", "over_ssh", "program", "there"]

TIMEOUT = 60.0


@dataclass
class Program:
    """Runs ``harness`` with ``home`` as its home and current directory. ``always`` is put before every command.

    A start forks a Python that has imported the program, unless ``real`` asks for ``exec`` of the installed program.
    """

    path: str
    home: Path
    environ: dict[str, str]
    always: tuple[str, ...] = ()
    real: bool = False

    def start(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        """Start it; the caller ends it."""
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        argv = [self.path, *self.always, *words]
        options: dict[str, Any] = {"cwd": self.home, "env": self.environ, **streams, **more}
        kind = subprocess.Popen if self.real or not can_preload(options) else PreloadedPopen
        return kind(argv, **options)

    def run(self, *words: str, stdin: bytes | None = None, **variables: str) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        with self.start(*words, stdin=subprocess.PIPE, env=self.environ | variables) as process:
            try:
                stdout, stderr = process.communicate(stdin or b"", timeout=TIMEOUT)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.fixture
def program(needs_process: None, tmp_path: Path, request: pytest.FixtureRequest) -> Program:
    """The program, in an empty home; ``pytest.mark.real_starts`` makes each start an ``exec``."""
    path = shutil.which("harness", path=os.path.dirname(sys.executable))
    assert path is not None, "install the project first: pip install -e ."
    home = tmp_path / "home"
    home.mkdir()
    private = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HARNESS_", "TMUX", "NO_COLOR"))}
    real = request.node.get_closest_marker("real_starts") is not None
    return Program(path, home, kept | private | {"TERM": "xterm-256color"}, real=real)


def options_of(server: SshServer) -> tuple[str, ...]:
    """The command line's options that make it a client of the server."""
    words = [word for option in server.client_options for word in ("-o", option)]
    return ("--ssh", server.target, "-F", str(server.ssh_config), "-i", str(server.identity), *words)


@pytest.fixture
def over_ssh(sshd: SshServer, request: pytest.FixtureRequest) -> Program:
    """The program with a host behind SSH as its target."""
    program: Program = request.getfixturevalue("program")  # after sshd, which changes the environment
    program.always = options_of(sshd)
    return program


@pytest.fixture(params=["local", "ssh"])
def there(needs_tmux: None, request: pytest.FixtureRequest) -> Iterator[Program]:
    """The program in a tmux server of its own, here and over SSH."""
    program: Program = request.getfixturevalue("program" if request.param == "local" else "over_ssh")
    socket = f"hx-{uuid.uuid4().hex[:8]}"
    program.environ["HARNESS_TMUX_SOCKET"] = socket
    yield program
    subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True)
