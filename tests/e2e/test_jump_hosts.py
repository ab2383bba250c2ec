"""Hosts behind a jump host: one connection carries them all, and the jump host's failures are named."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc
import pytest
from tests.support.forwarding import DigestServer, digest_server, exchange, until
from tests.support.sshd import MakeSshd, SshServer, free_port, master_pids
from tests.support.transports import run

import harness
from harness.config import Config
from harness.errors import AuthenticationError, ConfigError, ConnectError, HarnessError, HostKeyError
from harness.forwards.forwarder import open_forwards
from harness.forwards.specification import parse_forward
from harness.login import use_prompter
from harness.target import Target
from harness_backends.ssh import disconnect, open_transport

__all__ = ["digest_server"]

BOTH_ENGINES = pytest.mark.parametrize("engine", ["openssh", "asyncssh"])
NUMBER = 30


@dataclass
class Network:
    """A jump host ``bastion``, and web1 to web30 behind it, which are names of one server."""

    jump: SshServer
    inner: SshServer

    def write(self, *bastion: str, port: int = 0, web: str = "ProxyJump bastion") -> None:
        """Write the client configuration; ``bastion`` are further settings of the jump host."""
        names = " ".join(f"web{number}" for number in range(1, NUMBER + 1))
        lines = [
            *("Host bastion", f"HostName 127.0.0.1\nPort {self.jump.port}", *bastion),
            *(f"IdentityFile {self.jump.identity}", f"UserKnownHostsFile {self.jump.known_hosts}"),
            *(f"Host {names}", f"HostName 127.0.0.1\nPort {port or self.inner.port}", web),
            *(f"IdentityFile {self.inner.identity}", f"UserKnownHostsFile {self.inner.known_hosts}"),
            f"HostKeyAlias [127.0.0.1]:{self.inner.port}",
            *("Host *", f"User {self.jump.user}", "GlobalKnownHostsFile /dev/null"),
            *("IdentitiesOnly yes", "IdentityAgent none"),
        ]
        self.jump.ssh_config.write_text("\n".join(lines) + "\n")

    def config(self, engine: str = "openssh", **overrides: object) -> Config:
        return self.jump.config(identity="", ssh_options=(), ssh_engine=engine, **overrides)

    async def outcomes(self, engine: str, **overrides: object) -> dict[str, HarnessError | None]:
        """Run a command on all hosts and return their errors."""
        async with harness.fleet(f"web[1-{NUMBER}]", config=self.config(engine, **overrides)) as fleet:
            outcomes = await fleet.gather("true")
        return {name: outcome.error for name, outcome in outcomes.items()}

    async def error(self, engine: str, **overrides: object) -> HarnessError:
        """The error of a login to web1."""
        with use_prompter(None), pytest.raises(HarnessError) as caught:
            async with open_transport(Target.parse("ssh://web1"), self.config(engine, **overrides), None):
                pass
        return caught.value

    @property
    def jump_logins(self) -> int:
        return sum("Accepted publickey" in line for line in self.jump.log)

    def jump_connections(self) -> int:
        """Stop the jump host, which must log as VERBOSE, and return how many connections it has had."""
        self.jump.stop()
        return sum("Connection from" in line for line in self.jump.log)


MakeNetwork = Callable[..., Network]


@pytest.fixture
def make_network(make_sshd: MakeSshd) -> MakeNetwork:
    """Start a jump host with the lines of ``sshd_config``, and a server behind it."""

    def make(*jump: str, inner: str = "LogLevel INFO") -> Network:
        network = Network(make_sshd(*jump), make_sshd(inner))
        network.write()
        return network

    return make


@BOTH_ENGINES
async def test_one_login_at_the_jump_host_carries_all_hosts_behind_it(make_network: MakeNetwork, engine: str) -> None:
    network = make_network("MaxStartups 10:30:100")
    assert set((await network.outcomes(engine)).values()) == {None}
    assert network.jump_logins == 1


@BOTH_ENGINES
async def test_dedicated_connections_share_no_jump_host_and_are_paced(make_network: MakeNetwork, engine: str) -> None:
    network = make_network("MaxStartups 10:30:100")
    assert set((await network.outcomes(engine, dedicated_connection=True)).values()) == {None}
    assert network.jump_logins == NUMBER


@BOTH_ENGINES
async def test_hosts_that_throttle_are_reached_through_a_jump_host(make_network: MakeNetwork, engine: str) -> None:
    network = make_network(inner="MaxStartups 2:50:4")
    assert set((await network.outcomes(engine)).values()) == {None}
    assert any("MaxStartups" in line for line in network.inner.log)


@BOTH_ENGINES
async def test_a_jump_host_that_refuses_the_key_is_named_and_asked_once(make_network: MakeNetwork, engine: str) -> None:
    network = make_network("LogLevel VERBOSE")
    (network.jump.directory / "authorized_keys").write_text("")
    errors = list((await network.outcomes(engine)).values())
    assert all(isinstance(error, AuthenticationError) for error in errors)
    assert {error.message.partition(": ")[0] for error in errors if error} == {"jump host bastion"}
    assert all("the login was refused" in error.message for error in errors if error)
    assert network.jump_connections() == 1


@BOTH_ENGINES
async def test_a_jump_host_with_an_unknown_key_is_named(make_network: MakeNetwork, engine: str) -> None:
    network = make_network()
    network.jump.known_hosts.write_text("")
    error = await network.error(engine)
    assert isinstance(error, HostKeyError)
    assert error.message.startswith("jump host bastion: the host key is unknown: ssh-ed25519 SHA256:")
    assert error.target == "ssh://web1"


@BOTH_ENGINES
async def test_a_jump_host_that_is_down_is_named(make_network: MakeNetwork, engine: str) -> None:
    network = make_network()
    network.jump.stop()
    error = await network.error(engine)
    assert type(error) is ConnectError
    assert error.message.startswith("jump host bastion: ")
    assert "refused" in error.message


@BOTH_ENGINES
async def test_a_host_that_is_down_behind_a_jump_host_is_not_its_fault(make_network: MakeNetwork, engine: str) -> None:
    network = make_network()
    network.write(port=free_port())
    error = await network.error(engine)
    assert type(error) is ConnectError
    assert not error.message.startswith("jump host")
    assert "cannot connect" in error.message
    assert "MaxStartups" not in str(error)


@BOTH_ENGINES
async def test_a_refused_login_behind_a_jump_host_names_no_jump_host(make_network: MakeNetwork, engine: str) -> None:
    network = make_network()
    (network.inner.directory / "authorized_keys").write_text("")
    error = await network.error(engine)
    assert isinstance(error, AuthenticationError)
    assert "jump host" not in str(error)


@BOTH_ENGINES
async def test_a_lost_jump_host_is_logged_in_to_again(make_network: MakeNetwork, engine: str) -> None:
    network = make_network()
    with use_prompter(None):
        async with open_transport(Target.parse("ssh://web1"), network.config(engine), None) as transport:
            assert (await run(transport, "true"))[0] == 0
            network.jump.restart()
            while (await _status(transport)) != 0:
                pass
    assert network.jump_logins == 2


@BOTH_ENGINES
async def test_a_jump_host_that_is_lost_during_a_login_behind_it_is_named(
    make_network: MakeNetwork, engine: str
) -> None:
    network = make_network()

    async def stop_jump_host(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await anyio.to_thread.run_sync(network.jump.stop)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, stop_jump_host)
        network.write(port=listener.extra(anyio.abc.SocketAttribute.local_port))
        error = await network.error(engine)
        tasks.cancel_scope.cancel()
    assert type(error) is ConnectError
    assert error.message.startswith("jump host bastion: ")
    assert "the host is down" not in error.hint


async def _status(transport: harness.transport.Transport) -> int:
    try:
        return (await run(transport, "true"))[0]
    except HarnessError:
        return -1


# -- OpenSSH's client only


@BOTH_ENGINES
async def test_forwards_through_a_lost_jump_host_come_back(
    make_network: MakeNetwork, engine: str, digest_server: DigestServer
) -> None:
    network, here, there = make_network(), free_port(), free_port()
    specs = [
        parse_forward("local", f"{here}:localhost:{digest_server.port}"),
        parse_forward("remote", f"{there}:localhost:{digest_server.port}"),
    ]
    async with open_forwards(Target.parse("ssh://web1"), network.config(engine), specs) as forwards:
        assert await exchange(("127.0.0.1", here))
        network.jump.stop()
        await until(lambda: not forwards.status.connected)
        network.jump.start()
        assert await exchange(("127.0.0.1", here))
        await until(lambda: forwards.status.connected)
        assert await exchange(("127.0.0.1", there))


async def test_disconnect_ends_the_master_of_the_jump_host(make_network: MakeNetwork, ssh_runtime: Path) -> None:
    network = make_network()
    async with open_transport(Target.parse("ssh://web1"), network.config(), None):
        assert len(master_pids(ssh_runtime)) == 2
    assert len(await disconnect(network.config(), Target.parse("ssh://web1"))) == 1
    assert len(await disconnect(network.config(), Target.parse("ssh://bastion"))) == 1
    assert master_pids(ssh_runtime) == []


@pytest.fixture
def own_master(make_network: MakeNetwork) -> Iterator[Network]:
    """A network whose jump host has a running master of the user."""
    network = make_network()
    socket = network.jump.directory / "own"
    network.write("ControlMaster auto", f"ControlPath {socket}")
    ssh = ["ssh", "-F", str(network.jump.ssh_config)]
    subprocess.run([*ssh, "-f", "-N", "bastion"], check=True, stderr=subprocess.DEVNULL)
    yield network
    subprocess.run([*ssh, "-O", "exit", "bastion"], check=True, stderr=subprocess.DEVNULL)


async def test_the_users_own_master_of_the_jump_host_is_used(own_master: Network) -> None:
    (own_master.jump.directory / "authorized_keys").write_text("")  # no further login is possible
    assert set((await own_master.outcomes("openssh")).values()) == {None}
    assert own_master.jump_logins == 1


@BOTH_ENGINES
async def test_two_jump_hosts_are_passed(make_network: MakeNetwork, engine: str) -> None:
    network = make_network()
    network.write(web=f"ProxyJump {network.jump.user}@bastion:{network.jump.port},bastion")
    async with open_transport(Target.parse("ssh://web1"), network.config(engine), None) as transport:
        assert await run(transport, "echo", "in") == (0, b"in\n", b"")
    assert network.jump_logins == 2


async def test_a_jump_host_behind_itself_is_a_config_error(make_network: MakeNetwork) -> None:
    network = make_network()
    network.write("ProxyJump web1")
    assert isinstance(await network.error("openssh"), ConfigError)


async def test_a_proxy_command_that_fails_is_not_repeated(make_network: MakeNetwork) -> None:
    network = make_network("LogLevel VERBOSE")
    network.write(web=f"ProxyCommand ssh -F {network.jump.ssh_config} -W %h:%p bastion")
    (network.jump.directory / "authorized_keys").write_text("")
    error = await network.error("openssh")
    assert "proxy command" in error.message
    assert "ssh -v" in error.hint
    assert network.jump_connections() == 1
