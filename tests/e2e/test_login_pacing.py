"""Logins at servers that throttle them: few at a time, further tries, and no second try of a refused login."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import asyncssh
import pytest
from tests.support.sshd import MakeSshd, SshServer

import harness
from harness.errors import ConnectError, HarnessError
from harness.login import use_prompter
from harness_backends.ssh import login_pacing

ENGINES = ("openssh", "asyncssh")
BOTH_ENGINES = pytest.mark.parametrize("engine", ENGINES)
NAMES = "web[1-30]"


def name_hosts(server: SshServer) -> None:
    """Write a client configuration in which web1 to web30 are names of one server."""
    names = " ".join(f"web{number}" for number in range(1, 31))
    server.ssh_config.write_text(
        f"Host {names}\n  HostName 127.0.0.1\n  Port {server.port}\n  HostKeyAlias [127.0.0.1]:{server.port}\n"
    )


async def unreached(server: SshServer, engine: str, **overrides: object) -> dict[str, HarnessError | None]:
    """The hosts of 30 that failed, with their errors."""
    config = server.config(ssh_engine=engine, **overrides)
    async with harness.fleet(NAMES, config=config) as fleet:
        outcomes = await fleet.gather("true")
    return {name: outcome.error for name, outcome in outcomes.items() if outcome.failed}


async def login_error(server: SshServer, engine: str, port: int, **overrides: object) -> HarnessError:
    """The error of a login at a port of this machine."""
    config = server.config(ssh_engine=engine, **overrides)
    with use_prompter(None), anyio.fail_after(30), pytest.raises(HarnessError) as caught:
        async with harness.connect(f"ssh://me@127.0.0.1:{port}", config=config):
            pass
    return caught.value


@asynccontextmanager
async def dropping_server() -> AsyncIterator[tuple[int, list[None]]]:
    """A server that drops each connection before its banner: its port, and an entry per connection."""
    seen: list[None] = []

    async def drop(stream: anyio.abc.SocketStream) -> None:
        seen.append(None)
        await stream.aclose()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, drop)
        yield listener.extra(anyio.abc.SocketAttribute.local_port), seen
        tasks.cancel_scope.cancel()


@BOTH_ENGINES
async def test_all_names_of_a_server_that_throttles_are_reached(make_sshd: MakeSshd, engine: str) -> None:
    server = make_sshd("MaxStartups 2:50:4")
    name_hosts(server)
    assert await unreached(server, engine) == {}
    assert any("MaxStartups" in line for line in server.log)


@BOTH_ENGINES
async def test_no_more_than_a_few_logins_at_a_time_reach_a_server(make_sshd: MakeSshd, engine: str) -> None:
    most = 2 * login_pacing.MAX_LOGINS  # sshd counts a login for a moment after it has ended
    server = make_sshd(f"MaxStartups {most}:100:{most}")
    name_hosts(server)
    assert await unreached(server, engine) == {}
    assert not any("MaxStartups" in line for line in server.log)


@BOTH_ENGINES
async def test_a_server_that_drops_every_connection_is_reported_with_the_tries(
    sshd: SshServer, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_pacing, "PAUSES", (0.01, 0.01, 0.01))
    async with dropping_server() as (port, seen):
        error = await login_error(sshd, engine, port)
    assert type(error) is ConnectError
    assert "closed" in error.message
    assert "(4 tries)" in error.message
    assert "MaxStartups" in error.hint
    assert len(seen) == 4


@BOTH_ENGINES
async def test_the_connect_timeout_limits_the_pauses_between_tries(
    sshd: SshServer, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_pacing, "PAUSES", (60.0,))
    async with dropping_server() as (port, seen):
        error = await login_error(sshd, engine, port)
    assert "tries" not in error.message
    assert len(seen) == 1


class ClosingServer(asyncssh.SSHServer):
    """Ends the connection when it sees an authentication."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        self._seen.append(username)
        self._connection.abort()
        return True


@BOTH_ENGINES
async def test_a_login_that_the_server_ends_during_authentication_is_not_repeated(sshd: SshServer, engine: str) -> None:
    key = asyncssh.read_private_key(str(sshd.directory / "host_key"))
    seen: list[str] = []
    async with asyncssh.listen(
        "127.0.0.1", 0, server_host_keys=[key], server_factory=lambda: ClosingServer(seen)
    ) as server:
        port = server.get_port()
        public = " ".join((sshd.directory / "host_key.pub").read_text().split()[:2])
        sshd.known_hosts.write_text(f"[127.0.0.1]:{port} {public}\n")
        error = await login_error(sshd, engine, port)
    assert isinstance(error, ConnectError)
    assert seen == ["me"]
