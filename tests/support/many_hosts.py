"""As many hosts as a test wants behind a few real sshd on loopback: each is a port with a home directory of its own."""

from __future__ import annotations

import getpass
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.support.sshd import SshServer, free_port, start_sshd

__all__ = ["ManyHosts", "start_many_hosts"]

PORTS = 16
"""Ports of one server; sshd listens on no more sockets."""


@dataclass(frozen=True)
class ManyHosts:
    """The hosts, by name, with the port of each; ``ssh_config`` is the configuration of a client of all of them."""

    directory: Path
    servers: tuple[SshServer, ...]
    ports: dict[str, int]
    user: str

    @property
    def ssh_config(self) -> Path:
        return self.directory / "ssh_config"

    @property
    def identity(self) -> Path:
        return self.servers[0].identity

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.ports)

    def home(self, name: str) -> Path:
        """``$HOME`` of the sessions on a host, and where its tmux has its socket."""
        return self.directory / "h" / name

    def add_entry(self, name: str, *lines: str) -> None:
        """Put an entry in front of the client's configuration, whose values win."""
        text = "".join(f"  {line}\n" for line in lines)
        self.ssh_config.write_text(f"Host {name}\n{text}" + self.ssh_config.read_text())

    def write_client_files(self) -> None:
        """Write the configuration, and the keys that the servers have now, and let one key in everywhere."""
        known = []
        for number, server in enumerate(self.servers):
            (server.directory / "authorized_keys").write_text(self.identity.with_suffix(".pub").read_text())
            key = " ".join((server.directory / "host_key.pub").read_text().split()[:2])
            here = self.names[number * (PORTS - 1) :][: PORTS - 1]
            known += [f"[127.0.0.1]:{self.ports[name]} {key}\n" for name in here]
        (self.directory / "known_hosts").write_text("".join(known))
        entries = "".join(f"Host {name}\n  Port {port}\n" for name, port in self.ports.items())
        self.ssh_config.write_text(
            f"{entries}Host *\n  HostName 127.0.0.1\n  User {self.user}\n  IdentityFile {self.identity}\n"
            f"  UserKnownHostsFile {self.directory}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
            "  IdentitiesOnly yes\n  IdentityAgent none\n"
        )


def start_many_hosts(
    stack: ExitStack, directory: Path, names: list[str], *, user: str = "", variables: dict[str, str] | None = None
) -> ManyHosts:
    """Start the servers of so many hosts, and write the configuration of a client.

    Args:
        stack: What ends the servers.
        directory: Where everything is kept; a short path, for the sockets of tmux.
        names: The hosts.
        user: The account that sessions have; the current user if empty.
        variables: Variables of the sessions of a host, by its name, in addition to its home.
    """
    account = user or getpass.getuser()
    servers: list[SshServer] = []
    ports: dict[str, int] = {}
    for start in range(0, len(names), PORTS - 1):
        here = {name: free_port() for name in names[start : start + PORTS - 1]}
        options = [f"Port {port}" for port in here.values()]
        for name, port in here.items():
            home = _make_home(directory / "h" / name, account)
            more = (variables or {}).get(name, "")
            options += [f"Match LocalPort {port}", f"  SetEnv HOME={home} TMUX_TMPDIR={home} {more}".rstrip()]
        server = start_sshd(directory / f"sshd{len(servers)}", *options)
        stack.callback(server.stop)
        servers.append(server)
        ports |= here
    hosts = ManyHosts(directory, tuple(servers), ports, account)
    hosts.write_client_files()
    return hosts


def _make_home(home: Path, account: str) -> Path:
    home.mkdir(parents=True, mode=0o700)
    if os.getuid() == 0:
        shutil.chown(home, account)
    return home
