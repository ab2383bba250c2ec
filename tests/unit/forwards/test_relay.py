"""Copying between the sides of a connection: ends are passed on one by one, and errors are no ends."""

from __future__ import annotations

import socket

import anyio
import pytest

from harness.errors import ConnectionLost
from harness.forwards.socks import SocksError, read_request
from harness.forwards.streams import BufferedStream, SocketStream, relay


def pairs() -> tuple[socket.socket, SocketStream, SocketStream, socket.socket]:
    """A client, the two sides that are relayed, and a server; the outer ones are blocking, with a timeout."""
    client, inner = socket.socketpair()
    other, server = socket.socketpair()
    for one in (client, server):
        one.settimeout(5)
    return client, SocketStream(inner), SocketStream(other), server


async def test_each_direction_ends_by_itself() -> None:
    client, inner, other, server = pairs()
    with client, server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay, inner, other)
            client.sendall(b"question")
            client.shutdown(socket.SHUT_WR)
            assert await anyio.to_thread.run_sync(server.recv, 100) == b"question"
            assert await anyio.to_thread.run_sync(server.recv, 100) == b""
            server.sendall(b"answer")
            assert await anyio.to_thread.run_sync(client.recv, 100) == b"answer"
            server.close()
            assert await anyio.to_thread.run_sync(client.recv, 100) == b""


async def test_a_lost_connection_ends_both_directions() -> None:
    client, inner, other, server = pairs()
    checks = 0

    async def lost() -> None:
        nonlocal checks
        checks += 1
        raise ConnectionLost("the connection was lost")

    other.check_end = lost
    with client, server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay, inner, other)
            server.close()
            assert await anyio.to_thread.run_sync(client.recv, 100) == b""
    assert checks == 1


async def test_bytes_that_the_program_in_between_has_not_taken_reset_the_client() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), 5)
        inner, _ = listener.accept()
    (reading, answer), (writing, question) = socket.socketpair(), socket.socketpair()
    with client, answer, question:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay, SocketStream(inner), SocketStream(reading, writing))
            client.sendall(b"question")
            client.shutdown(socket.SHUT_WR)
            question.settimeout(5)
            assert await anyio.to_thread.run_sync(question.recv, 3) == b"que"
            answer.close()
            question.close()
            with pytest.raises(ConnectionResetError):
                await anyio.to_thread.run_sync(client.recv, 100)


async def test_a_client_that_closes_nothing_is_reset_once_the_rest_cannot_be_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.forwards.streams.DISCARD_GRACE", 0.1)
    client, inner, other, server = pairs()
    with client, server, anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay, inner, other)
            server.close()
            assert await anyio.to_thread.run_sync(client.recv, 100) == b""
            client.sendall(b"late")


async def test_a_stream_is_closed_once() -> None:
    closed = []
    one, other = socket.socketpair()
    with other:
        stream = SocketStream(one, on_close=lambda: closed.append(1))
        stream.close()
        stream.close()
        stream.abort()
    assert closed == [1]


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"\x06", SocksError),
        (b"\x05\x01", EOFError),
        (b"\x05\x01\x02", SocksError),
        (b"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", SocksError),
        (b"\x05\x01\x00\x05\x01\x00\x09\x7f\x00\x00\x01\x00\x50", SocksError),
        (b"\x05\x01\x00\x05\x01\x00\x03\x00\x00\x50", SocksError),
        (b"\x05\x01\x00\x05\x01\x00\x03\x03a\nb\x00\x50", SocksError),
        (b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x00", SocksError),
        (b"\x04\x02\x00\x50\x7f\x00\x00\x01\x00", SocksError),
        (b"\x04\x01\x00\x50\x7f\x00\x00\x01" + b"a" * 300, SocksError),
        (b"", EOFError),
    ],
)
async def test_invalid_requests_of_socks_clients_are_refused(sent: bytes, error: type[Exception]) -> None:
    client, inner = socket.socketpair()
    with client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        stream = SocketStream(inner)
        with pytest.raises(error):
            await read_request(BufferedStream(stream))
        stream.close()


async def test_what_follows_a_request_is_not_lost() -> None:
    client, inner = socket.socketpair()
    with client:
        client.sendall(b"\x05\x01\x00\x05\x01\x00\x03\x04web1\x00\x50GET /")
        stream = BufferedStream(SocketStream(inner))
        request = await read_request(stream)
        assert str(request.destination) == "web1:80"
        assert await stream.receive() == b"GET /"
        stream.close()
