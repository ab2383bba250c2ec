"""Where the bench runs: a private home, a real sshd with an account whose home is empty, links, tmux servers."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
from tests.support.sshd import SshServer, master_pids, start_sshd, system_user

from harness import ExecutionContext, connect
from harness.config import Config

__all__ = ["DELAYS", "Link", "Size", "World", "a_world"]

ROOT = Path(__file__).parents[2]
DELAYS = (0, 20, 50, 100)
"""Added round-trip delays, in milliseconds."""
INTERPRETER = ("PYTHONDONTWRITEBYTECODE", "PYTHONDEVMODE", "PYTHONPROFILEIMPORTTIME", "PYTHONASYNCIODEBUG")
"""Variables that slow Python down: an installed program has compiled files."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. ``quick`` shows that the bench works; its numbers mean little."""

    quick: bool = False

    def pick(self, full: int, quick: int) -> int:
        """One of two numbers."""
        return quick if self.quick else full


@dataclass
class Link:
    """A delay proxy that runs elsewhere. ``port`` is the server's own when nothing is between."""

    port: int
    process: subprocess.Popen[str] | None = None

    def carried(self) -> dict[str, int]:
        """Bytes ``up`` and ``down`` so far."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        counts: dict[str, int] = json.loads(self.process.stdout.readline())
        return counts


@dataclass
class World:
    """What rows use. ``user`` is the account on the server; ``directory`` is free for a row's own files."""

    directory: Path
    runtime: Path
    sshd: SshServer
    user: str
    sockets: set[str] = field(default_factory=set)

    def target(self, port: int = 0) -> str:
        return f"ssh://{self.user}@127.0.0.1:{port or self.sshd.port}"

    def config(self, engine: str = "openssh", **overrides: object) -> Config:
        """Settings of a client of the server, with a tmux server of its own."""
        base = replace(self.sshd.config(ssh_engine=engine), tmux_socket=self.new_socket())
        return replace(base, control_persist=120.0, **overrides)  # type: ignore[arg-type]  # replace() checks the names

    def new_socket(self) -> str:
        """The name of a tmux server that is ended with this world."""
        name = f"hxb-{secrets.token_hex(4)}"
        self.sockets.add(name)
        return name

    def local(self, shell: str = "/bin/bash") -> AbstractAsyncContextManager[ExecutionContext]:
        """This machine, with tmux."""
        return connect("local:", tmux=True, config=Config(tmux_socket=self.new_socket(), shell=shell))

    def ssh(
        self, engine: str = "openssh", *, tmux: bool = True, port: int = 0
    ) -> AbstractAsyncContextManager[ExecutionContext]:
        """The server, with or without tmux there."""
        return connect(self.target(port), tmux=tmux, config=self.config(engine))

    def ssh_argv(self, port: int, *arguments: str) -> list[str]:
        """OpenSSH by hand, to a port."""
        server = replace(self.sshd, port=port)
        return server.ssh_argv(*arguments)

    @contextmanager
    def master(self, port: int = 0) -> Iterator[Path]:
        """An OpenSSH master by hand; yields its control socket."""
        path = self.runtime / f"m{secrets.token_hex(3)}"
        place = f"{self.user}@127.0.0.1"
        argv = self.ssh_argv(port or self.sshd.port, "-N", "-M", "-S", str(path), "-o", "ControlPersist=no", place)
        with _ended(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)) as process:
            while not path.is_socket():
                if process.poll() is not None:
                    raise RuntimeError(f"ssh -M ended with {process.returncode}")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.02)
            yield path

    @contextmanager
    def link(self, delay: float) -> Iterator[Link]:
        """A link to the server with ``delay`` milliseconds of round trip; the server's own port for 0."""
        if not delay:
            yield Link(self.sshd.port)
            return
        with self.counted_link(delay) as link:
            yield link

    @contextmanager
    def counted_link(self, delay: float = 0) -> Iterator[Link]:
        """A link that counts its bytes, whatever its delay."""
        argv = [sys.executable, "-m", "tests.bench.link", "127.0.0.1", str(self.sshd.port), str(delay / 2e3)]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        with _ended(process):
            assert process.stdout is not None
            port = int(process.stdout.readline())
            self._trust(port)
            yield Link(port, process)

    def _trust(self, port: int) -> None:
        key = " ".join((self.sshd.directory / "host_key.pub").read_text().split()[:2])
        with self.sshd.known_hosts.open("a") as file:
            file.write(f"[127.0.0.1]:{port} {key}\n")

    def end_tmux(self) -> None:
        """End the tmux servers, ours and the account's."""
        as_user = ["setpriv", f"--reuid={self.user}", "--clear-groups"] if os.getuid() == 0 else []
        for name in self.sockets:
            for prefix in ([], as_user):
                subprocess.run([*prefix, "tmux", "-L", name, "kill-server"], capture_output=True, timeout=20)


@contextmanager
def _ended(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process  # type: ignore[misc]  # the kind of its streams is the caller's business
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    """Make the place, and leave nothing of it."""
    with ExitStack() as stack:
        directory = _private(stack)
        runtime = _private(stack)
        _private_environment(stack, directory, runtime)
        home = directory / "home"
        options = [] if os.getuid() == 0 else [f"SetEnv HOME={home}"]
        server = start_sshd(directory / "sshd", *options, f"Subsystem sftp {_sftp_server()}")
        stack.callback(server.stop)
        user = stack.enter_context(system_user("/bin/bash")).name if os.getuid() == 0 else server.user
        world = World(directory, runtime, server, user)
        stack.callback(_end_masters, runtime)
        stack.callback(world.end_tmux)
        yield world
        await anyio.lowlevel.checkpoint()


def _sftp_server() -> str:
    """The program that distributions configure; sshd's own is the fallback."""
    places = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")
    return next((place for place in places if Path(place).exists()), "internal-sftp")


def _private(stack: ExitStack) -> Path:
    path = Path(tempfile.mkdtemp(prefix="hxb", dir="/tmp"))  # short: control sockets need short names
    path.chmod(0o755)
    stack.callback(shutil.rmtree, path, ignore_errors=True)
    return path


def _private_environment(stack: ExitStack, directory: Path, runtime: Path) -> None:
    home = directory / "home"
    home.mkdir(mode=0o700)
    for name in (".bashrc", ".zshrc"):  # zsh would ask how to set itself up
        (home / name).touch()
    runtime.chmod(0o700)
    before = dict(os.environ)
    stack.callback(os.environ.update, before)
    for name in list(os.environ):
        if name.startswith(("HARNESS_", "XDG_", "TMUX", "SSH_")) or name in INTERPRETER:
            del os.environ[name]
    os.environ.update({"HOME": str(home), "XDG_RUNTIME_DIR": str(runtime), "TERM": "xterm-256color"})


def _end_masters(runtime: Path) -> None:
    for pid in master_pids(runtime):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
