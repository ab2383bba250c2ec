"""The engines' sockets: exact bytes, ends, and cancelled readers at the moment in which data comes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from harness_backends.container.unixsocket import UnixStream, connect_unix


@pytest.fixture
def pair() -> Iterator[tuple[UnixStream, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield UnixStream(ours), theirs


async def test_bytes_go_both_ways_and_each_way_ends_by_itself(pair: tuple[UnixStream, socket.socket]) -> None:
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
    pair: tuple[UnixStream, socket.socket],
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


async def test_closing_wakes_the_reader(pair: tuple[UnixStream, socket.socket]) -> None:
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


async def test_nobody_there_is_an_error_at_once(tmp_path: Path) -> None:
    with anyio.fail_after(2), pytest.raises(OSError, match="No such file"):
        await connect_unix(str(tmp_path / "none"))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    with anyio.fail_after(2), pytest.raises(ConnectionRefusedError):
        await connect_unix(str(tmp_path / "dead"))
