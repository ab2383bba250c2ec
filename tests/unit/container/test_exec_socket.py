"""The streams of an exec: exact bytes, ends, and cancelled readers at the moment in which data comes."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from threading import Event

import anyio
import pytest
import trustme
from urllib3.util.ssltransport import SSLTransport

from harness_backends.container.exec_stream import ExecSocket, TlsSocket


@pytest.fixture
def pair() -> Iterator[tuple[ExecSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ExecSocket(ours), theirs


async def test_bytes_go_both_ways_and_each_way_ends_by_itself(pair: tuple[ExecSocket, socket.socket]) -> None:
    stream, theirs = pair
    data = bytes(range(256)) * 4000
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.send, data)
            got = b""
            while len(got) < len(data):
                got += await anyio.to_thread.run_sync(theirs.recv, 1 << 16)
        assert got == data
        await stream.send_eof()
        assert theirs.recv(1) == b""
        theirs.sendall(b"still")
        theirs.close()
        assert await stream.receive(2) == b"st"
        assert await stream.receive() == b"ill"
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
        with pytest.raises(anyio.BrokenResourceError):
            await stream.send(b"x")


async def test_a_reader_that_is_cancelled_as_data_comes_leaves_nothing_behind(
    pair: tuple[ExecSocket, socket.socket],
) -> None:
    stream, theirs = pair
    for number in range(200):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream.receive)
                for _ in range(3):  # until it waits
                    await anyio.lowlevel.checkpoint()
                theirs.send(b"%d " % number)
                await anyio.lowlevel.checkpoint()
                scope.cancel()
    theirs.send(b"end")
    with anyio.fail_after(5):
        while not (await stream.receive()).endswith(b"end"):
            pass


async def test_closing_wakes_the_reader(pair: tuple[ExecSocket, socket.socket]) -> None:
    stream, _ = pair
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                with pytest.raises(anyio.ClosedResourceError):
                    await stream.receive()

            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            await stream.aclose()
            await stream.aclose()


async def test_the_end_of_what_is_sent_over_tls_loses_nothing_that_was_received() -> None:
    authority = trustme.CA()
    served, trusted = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(served)
    authority.configure_trust(trusted)
    ours, theirs = socket.socketpair()
    data, got = bytes(range(256)) * 400, b""
    waiting = Event()

    def serve() -> None:
        nonlocal got
        with theirs, served.wrap_socket(theirs, server_side=True) as peer:
            peer.sendall(data)
            waiting.set()  # more than one record waits now
            while part := peer.recv(1 << 16):
                got += part

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, serve)
            client = await anyio.to_thread.run_sync(SSLTransport, ours, trusted, "localhost")
            await anyio.to_thread.run_sync(waiting.wait)
            ours.setblocking(False)
            async with TlsSocket(client, b"before ") as stream:
                received = await stream.receive(20) + await stream.receive(20)
                await stream.send(b"input")
                await stream.send_eof()
                with suppress(anyio.EndOfStream):
                    while True:
                        received += await stream.receive()
    assert received == b"before " + data
    assert got == b"input"
