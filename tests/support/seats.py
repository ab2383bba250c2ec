"""A person at the interactive prompt: the program in a real terminal, which a tmux server of the test's own draws.

``seat.bytes`` is what the program has written to its terminal, raw: what must never be obeyed is looked for there.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from tests.support.model_server import ModelServer, Script, model_server

__all__ = ["Seat", "Seats", "open_seats", "seats", "settings_for"]

PATIENCE = 60.0


def settings_for(server: ModelServer | None, more: str = "") -> str:
    """The settings file of a prompt whose model is that server."""
    if server is None:
        return more
    return f"""
[agent]
model = "scripted"
[models.scripted]
provider = "anthropic"
model = "claude-scripted"
base_url = "{server.anthropic_url}"
key = {{ env = "SCRIPTED_KEY" }}
context_window = 200000
{more}
"""


@dataclass
class Seat:
    """One terminal with the program in it. ``model`` is the server of its model."""

    socket: str
    home: Path
    model: ModelServer | None
    log: Path
    pid: int = 0
    seen: list[str] = field(default_factory=list)

    def tmux(self, *words: str) -> str:
        """A command of the server that draws the terminal."""
        done = subprocess.run(["tmux", "-L", self.socket, *words], capture_output=True, timeout=PATIENCE)
        return done.stdout.decode("utf-8", "replace")

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names for them."""
        self.tmux("send-keys", "--", *keys)

    def type(self, text: str) -> None:
        """Type text as it is."""
        self.tmux("send-keys", "-l", "--", text)

    def enter(self, text: str) -> None:
        """Type a line and press Enter."""
        self.type(text)
        self.press("Enter")

    def paste(self, text: str, *, bracketed: bool = True) -> None:
        """Paste a text, as a terminal does it."""
        path = self.home / "pasted"
        path.write_text(text)
        self.tmux("load-buffer", str(path))
        self.tmux("paste-buffer", *(["-p"] if bracketed else []))

    @property
    def screen(self) -> str:
        """What the person sees."""
        return self.tmux("capture-pane", "-p")

    @property
    def history(self) -> str:
        """What the person sees when they scroll back, with wrapped lines joined."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-")

    @property
    def bytes(self) -> bytes:
        """Everything that the program has written to the terminal."""
        return self.log.read_bytes()

    async def sees(self, *texts: str, timeout: float = PATIENCE) -> None:
        """Wait until all of them are in what the person can see."""
        await self.until(lambda: all(text in self.history for text in texts), " and ".join(map(repr, texts)), timeout)

    async def sees_again(self, text: str, count: int) -> None:
        """Wait until a text is there so many times."""
        await self.until(lambda: self.history.count(text) >= count, f"{text!r} {count} times")

    async def on_screen(self, *texts: str) -> None:
        """Wait until all of them are on the screen at once."""
        await self.until(lambda: all(text in self.screen for text in texts), " and ".join(map(repr, texts)))

    async def until(self, condition: Callable[[], object], what: str, timeout: float = PATIENCE) -> None:
        """Wait until it holds, and show the screen when it does not come."""
        with anyio.move_on_after(timeout):
            while not condition():  # noqa: ASYNC110  # a terminal sets no event
                await anyio.sleep(0.05)
            return
        raise AssertionError(f"never seen: {what}\n{self.history}")

    async def ended(self, *, drawn: bool = True) -> int:
        """Wait until the program has ended and all that it has written is drawn; returns its exit code.

        ``drawn=False`` is for a terminal that takes nothing. What still has the terminal open may write to it: what
        such a program writes is not waited for.
        """
        code = self.log.with_suffix(".code")
        await self.until(code.exists, "the end of the program")
        if drawn:
            with anyio.move_on_after(10):
                while self.tmux("display-message", "-p", "#{pane_dead}").strip() == "0":  # noqa: ASYNC110  # as above
                    await anyio.sleep(0.05)
        return int(code.read_text())

    def signal(self, name: str) -> None:
        """Send a signal to the program alone."""
        os.kill(self.pid, getattr(signal, name))


class Seats:
    """Opens seats; everything of theirs is gone after the test."""

    def __init__(self, stack: ExitStack, private: Path) -> None:
        self._stack = stack
        self.private = private
        self.home = private / "home"
        path = shutil.which("harness", path=os.path.dirname(sys.executable))
        assert path is not None, "install the project first: pip install -e ."
        self.program = path
        self.target_socket = f"hx-{secrets.token_hex(4)}"
        stack.callback(_end_what_is_left, self.home)
        stack.callback(subprocess.run, ["tmux", "-L", self.target_socket, "kill-server"], capture_output=True)

    @property
    def environment(self) -> dict[str, str]:
        """What the program finds."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "PYTHONPATH") if name in os.environ}
        return kept | {
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.private / "state"),
            "XDG_CONFIG_HOME": str(self.private / "config"),
            "XDG_RUNTIME_DIR": str(self.private / "run"),
            "HARNESS_TMUX_SOCKET": self.target_socket,
            "HARNESS_SHELL": "/bin/sh",
            "SCRIPTED_KEY": "a-key-nobody-may-see",
            "LC_ALL": "C.UTF-8",
        }

    def runs(self, words: str) -> bool:
        """Whether a process of this home has that command line."""
        return any(
            _is(entry, f"HOME={self.home}", words) for entry in Path("/proc").iterdir() if entry.name.isdecimal()
        )

    def take(
        self,
        *words: str,
        script: Script | None = None,
        settings: str = "",
        size: tuple[int, int] = (80, 24),
        term: str = "screen-256color",
        variables: dict[str, str] | None = None,
        redirect: str = "",
        program: str = "",
    ) -> Seat:
        """Start the program in a terminal, or another one.

        ``script`` is what its model answers; None configures no model.
        """
        model = self._stack.enter_context(model_server(script)) if script is not None else None
        config = self.private / "config/harness"
        config.mkdir(parents=True, exist_ok=True)
        (config / "config.toml").write_text(settings_for(model, settings))
        number = secrets.token_hex(4)
        seat = Seat(f"st-{number}", self.home, model, self.private / f"log-{number}.bytes")
        environment = {**self.environment, "TERM": term, **(variables or {})}
        assignments = [f"{name}={value}" for name, value in environment.items()]
        argv = shlex.join([*assignments, program or self.program, *words])
        seat.log.touch()
        pid, code = (seat.log.with_suffix(suffix) for suffix in (".pid", ".code"))
        start = self.private / f"start-{number}"
        begin = f'echo $$ > {pid}; read -r go < {start}.go; exec env -i "$@"'
        start.write_text(
            f"trap : INT\nsh -c '{begin}' sh {argv} {redirect}\necho $? > {code}.new; mv {code}.new {code}\n"
        )
        os.mkfifo(f"{start}.go")
        self._stack.callback(seat.tmux, "kill-server")
        width, height = size
        options = ("set-option", "-g", "remain-on-exit", "on", ";", "set-option", "-g", "history-limit", "20000", ";")
        session = ("new-session", "-d", "-x", str(width), "-y", str(height), "-c", str(self.home), f"sh {start}")
        seat.tmux("-f", "/dev/null", "start-server", ";", *options, *session)
        seat.tmux("pipe-pane", "-o", f"cat >> {seat.log}")
        Path(f"{start}.go").write_text("go\n")  # nothing is written before it is watched
        seat.pid = int(pid.read_text())
        return seat


def _is(process: Path, mark: str, words: str) -> bool:
    with suppress(OSError):
        line = (process / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
        return line == words and mark.encode() in (process / "environ").read_bytes().split(b"\0")
    return False


def _end_what_is_left(home: Path) -> None:
    """End the processes that were started in this home and outlived everything else."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if f"HOME={home}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)


@contextmanager
def open_seats() -> Iterator[Seats]:
    with ExitStack() as stack:
        private = Path(tempfile.mkdtemp(prefix="hx", dir="/tmp"))
        private.chmod(0o711)
        stack.callback(shutil.rmtree, private, ignore_errors=True)
        for folder in ("home", "state", "config", "run"):
            (private / folder).mkdir(mode=0o700)
        yield Seats(stack, private)


@pytest.fixture
async def seats(needs_tmux: None) -> AsyncIterator[Seats]:
    """Opens seats: ``seats.take("--tmux", script=[say("hello")])``."""
    with open_seats() as opened:
        yield opened
