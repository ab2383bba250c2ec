"""The delay proxy: exact order, an added delay that does not limit the rate, stalls and cuts."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from harness.testing.delay import DelayProxy, delay_proxy


async def echo(stream: SocketStream) -> None:
    async with stream:
        with suppress(anyio.BrokenResourceError):
            async for data in stream:
                await stream.send(data)
            await stream.send_eof()


@asynccontextmanager
async def linked(delay: float = 0.0) -> AsyncIterator[tuple[DelayProxy, SocketStream]]:
    """A client that is connected through a proxy to an echo server."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra_attributes[SocketAttribute.local_port]()
    with anyio.fail_after(20):
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, echo)
            async with (
                delay_proxy("127.0.0.1", port, delay) as proxy,
                await anyio.connect_tcp("127.0.0.1", proxy.port) as client,
            ):
                yield proxy, client
            tasks.cancel_scope.cancel()


async def exchange(client: SocketStream, data: bytes) -> bytes:
    """Send everything, close, and return what comes back."""
    received = bytearray()

    async def send() -> None:
        await client.send(data)
        await client.send_eof()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        async for chunk in client:
            received += chunk
    return bytes(received)


async def test_bytes_come_back_in_order() -> None:
    data = random.Random(1).randbytes(5_000_000)
    async with linked(0.001) as (proxy, client):
        assert await exchange(client, data) == data
        assert (proxy.bytes_sent, proxy.bytes_received) == (len(data), len(data))


async def test_a_round_trip_takes_twice_the_delay() -> None:
    trips = []
    async with linked(0.03) as (_, client):
        for _ in range(20):
            started = anyio.current_time()
            await client.send(b"x")
            assert await client.receive() == b"x"
            trips.append(anyio.current_time() - started)
    assert 0.06 <= min(trips) < 0.09  # the shortest one: a busy machine adds to the others


async def test_a_delay_does_not_limit_the_rate() -> None:
    data = bytes(20_000_000)
    async with linked(0.1) as (_, client):
        started = anyio.current_time()
        assert len(await exchange(client, data)) == len(data)
        assert anyio.current_time() - started < 10  # one chunk per delay would take half a minute


async def test_a_stall_holds_everything_and_a_resume_delivers_it() -> None:
    async with linked() as (proxy, client):
        await client.send(b"before")
        assert await client.receive() == b"before"
        proxy.stall()
        await client.send(b"held")
        with anyio.move_on_after(0.1) as scope:
            await client.receive()
        assert scope.cancelled_caught
        proxy.resume()
        assert await client.receive() == b"held"


async def test_a_cut_resets_connections_and_refuses_new_ones_until_resumed() -> None:
    async with linked() as (proxy, client):
        await client.send(b"x")
        await client.receive()
        proxy.cut()
        with pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
            await client.receive()
        async with await anyio.connect_tcp("127.0.0.1", proxy.port) as refused:
            with pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
                await refused.receive()
        proxy.resume()
        async with await anyio.connect_tcp("127.0.0.1", proxy.port) as again:
            await again.send(b"y")
            assert await again.receive() == b"y"
