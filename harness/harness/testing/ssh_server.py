"""An SSH server inside this process, on loopback, with temporary keys and real shells, for tests and demos.

It serves commands, shells and pseudo-terminals to any client (including OpenSSH with ControlMaster), but no sftp and no
forwarding. It runs as the current user and accepts only the key that it created.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Config
from ..errors import UnsupportedOperation
from ..extras import install_extra
from ..system.account import account_name, login_shell
from ..system.background_tasks import open_background_tasks
from ..system.private_files import write_new_file
from .delay import DelayProxy, delay_proxy

if TYPE_CHECKING:
    import asyncssh

    from ._sshd import Host

__all__ = ["EmbeddedSshServer", "embedded_ssh_server"]

LISTEN = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class EmbeddedSshServer:
    """A running server; ``port`` is the one to connect to (that of the proxy, if there is one)."""

    user: str
    port: int
    directory: Path
    """Holds ``id_ed25519``, ``known_hosts`` and an empty ``ssh_config``; removed with the server."""
    host: Host
    link: DelayProxy | None = None
    """The proxy in front of the server, if requested."""

    @property
    def target(self) -> str:
        """The target URL."""
        return f"ssh://{self.user}@{LISTEN}:{self.port}"

    @property
    def identity(self) -> str:
        """The private key that the server accepts."""
        return str(self.directory / "id_ed25519")

    @property
    def logins(self) -> int:
        """Number of successful logins."""
        return self.host.logins

    def config(self, **overrides: object) -> Config:
        """Return settings for this server that use nothing of the user's: no agent, known hosts or configuration."""
        base = Config(
            identity=self.identity,
            ssh_config=str(self.directory / "ssh_config"),
            ssh_options=(
                f"UserKnownHostsFile={self.directory / 'known_hosts'}",
                "GlobalKnownHostsFile=/dev/null",
                "StrictHostKeyChecking=yes",
                "IdentitiesOnly=yes",
                "IdentityAgent=none",
            ),
        )
        return replace(base, **overrides)  # type: ignore[arg-type]  # replace() checks the names, tests the values

    def disconnect_all(self) -> None:
        """Drop all connections, as on a server crash."""
        for connection in list(self.host.connections):
            connection.abort()


@asynccontextmanager
async def embedded_ssh_server(
    *,
    delay: float | None = None,
    shell: str = "",
    home: str | os.PathLike[str] = "",
    env: Mapping[str, str] | None = None,
    password: str = "",
    second_factor: str = "",
    max_sessions: int = 10,
) -> AsyncIterator[EmbeddedSshServer]:
    """Start a server; leaving the context stops it and kills all processes of its sessions.

    Args:
        delay: Delay in seconds per direction; a number, even 0, gives the server a ``link`` that can be cut.
        shell: The login shell; the default is the user's own.
        home: The directory of sessions; the default is an empty one, removed on exit.
        env: Extra environment of sessions.
        password: Accept this password in addition to the key.
        second_factor: Ask for the password and this code by keyboard-interactive.
        max_sessions: Maximum number of sessions per connection, as sshd's ``MaxSessions``.

    Yields:
        The running server.

    Raises:
        UnsupportedOperation: asyncssh is not installed.
    """
    try:
        from ._sshd import Account, Host
    except ImportError as error:
        raise UnsupportedOperation("the embedded SSH server needs asyncssh", hint=install_extra("asyncssh")) from error
    with tempfile.TemporaryDirectory(prefix="harness-sshd-") as directory:
        account = Account(
            user=account_name(),
            shell=shell or login_shell() or "/bin/sh",
            home=os.fspath(home) or _new_home(directory),
            env=dict(env or {}),
            password=password,
            second_factor=second_factor,
            max_sessions=max_sessions,
        )
        async with open_background_tasks() as tasks:
            host = Host(account, tasks)
            try:
                async with _listen(host, Path(directory), delay) as server:
                    yield server
            finally:
                await host.end()
                tasks.cancel()


def _new_home(directory: str) -> str:
    """Create an empty home, as programs in tests must neither read nor change the user's files."""
    home = os.path.join(directory, "home")
    os.mkdir(home, 0o700)
    return home


@asynccontextmanager
async def _listen(host: Host, directory: Path, delay: float | None) -> AsyncIterator[EmbeddedSshServer]:
    import asyncssh

    from ._sshd import SessionServer

    host_key = asyncssh.generate_private_key("ssh-ed25519")
    client_key = asyncssh.generate_private_key("ssh-ed25519")
    acceptor = await asyncssh.create_server(
        lambda: SessionServer(host),
        LISTEN,
        0,
        server_host_keys=[host_key],
        authorized_client_keys=asyncssh.import_authorized_keys(client_key.export_public_key().decode()),
        encoding=None,
        line_editor=False,
        allow_scp=False,
    )
    async with AsyncExitStack() as stack:
        stack.callback(acceptor.close)
        link = (
            await stack.enter_async_context(delay_proxy(LISTEN, acceptor.get_port(), delay))
            if delay is not None
            else None
        )
        port = link.port if link is not None else acceptor.get_port()
        _write_client_files(directory, client_key, host_key, port)
        server = EmbeddedSshServer(host.account.user, port, directory, host, link)
        stack.callback(server.disconnect_all)
        yield server


def _write_client_files(directory: Path, client_key: asyncssh.SSHKey, host_key: asyncssh.SSHKey, port: int) -> None:
    host_line = f"[{LISTEN}]:{port} {host_key.export_public_key().decode()}"
    write_new_file(directory / "id_ed25519", client_key.export_private_key())
    write_new_file(directory / "id_ed25519.pub", client_key.export_public_key())
    write_new_file(directory / "known_hosts", host_line.encode())
    write_new_file(directory / "ssh_config", b"")
