"""A real OpenSSH server per test: own keys, own port on loopback, a client that never sees the developer's ``~/.ssh``.

Sessions of the current user have a throw-away ``HOME`` too (:attr:`SshServer.home`), so the developer's start-up files
do not run, and cannot be cut short.

``sshd`` is a running server; ``make_sshd`` starts others (``make_sshd("MaxSessions 1")``); ``make_user`` makes accounts
of the system, with a login shell and a password of their own, for the length of a test (needs root).
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.fish_home import let_fish_start_at_once

from harness.config import Config

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
START_TIMEOUT = 15.0
ATTEMPTS = 5


@dataclass
class SshServer:
    """One sshd. ``port`` stays the same over :meth:`restart`; ``log`` holds the lines it wrote."""

    directory: Path
    port: int
    options: tuple[str, ...] = ()
    user: str = field(default_factory=lambda: pwd.getpwuid(os.getuid()).pw_name)
    host: str = "127.0.0.1"
    log: list[str] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None
    _drain: threading.Thread | None = None

    @property
    def target(self) -> str:
        return f"ssh://{self.user}@{self.host}:{self.port}"

    @property
    def identity(self) -> Path:
        return self.directory / "client_key"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        """The client's configuration file: empty at first, and the test's to write."""
        return self.directory / "ssh_config"

    @property
    def home(self) -> Path:
        """``$HOME`` of the sessions of the current user (they still start in the real one)."""
        return self.directory / "home"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def config(self, **overrides: Any) -> Config:
        """Settings of a client that trusts this server and may log in to it by key."""
        base = Config(
            ssh_config=str(self.ssh_config),
            ssh_options=self.client_options,
            identity=str(self.identity),
            control_persist=20.0,
        )
        return replace(base, **overrides)

    @property
    def client_options(self) -> tuple[str, ...]:
        return (
            f"UserKnownHostsFile={self.known_hosts}",
            "GlobalKnownHostsFile=/dev/null",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
        )

    def ssh_argv(self, *arguments: str) -> list[str]:
        """The same client by hand: ``ssh ARGUMENTS`` with this server's options."""
        options = [word for option in self.client_options for word in ("-o", option)]
        return ["ssh", "-F", str(self.ssh_config), "-i", str(self.identity), *options, "-p", str(self.port), *arguments]

    def start(self) -> None:
        """Start the server and wait until it listens."""
        process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(self.directory / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stderr is not None
        missing = 1 + sum(option.startswith("Port ") for option in self.options)
        for line in process.stderr:
            self.log.append(line)
            missing -= "Server listening" in line
            if not missing or "Bind to port" in line:  # sshd continues without a port that another program has
                break
        if missing:
            process.kill()
            process.wait(START_TIMEOUT)
            process.stderr.close()
            raise ServerDidNotStart("".join(self.log[-5:]))
        self._process = process
        self._drain = threading.Thread(target=self._read_log, args=(process,), daemon=True)
        self._drain.start()

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr, contextlib.suppress(ValueError):
            self.log.extend(process.stderr)

    def stop(self) -> None:
        """End the server and every session of it, as a reboot would."""
        process, self._process = self._process, None
        if process is None:
            return
        pids = self._descendants(process.pid)
        process.terminate()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(START_TIMEOUT)
        if self._drain is not None:
            self._drain.join(START_TIMEOUT)

    def restart(self) -> None:
        """Stop, then start again on the same port with the same keys."""
        self.stop()
        self.start()

    def new_host_key(self) -> None:
        """Replace the host key by another one; :meth:`restart` to use it."""
        for name in ("host_key", "host_key.pub"):
            (self.directory / name).unlink()
        _keygen(self.directory / "host_key")

    def session_pids(self) -> list[int]:
        """The sshd processes that serve connections (not the programs that they run): SIGSTOP them for a dead link."""
        assert self._process is not None
        return [pid for pid in self._descendants(self._process.pid) if _name(pid).startswith("sshd")]

    @staticmethod
    def _descendants(pid: int) -> list[int]:
        children = _children(pid)
        return [*children, *(below for child in children for below in SshServer._descendants(child))]


class ServerDidNotStart(Exception):
    """sshd does not listen on all of its ports; its last lines."""


def start_sshd(directory: Path, *options: str) -> SshServer:
    """Start a server that keeps everything in ``directory``; ``options`` are lines of its configuration."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("host_key", "client_key"):
        _keygen(directory / name)
    (directory / "authorized_keys").write_text((directory / "client_key.pub").read_text())
    (directory / "ssh_config").touch()
    (directory / "home").mkdir(mode=0o700, exist_ok=True)
    let_fish_start_at_once(directory / "home")
    for attempt in range(ATTEMPTS):
        server = SshServer(directory, free_port(), options)
        _write_server_files(server)
        try:
            server.start()
            return server
        except ServerDidNotStart:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _write_server_files(server: SshServer) -> None:
    directory = server.directory
    matches = [number for number, option in enumerate(server.options) if option.startswith("Match ")]
    first_match = matches[0] if matches else len(server.options)
    lines = [
        *server.options[:first_match],  # first, because sshd takes the first value of a keyword
        f"Port {server.port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {directory}/host_key",
        f"AuthorizedKeysFile {directory}/authorized_keys",
        f"PidFile {directory}/sshd.pid",
        "StrictModes no",
        "UsePAM no",
        "PermitRootLogin yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "AcceptEnv LANG LC_*",
        "PrintMotd no",
        "PrintLastLog no",
        "UseDNS no",
        *(
            [] if any(line.startswith("MaxStartups") for line in server.options) else ["MaxStartups 1000"]
        ),  # last one wins
        *(["PerSourcePenalties no"] if _openssh_version() >= (9, 8) else []),
        *server.options[first_match:],  # a Match block lasts until the next
        f"Match User {server.user}",
        f"  SetEnv HOME={server.home}",
    ]
    (directory / "sshd_config").write_text("\n".join(lines) + "\n")
    key = " ".join((directory / "host_key.pub").read_text().split()[:2])
    (directory / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {key}\n")


def _openssh_version() -> tuple[int, int]:
    text = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr
    found = re.search(r"OpenSSH_(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _keygen(path: Path, passphrase: str = "") -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "throw-away", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


@functools.cache
def _ports() -> Iterator[int]:
    """Ports below those that Linux gives to connections; of 16 workers of pytest-xdist, no two have one in common."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 16
    ports = range(15_000 + worker, 32_000, 16)
    first = secrets.randbelow(len(ports))
    return itertools.cycle([*ports[first:], *ports[:first]])


def free_port() -> int:
    """A port of loopback that nobody listened on a moment ago, and that stays free: nothing else is given it."""
    while True:
        port = next(_ports())
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _children(pid: int) -> list[int]:
    """Children of a process, oldest first; none when it is gone."""
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@dataclass(frozen=True)
class SystemUser:
    """An account of this system that lives as long as the test."""

    name: str
    home: Path
    password: str
    shell: str


@contextlib.contextmanager
def system_user(shell: str = "/bin/sh", password: str = "") -> Iterator[SystemUser]:
    """Make an account with an empty home; end its processes and remove it at the end."""
    name = f"hxt{uuid.uuid4().hex[:8]}"
    home = Path(tempfile.mkdtemp(prefix="hx-home-", dir="/tmp"))
    secret = password or uuid.uuid4().hex
    hash_command = ["openssl", "passwd", "-6", "-stdin"]
    hashed = subprocess.run(hash_command, input=secret, capture_output=True, text=True, check=True).stdout.strip()
    _change_accounts(
        *("useradd", "--no-create-home", "--no-user-group", "--gid", "nogroup", "--home-dir", str(home)),
        *("--shell", shell, "--password", hashed, name),
    )
    try:
        let_fish_start_at_once(home)
        for place in (home, *home.rglob("*")):
            shutil.chown(place, name, "nogroup")
        yield SystemUser(name, home, secret, shell)
    finally:
        _end_processes_of(pwd.getpwnam(name).pw_uid)
        _change_accounts("userdel", "--force", name)
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def accounts_locked() -> Iterator[None]:
    """Change the accounts of this machine alone: useradd and its like refuse to wait for each other."""
    with Path(tempfile.gettempdir(), "hx-accounts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _change_accounts(*command: str) -> None:
    with accounts_locked():
        subprocess.run(command, check=True, capture_output=True)


def _end_processes_of(uid: int) -> None:
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                os.kill(int(entry.name), signal.SIGKILL)


def master_pids(runtime: Path) -> list[int]:
    """The processes that listen on control sockets below a directory."""
    return [pid for path in runtime.glob("harness/*") if (pid := _listener(path)) is not None]


def _listener(path: Path) -> int | None:
    """The process id that a control master gives; the socket's own is of the ssh that logged in, and has gone."""
    if not path.is_socket():
        return None
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.settimeout(2)
        probe.connect(str(path))
        probe.sendall(struct.pack(">III", 8, 1, 4) + struct.pack(">III", 8, 0x10000004, 1))  # hello, alive?
        answer = b""
        while len(answer) < 28 and (data := probe.recv(28 - len(answer))):
            answer += data
        if len(answer) == 28:
            return int.from_bytes(answer[24:], "big")
    return None


@pytest.fixture
def ssh_runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private ``XDG_RUNTIME_DIR``: control sockets of this test, all ended afterwards. Short, as sockets need it."""
    directory = Path(tempfile.mkdtemp(prefix="hx", dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("SSH_ASKPASS", raising=False)
    yield directory
    for pid in master_pids(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)


MakeSshd = Callable[..., SshServer]
MakeUser = Callable[..., SystemUser]


@pytest.fixture
def make_sshd(needs_ssh: None, ssh_runtime: Path) -> Iterator[MakeSshd]:
    """Start servers with given lines of ``sshd_config``; all are ended after the test."""
    with sshd_maker() as make:
        yield make


@contextlib.contextmanager
def sshd_maker() -> Iterator[MakeSshd]:
    """See :func:`make_sshd`, which is for tests."""
    with contextlib.ExitStack() as stack:

        def make(*options: str) -> SshServer:
            directory = Path(tempfile.mkdtemp(prefix="hx-sshd-", dir="/tmp"))
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            server = start_sshd(directory, *options)
            stack.callback(server.stop)
            return server

        yield make


@pytest.fixture
def sshd(make_sshd: MakeSshd) -> SshServer:
    """A running server that takes the current user's throw-away key."""
    return make_sshd()


@pytest.fixture
def make_user(needs_root: None) -> Iterator[MakeUser]:
    """Make accounts of this system: ``make_user(shell="/usr/bin/fish", password="...")``."""
    with contextlib.ExitStack() as stack:
        yield lambda shell="/bin/sh", password="": stack.enter_context(system_user(shell, password))
