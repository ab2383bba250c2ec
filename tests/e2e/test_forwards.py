"""Forwards over a real sshd, with both engines: each kind with real bytes, over losses, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from tests.support.forwarding import (
    DigestServer,
    can_connect,
    connected,
    digest_server,
    exchange,
    exchange_over,
    listeners_of,
    through_socks,
    until,
)
from tests.support.sshd import MakeSshd, SshServer, free_port, master_pids

from harness.errors import ForwardError, UnsupportedOperation
from harness.forwards.forwarder import Forwards, open_forwards
from harness.forwards.specification import TcpAddress, parse_forward
from harness.target import Target

__all__ = ["digest_server"]

ENGINES = ("openssh", "asyncssh")
LOCALHOST = "127.0.0.1"


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def short_directory(needs_process: None) -> Iterator[Path]:
    """A directory whose path leaves room for the names of sockets."""
    directory = Path(tempfile.mkdtemp(prefix="hxf", dir="/tmp"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def forwarding(server: SshServer, engine: str, *specs: str) -> AsyncIterator[Forwards]:
    """Forward over a server; each specification begins with its option."""
    kinds = {"-L": "local", "-R": "remote", "-D": "dynamic"}
    parsed = [parse_forward(kinds[spec[:2]], spec[2:]) for spec in specs]  # type: ignore[arg-type]  # one of them
    with anyio.fail_after(60):
        async with open_forwards(Target.parse(server.target), server.config(ssh_engine=engine), parsed) as forwards:
            yield forwards


def port_of(forwards: Forwards, number: int = 0) -> int:
    listen = forwards.status.specs[number].listen
    assert isinstance(listen, TcpAddress)
    return listen.port


async def test_a_local_forward_carries_both_directions_to_their_ends(
    sshd: SshServer, engine: str, digest_server: DigestServer
) -> None:
    port = free_port()
    async with forwarding(sshd, engine, f"-L{port}:localhost:{digest_server.port}") as forwards:
        assert forwards.status.connected
        assert await exchange((LOCALHOST, port), 3 << 20)
        assert await exchange((LOCALHOST, port), 0)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(exchange, (LOCALHOST, port), 100_000)
        await until(lambda: digest_server.served == 22)
        await until(lambda: forwards.status.connections == 0)
    assert listeners_of(port) == 0


async def test_a_remote_forward_gets_a_free_port_and_carries_bytes(
    sshd: SshServer, engine: str, digest_server: DigestServer
) -> None:
    async with forwarding(sshd, engine, f"-R0:{LOCALHOST}:{digest_server.port}") as forwards:
        port = port_of(forwards)
        assert port > 0
        assert await exchange((LOCALHOST, port), 3 << 20)
        assert await exchange((LOCALHOST, port), 10)
    await until(lambda: listeners_of(port) == 0)


@pytest.mark.parametrize("kind", ["-D", "-R"])
@pytest.mark.parametrize("version", ["4", "4a", "5", "5-name"])
async def test_a_socks_proxy_connects_by_every_version(
    sshd: SshServer, engine: str, digest_server: DigestServer, kind: str, version: str
) -> None:
    number = struct.pack(">H", digest_server.port)
    requests = {
        "4": (b"\x04\x01" + number + bytes([127, 0, 0, 1]) + b"me\0", 8),
        "4a": (b"\x04\x01" + number + bytes([0, 0, 0, 1]) + b"\0localhost\0", 8),
        "5": (b"\x05\x01\x00\x05\x01\x00\x01" + bytes([127, 0, 0, 1]) + number, 12),
        "5-name": (b"\x05\x02\x01\x00\x05\x01\x00\x03\x09localhost" + number, 12),
    }
    request, answers = requests[version]

    def through(port: int) -> bool:
        with through_socks((LOCALHOST, port), request, answers) as connection:
            return exchange_over(connection, 500_000)

    async with forwarding(sshd, engine, f"{kind}{free_port()}") as forwards:
        assert await anyio.to_thread.run_sync(through, port_of(forwards))


async def test_a_socks_client_is_told_of_a_refusal(sshd: SshServer, engine: str) -> None:
    request = b"\x05\x01\x00\x05\x01\x00\x01" + bytes([127, 0, 0, 1]) + struct.pack(">H", free_port())

    def refused(port: int) -> bytes:
        with connected((LOCALHOST, port)) as connection:
            connection.sendall(request)
            got = b""
            while part := connection.recv(100):
                got += part
            return got

    async with forwarding(sshd, engine, f"-D{free_port()}") as forwards:
        assert (await anyio.to_thread.run_sync(refused, port_of(forwards)))[:4] == b"\x05\x00\x05\x05"
        assert "cannot connect to 127.0.0.1:" in forwards.status.note


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.0\r\n\r\n", b"\x05\x01\x02", b"\x04\x01\x00\x50\x7f\0\0\1" + b"a" * 999]
)
async def test_what_is_no_socks_client_is_refused_alone(
    sshd: SshServer, engine: str, digest_server: DigestServer, garbage: bytes
) -> None:
    good = b"\x04\x01" + struct.pack(">H", digest_server.port) + bytes([127, 0, 0, 1]) + b"\0"

    def send(port: int) -> bool:
        with connected((LOCALHOST, port)) as connection:
            connection.sendall(garbage)
            try:
                while connection.recv(100):
                    pass
            except ConnectionResetError:
                pass
        with through_socks((LOCALHOST, port), good, 8) as connection:
            return exchange_over(connection, 1000)

    async with forwarding(sshd, engine, f"-D{free_port()}") as forwards:
        assert await anyio.to_thread.run_sync(send, port_of(forwards))


async def test_unix_sockets_are_forwarded_both_ways(sshd: SshServer, engine: str, short_directory: Path) -> None:
    service, here, there = (str(short_directory / name) for name in ("service", "here", "there"))
    server = DigestServer(service)
    try:
        async with forwarding(sshd, engine, f"-L{here}:{service}", f"-R{there}:{service}"):
            assert os.stat(here).st_mode & 0o777 == 0o600
            assert await exchange(here)
            assert await exchange(here, 5)
            assert await exchange(there)
        await until(lambda: not can_connect(there))
        assert not os.path.exists(here)
    finally:
        server.close()


async def test_the_socket_of_a_killed_process_is_replaced(sshd: SshServer, short_directory: Path) -> None:
    path = str(short_directory / "here")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    async with forwarding(sshd, "openssh", f"-L{path}:localhost:{sshd.port}"):
        assert can_connect(path)
    (short_directory / "here").write_text("mine")
    with pytest.raises(ForwardError, match="in use"):
        async with forwarding(sshd, "openssh", f"-L{path}:localhost:{sshd.port}"):
            pass
    assert (short_directory / "here").read_text() == "mine"


async def test_a_port_in_use_here_is_an_error_before_the_login(
    sshd: SshServer, engine: str, digest_server: DigestServer
) -> None:
    first = free_port()
    with pytest.raises(ForwardError, match=f"cannot listen on localhost:{digest_server.port}: address already in use"):
        async with forwarding(sshd, engine, f"-L{first}:localhost:1", f"-L{digest_server.port}:localhost:1"):
            pass
    assert listeners_of(first) == 0
    assert not any("Accepted" in line for line in sshd.log)


async def test_a_port_in_use_there_is_an_error_and_nothing_is_half_open(
    sshd: SshServer, engine: str, digest_server: DigestServer
) -> None:
    here, there = free_port(), free_port()
    with pytest.raises(ForwardError, match=f"cannot listen on .*{digest_server.port}.*or does not"):
        async with forwarding(
            sshd,
            engine,
            f"-L{here}:localhost:1",
            f"-R{there}:localhost:1",
            f"-R{LOCALHOST}:{digest_server.port}:localhost:1",
        ):
            pass
    await until(lambda: not listeners_of(here) and not listeners_of(there))


async def test_a_refused_destination_ends_that_connection_alone(
    sshd: SshServer, engine: str, digest_server: DigestServer
) -> None:
    port, nothing = free_port(), free_port()
    other = free_port()
    specs = (f"-L{port}:localhost:{nothing}", f"-L{other}:localhost:{digest_server.port}")
    async with forwarding(sshd, engine, *specs) as forwards:
        with pytest.raises(ConnectionResetError):
            await exchange((LOCALHOST, port), 10)
        assert f"cannot connect to localhost:{nothing}" in forwards.status.note
        assert await exchange((LOCALHOST, other))
        assert forwards.status.note == ""


async def test_forwards_come_back_after_the_master_was_killed(
    sshd: SshServer, ssh_runtime: Path, digest_server: DigestServer
) -> None:
    port = free_port()
    specs = (f"-L{port}:localhost:{digest_server.port}", f"-R0:localhost:{digest_server.port}")
    async with forwarding(sshd, "openssh", *specs) as forwards:
        there = port_of(forwards, 1)
        (pid,) = master_pids(ssh_runtime)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not forwards.status.connected or master_pids(ssh_runtime) not in ([], [pid]))
        await until(lambda: forwards.status.connected)
        assert await exchange((LOCALHOST, port))
        assert port_of(forwards, 1) == there
        assert await exchange((LOCALHOST, there))
    await until(lambda: not listeners_of(port) and not listeners_of(there))
    assert not list(ssh_runtime.glob("harness/forward-*"))


async def test_forwards_come_back_after_sshd_was_restarted(
    sshd: SshServer, engine: str, digest_server: DigestServer
) -> None:
    port, there = free_port(), free_port()
    specs = (f"-L{port}:localhost:{digest_server.port}", f"-R{there}:localhost:{digest_server.port}")
    async with forwarding(sshd, engine, *specs) as forwards:
        before = forwards.status.since
        sshd.stop()
        await until(lambda: not forwards.status.connected)
        assert forwards.status.since > before
        assert listeners_of(port)
        sshd.start()
        assert await exchange((LOCALHOST, port))  # it waits for the connection
        await until(lambda: forwards.status.connected)
        assert await exchange((LOCALHOST, there))
    await until(lambda: not listeners_of(there))


async def test_a_port_that_the_target_still_holds_delays_only_its_forward(
    sshd: SshServer, engine: str, digest_server: DigestServer
) -> None:
    port, there = free_port(), free_port()
    specs = (f"-L{port}:localhost:{digest_server.port}", f"-R{LOCALHOST}:{there}:localhost:{digest_server.port}")
    async with forwarding(sshd, engine, *specs) as forwards:
        sshd.stop()
        await until(lambda: not forwards.status.connected)
        with socket.create_server((LOCALHOST, there)):
            sshd.start()
            await until(lambda: "cannot listen on" in forwards.status.note)
            assert await exchange((LOCALHOST, port))
            assert not forwards.status.connected
        await until(lambda: forwards.status.connected)
        assert await exchange((LOCALHOST, there))


async def test_two_remote_forwards_of_one_port_do_not_take_it_from_each_other(
    sshd: SshServer, engine: str, digest_server: DigestServer
) -> None:
    there = free_port()
    spec = f"-R{LOCALHOST}:{there}:localhost:{digest_server.port}"
    async with forwarding(sshd, engine, spec):
        with pytest.raises(ForwardError, match=f"{there}"):
            async with forwarding(sshd, engine, spec):
                pass
        assert await exchange((LOCALHOST, there))
    await until(lambda: not listeners_of(there))
    async with forwarding(sshd, engine, spec):
        assert await exchange((LOCALHOST, there))


async def test_connections_beyond_the_limit_wait(
    sshd: SshServer, digest_server: DigestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.forwards.forwarder.MAX_CONNECTIONS", 3)
    port = free_port()
    async with forwarding(sshd, "openssh", f"-L{port}:localhost:{digest_server.port}") as forwards:
        with ExitStack() as stack:
            clients = [stack.enter_context(connected((LOCALHOST, port))) for _ in range(5)]
            await until(lambda: forwards.status.connections == 3)
            for client in clients:
                assert await anyio.to_thread.run_sync(exchange_over, client, 1000)
        await until(lambda: forwards.status.connections == 0)


async def test_a_lost_connection_is_an_error_for_clients_and_not_the_end_of_the_data(
    sshd: SshServer, engine: str, ssh_runtime: Path
) -> None:
    port = free_port()
    with socket.create_server((LOCALHOST, 0)) as listener:
        async with forwarding(sshd, engine, f"-L{port}:localhost:{listener.getsockname()[1]}"):
            with connected((LOCALHOST, port)) as client:
                service, _ = await anyio.to_thread.run_sync(listener.accept)
                with service:
                    service.sendall(b"first half")
                    assert await anyio.to_thread.run_sync(client.recv, 100) == b"first half"
                    sshd.stop()
                    with pytest.raises(ConnectionResetError):
                        await anyio.to_thread.run_sync(client.recv, 100)


@pytest.mark.parametrize("kind", ["-L", "-R"])
async def test_an_early_answer_reaches_a_client_that_still_sends(sshd: SshServer, engine: str, kind: str) -> None:
    size = 3 << 20

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(1000)
            connection.sendall(bytes(size))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass

    def upload(port: int) -> int:
        with connected((LOCALHOST, port)) as client:
            client.settimeout(20)
            client.sendall(bytes(4 * size))
            count = 0
            while part := client.recv(1 << 16):
                count += len(part)
            return count

    with socket.create_server((LOCALHOST, 0)) as listener:
        spec = f"{kind}{free_port()}:{LOCALHOST}:{listener.getsockname()[1]}"
        async with forwarding(sshd, engine, spec) as forwards, anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, answer, listener)
            assert await anyio.to_thread.run_sync(upload, port_of(forwards)) == size


async def test_a_client_that_leaves_frees_its_connection(sshd: SshServer, engine: str) -> None:
    port = free_port()
    with socket.create_server((LOCALHOST, 0)) as listener:
        async with forwarding(sshd, engine, f"-L{port}:localhost:{listener.getsockname()[1]}") as forwards:
            with connected((LOCALHOST, port)) as client:
                service, _ = await anyio.to_thread.run_sync(listener.accept)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with service:
                service.settimeout(20)
                assert await anyio.to_thread.run_sync(service.recv, 100) == b""
                await until(lambda: forwards.status.connections == 0)


async def test_a_server_that_permits_no_forwards_is_named(make_sshd: MakeSshd, engine: str) -> None:
    server = make_sshd("AllowTcpForwarding no")
    with pytest.raises(ForwardError, match="does not permit it"):
        async with forwarding(server, engine, f"-R{free_port()}:localhost:1"):
            pass
    port = free_port()
    async with forwarding(server, engine, f"-L{port}:localhost:{server.port}") as forwards:
        with pytest.raises(ConnectionResetError):
            await exchange((LOCALHOST, port), 10)
        assert "does not permit it" in forwards.status.note


async def test_other_targets_are_refused(needs_process: None) -> None:
    for target in ("local:", "docker://app", "ssh://web1+docker://app"):
        with pytest.raises(UnsupportedOperation, match="only a host behind SSH"):
            async with open_forwards(Target.parse(target), SshServer(Path("/"), 1).config(), []):
                pass


async def test_a_socket_that_was_left_on_the_target_is_named(
    sshd: SshServer, engine: str, short_directory: Path
) -> None:
    path = short_directory / "there"
    path.write_text("mine")
    with pytest.raises(ForwardError, match=f"cannot listen on {path}.*StreamLocalBindUnlink"):
        async with forwarding(sshd, engine, f"-R{path}:localhost:1"):
            pass
    assert path.read_text() == "mine"
