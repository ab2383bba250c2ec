"""A TCP proxy on loopback that delays, stalls or cuts a connection on command."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ByteReceiveStream, ByteStream, SocketAttribute, SocketStream
from anyio.lowlevel import checkpoint
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ..system.background_tasks import open_background_tasks

__all__ = ["DelayProxy", "delay_proxy"]

CHUNK = 65536
MAX_CHUNKS_IN_FLIGHT = 1024
TIMER_GRAIN = 0.001
"""Event loops round timers up to a millisecond; the rest of a wait is spent polling, so that delays are exact."""

_Chunk = tuple[float, bytes]
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


class DelayProxy:
    """A controlled connection; ``delay`` is in seconds per direction and may be changed while it is in use.

    Bytes stay in order, and a delay does not limit the rate: up to 64 MiB per direction are in flight. ``rate`` limits
    it, in bytes per second towards the clients; 0 means unlimited.
    """

    def __init__(self, host: str, port: int, delay: float) -> None:
        self.delay = delay
        self.rate = 0.0
        self.port = 0
        self.bytes_sent = 0
        """Bytes delivered towards the server, over all connections."""
        self.bytes_received = 0
        """Bytes delivered towards the clients, over all connections."""
        self._upstream = (host, port)
        self._flowing = anyio.Event()
        self._flowing.set()
        self._refusing = False
        self._scopes: set[anyio.CancelScope] = set()

    def cut(self) -> None:
        """Reset every connection, and refuse new ones until :meth:`resume`."""
        self._refusing = True
        for scope in self._scopes:
            scope.cancel()

    def stall(self) -> None:
        """Deliver nothing more, in silence, until :meth:`resume`; connections stay open."""
        if self._flowing.is_set():
            self._flowing = anyio.Event()

    def resume(self) -> None:
        """End a stall (what was held is delivered) or a cut (new connections are accepted)."""
        self._refusing = False
        self._flowing.set()

    async def serve(self, client: SocketStream) -> None:
        """Carry one connection until both sides have closed it, or the link is cut."""
        async with client:
            if self._refusing:
                _reset_on_close(client)
                return
            with anyio.CancelScope() as scope, suppress(*_BROKEN):
                self._scopes.add(scope)
                try:
                    await self._carry(client)
                finally:
                    self._scopes.discard(scope)
            if scope.cancelled_caught:
                _reset_on_close(client)

    async def _carry(self, client: SocketStream) -> None:
        async with await anyio.connect_tcp(*self._upstream) as server:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._direction, client, server, True)
                    tasks.start_soon(self._direction, server, client, False)
            except anyio.get_cancelled_exc_class():
                _reset_on_close(server)
                raise

    async def _direction(self, source: ByteReceiveStream, sink: ByteStream, upwards: bool) -> None:
        send, receive = anyio.create_memory_object_stream[_Chunk](MAX_CHUNKS_IN_FLIGHT)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._collect, source, send)
            tasks.start_soon(self._deliver, receive, sink, upwards)

    async def _collect(self, source: ByteReceiveStream, queue: MemoryObjectSendStream[_Chunk]) -> None:
        async with queue:
            with suppress(*_BROKEN):
                while True:
                    data = await source.receive(CHUNK)
                    await queue.send((anyio.current_time() + self.delay, data))

    async def _deliver(self, queue: MemoryObjectReceiveStream[_Chunk], sink: ByteStream, upwards: bool) -> None:
        async with queue:
            with suppress(*_BROKEN):
                async for due, data in queue:
                    await _wait_until(due)
                    await self._flowing.wait()
                    if self.rate and not upwards:
                        await anyio.sleep(len(data) / self.rate)
                    await sink.send(data)
                    self._count(len(data), upwards)
                await _wait_until(anyio.current_time() + self.delay)
                await self._flowing.wait()
                await sink.send_eof()

    def _count(self, size: int, upwards: bool) -> None:
        if upwards:
            self.bytes_sent += size
        else:
            self.bytes_received += size


async def _wait_until(due: float) -> None:
    coarse = due - anyio.current_time() - TIMER_GRAIN
    if coarse > 0:
        await anyio.sleep(coarse)
    while anyio.current_time() < due:
        await checkpoint()


def _reset_on_close(stream: SocketStream) -> None:
    with suppress(OSError):
        raw = stream.extra_attributes[SocketAttribute.raw_socket]()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@asynccontextmanager
async def delay_proxy(host: str, port: int, delay: float = 0.0) -> AsyncIterator[DelayProxy]:
    """Open a proxy on ``127.0.0.1`` and a free port (``proxy.port``) to a server; ``delay`` is per direction."""
    proxy = DelayProxy(host, port, delay)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    proxy.port = listener.extra_attributes[SocketAttribute.local_port]()
    async with listener, open_background_tasks() as tasks:
        tasks.start_soon(listener.serve, proxy.serve)
        yield proxy
