"""Other people's terminals, driven through their own interfaces; each in a throw-away environment of its own.

The environments live outside the repository, in ``$XDG_CACHE_HOME/harness-bench``. What cannot be installed is
reported in the table, and fails nothing.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from .model import Line
from .timing import Action
from .ttyd import TTYD, prepare_ttyd
from .world import World

__all__ = ["DRIVERS", "PEERS", "Peer", "Peers", "libtmux_pane"]

DRIVERS = Path(__file__).parent / "drivers"
INSTALL_TIMEOUT = 1200
RUN_TIMEOUT = 180
POLL = 0.05


@dataclass(frozen=True, slots=True)
class Peer:
    """A pinned package, the oldest Python that it takes, and what its line in the report is called."""

    name: str
    packages: tuple[str, ...]
    python: tuple[int, int]
    what: str

    @property
    def driver(self) -> Path:
        """The program that measures it and prints JSON."""
        return DRIVERS / f"{self.name.replace('-', '_')}.py"


PEERS = (
    Peer("swe-rex", ("swe-rex==1.4.0",), (3, 11), "SWE-ReX 1.4.0, bash session"),
    Peer(
        "openhands-tools",
        ("openhands-tools==1.49.1", "openhands-sdk==1.49.1"),
        (3, 12),
        "OpenHands tools 1.49.1, tmux terminal",
    ),
)


@dataclass
class Peers:
    """The environments, prepared before anything is measured. ``pythons`` maps a peer to its interpreter."""

    pythons: dict[str, Path] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    ttyd: Path | None = None
    """The program ttyd, which is no package of Python."""

    @classmethod
    def prepare(cls, home: Path, peers: Sequence[Peer]) -> Peers:
        """Install what is not there yet; what cannot be is remembered with the reason."""
        found = cls()
        for peer in peers:
            try:
                found.pythons[peer.name] = _environment(home, peer)
            except (OSError, subprocess.SubprocessError, LookupError) as error:
                found.failures[peer.name] = f"could not be installed: {_why(error)}"
        return found

    def add_ttyd(self, home: Path) -> None:
        """Install ttyd as well."""
        try:
            self.ttyd = prepare_ttyd(home)
        except (OSError, LookupError) as error:
            self.failures[TTYD] = f"could not be installed: {_why(error)}"

    def lines(self, rounds: int) -> list[Line]:
        """Measure each of them."""
        return [self._line(peer, rounds) for peer in PEERS]

    def _line(self, peer: Peer, rounds: int) -> Line:
        if peer.name not in self.pythons:
            return Line(peer.what, (), group="bash", note=self.failures.get(peer.name, "not asked for"))
        try:
            with tempfile.TemporaryDirectory(prefix="hxb") as sockets:  # what they forget there goes with it
                done = subprocess.run(
                    [self.pythons[peer.name], str(peer.driver), str(rounds)],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=RUN_TIMEOUT,
                    text=True,
                    check=True,
                    env=os.environ | {"TMUX_TMPDIR": sockets},
                )
            values = json.loads(done.stdout.splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
            return Line(peer.what, (), group="bash", note=f"did not run: {_why(error)}")
        return Line(peer.what, tuple(values), group="bash")


def _environment(home: Path, peer: Peer) -> Path:
    place = home / re.sub(r"[^\w.-]", "-", "-".join(peer.packages))
    python, stamp = place / "bin" / "python", place / ".complete"
    if not stamp.exists():
        shutil.rmtree(place, ignore_errors=True)
        quiet = {"check": True, "capture_output": True, "timeout": INSTALL_TIMEOUT, "stdin": subprocess.DEVNULL}
        subprocess.run([_python(peer.python), "-m", "venv", str(place)], **quiet)  # type: ignore[call-overload]  # one dict for both
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages]
        subprocess.run(pip, **quiet)  # type: ignore[call-overload]  # one dict for both
        stamp.touch()
    return python


def _python(oldest: tuple[int, int]) -> str:
    """An interpreter that is new enough: this one, or one on PATH or in pyenv."""
    if sys.version_info[:2] >= oldest:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(oldest[1], 15)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for name in names:
        places = [path for path in [shutil.which(name)] if path]
        places += sorted(str(path) for path in pyenv.glob(f"{name.removeprefix('python')}.*/bin/python"))
        for place in places:
            if subprocess.run([place, "-c", ""], capture_output=True).returncode == 0:
                return place
    raise LookupError(f"no Python {oldest[0]}.{oldest[1]} or newer here")


def _why(error: Exception) -> str:
    said = getattr(error, "stderr", None) or ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    errors = [line for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return (errors[-1] if errors else str(error))[:200]


@contextmanager
def libtmux_pane(world: World) -> Iterator[Callable[[str], Action]]:
    """What most programs around tmux do: type the command with a mark after it, and look until the mark is there."""
    import libtmux

    server = libtmux.Server(socket_name=world.new_socket())
    session = server.new_session(window_command="/bin/bash", x=150, y=40)
    pane = session.active_window.active_pane
    assert pane is not None

    def command(text: str) -> Action:
        async def act() -> None:
            mark = secrets.token_hex(4)
            pane.send_keys(f"{text}; echo {mark[:4]}''{mark[4:]}=$?", enter=True)
            deadline = time.monotonic() + 30
            while not any(line.startswith(f"{mark}=0") for line in pane.capture_pane()):
                assert time.monotonic() < deadline
                await anyio.sleep(POLL)

        return act

    try:
        yield command
    finally:
        server.kill()
