"""Services that forwards lead to, and clients that go through them: real sockets and real bytes."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest

__all__ = [
    "DigestServer",
    "can_connect",
    "digest_server",
    "exchange",
    "listeners_of",
    "until",
]

Place = tuple[str, int] | str
PATIENCE = 30.0


class DigestServer:
    """Reads each connection to its end, answers with what it got and the digest of that, and closes."""

    def __init__(self, place: Place) -> None:
        family = socket.AF_UNIX if isinstance(place, str) else socket.AF_INET
        self.listener = socket.socket(family)
        self.listener.bind(place)
        self.listener.listen(64)
        self.served = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            data = b""
            while part := connection.recv(1 << 16):
                data += part
            connection.sendall(data + hashlib.sha256(data).digest())
            self.served += 1

    def close(self) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def digest_server(needs_process: None) -> Iterator[DigestServer]:
    """A server on a free port of loopback."""
    server = DigestServer(("127.0.0.1", 0))
    yield server
    server.close()


def connected(place: Place) -> socket.socket:
    if isinstance(place, tuple):
        return socket.create_connection(place, 10)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(10)
        connection.connect(place)
    except BaseException:
        connection.close()
        raise
    return connection


def can_connect(place: Place) -> bool:
    """Whether something listens there."""
    try:
        connected(place).close()
    except OSError:
        return False
    return True


@contextmanager
def through_socks(proxy: Place, request: bytes, answers: int) -> Iterator[socket.socket]:
    with connected(proxy) as connection:
        connection.settimeout(20)
        connection.sendall(request)
        got = b""
        while len(got) < answers:
            part = connection.recv(answers - len(got))
            assert part, got
            got += part
        yield connection


async def exchange(place: Place, size: int = 1 << 20) -> bool:
    """Send random bytes and the end of them, and check the answer to its end."""
    return await anyio.to_thread.run_sync(_exchange, place, size)


def _exchange(place: Place, size: int) -> bool:
    with connected(place) as connection:
        return exchange_over(connection, size)


def exchange_over(connection: socket.socket, size: int = 1 << 20) -> bool:
    """The same over a connection."""
    connection.settimeout(30)
    sent = os.urandom(size)
    connection.sendall(sent)
    connection.shutdown(socket.SHUT_WR)
    got = b""
    while part := connection.recv(1 << 16):
        got += part
    return got == sent + hashlib.sha256(sent).digest()


def listeners_of(port: int) -> int:
    """How many sockets of this machine listen on a TCP port."""
    count = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
        count += sum(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port for row in rows)
    return count


async def until(condition: object, timeout: float = PATIENCE) -> None:
    """Wait until a function returns something true."""
    assert callable(condition)
    with anyio.fail_after(timeout):
        while not await anyio.to_thread.run_sync(condition):  # noqa: ASYNC110  # nobody reports it
            await anyio.sleep(0.05)
