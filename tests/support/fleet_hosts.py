"""Several hosts that differ: each is an sshd with its own home directory and its own directory of tmux sockets."""

from __future__ import annotations

import getpass
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.program import Program
from tests.support.sshd import MakeSshd, SshServer

__all__ = ["FleetHosts", "fleet_hosts", "fleet_program", "open_fleet_hosts"]

SOCKET = "hx-fleet"
"""The name of the tmux socket; its directory differs by host."""


@dataclass(frozen=True)
class FleetHosts:
    """The hosts web1 to web3; nothing listens on ``down`` and ``down2``."""

    servers: dict[str, SshServer]
    directory: Path

    def home(self, name: str) -> Path:
        """The home directory of the sessions on a host."""
        return self.directory / name

    def tmux(self, name: str, *words: str) -> str:
        """Run a command of the tmux server of a host and return its output."""
        environment = {"TMUX_TMPDIR": str(self.home(name)), "PATH": "/usr/local/bin:/usr/bin:/bin"}
        argv = ["tmux", "-L", SOCKET, *words]
        return subprocess.run(argv, env=environment, capture_output=True, text=True).stdout

    @property
    def options(self) -> tuple[str, ...]:
        """The command line's options that make it a client of all hosts."""
        return ("-F", str(self.directory / "ssh_config"))


@pytest.fixture
def fleet_hosts(make_sshd: MakeSshd) -> Iterator[FleetHosts]:
    """Three running servers and the configuration of a client of all of them."""
    with open_fleet_hosts(make_sshd, ("web1", "web2", "web3")) as hosts:
        yield hosts


@contextmanager
def open_fleet_hosts(make_sshd: MakeSshd, names: Sequence[str]) -> Iterator[FleetHosts]:
    """Servers with these names, and the configuration of a client of all of them."""
    directory = Path(tempfile.mkdtemp(prefix="hx-fleet-", dir="/tmp"))  # short, for the paths of sockets
    servers = {}
    entries = ["Host down down2\n  HostName 127.0.0.1\n  Port 1\n"]
    for name in names:
        home = directory / name
        home.mkdir(mode=0o700)
        variables = f"HOME={home} TMUX_TMPDIR={home}"
        server = servers[name] = make_sshd(f"Match User {getpass.getuser()}", f"  SetEnv {variables}")
        entries.append(
            f"Host {name}\n  HostName 127.0.0.1\n  Port {server.port}\n  User {server.user}\n"
            f"  UserKnownHostsFile {server.known_hosts}\n  IdentityFile {server.identity}\n"
        )
    common = "Host *\n  GlobalKnownHostsFile /dev/null\n  IdentitiesOnly yes\n  IdentityAgent none\n"
    (directory / "ssh_config").write_text("".join(entries) + common)
    hosts = FleetHosts(servers, directory)
    yield hosts
    for socket in directory.glob("*/tmux-*/*"):
        subprocess.run(["tmux", "-S", str(socket), "kill-server"], capture_output=True)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def fleet_program(fleet_hosts: FleetHosts, request: pytest.FixtureRequest) -> Program:
    """The program as a client of :func:`fleet_hosts`."""
    program: Program = request.getfixturevalue("program")  # after the servers, which change the environment
    program.always = fleet_hosts.options
    program.environ["HARNESS_TMUX_SOCKET"] = SOCKET
    return program
