"""The two sides of a forwarded connection, and the copying between them."""

from __future__ import annotations

import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio

from ..errors import HarnessError
from ..system.descriptor_stream import read_when_ready, write_when_ready

__all__ = ["BufferedStream", "ByteStream", "SocketStream", "relay"]

CHUNK_BYTES = 1 << 18
_RESET: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which a close resets the connection."""


class ByteStream(ABC):
    """One side of a connection, with both directions. One task may receive while another sends."""

    @abstractmethod
    async def receive(self) -> bytes:
        """Return the next bytes; ``b""`` if the other end sends no more.

        Raises:
            OSError: The connection was reset.
            ConnectionLost: The SSH connection was lost, so that bytes may be missing.
        """

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Send all bytes.

        Raises:
            OSError: The other end receives no more.
            ConnectionLost: The SSH connection was lost.
        """

    @abstractmethod
    async def send_eof(self) -> None:
        """Let the other end know that no more bytes follow; it may still send. Never raises."""

    @abstractmethod
    def close(self) -> None:
        """Close both directions."""

    @abstractmethod
    def abort(self) -> None:
        """Close both directions so that the other end sees an error, where that is possible, not an end."""


class SocketStream(ByteStream):
    """A stream over a non-blocking socket, or over one for each direction.

    Args:
        reading: The socket to read from.
        writing: The socket to write to; None is the same one.
        check_end: Called when the other end sends no more; raises an error if that is not the true end.
        on_close: Called once, when the stream is closed.
    """

    def __init__(
        self,
        reading: socket.socket,
        writing: socket.socket | None = None,
        *,
        check_end: Callable[[], Awaitable[None]] | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._reading = reading
        self._writing = writing or reading
        self.check_end = check_end
        self._on_close = on_close
        for one in (self._reading, self._writing):
            one.setblocking(False)
            if one.family in (socket.AF_INET, socket.AF_INET6):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def receive(self) -> bytes:
        """See :class:`ByteStream`."""
        try:
            data = await read_when_ready(self._reading, lambda: self._reading.recv(CHUNK_BYTES))
        except anyio.ClosedResourceError:
            return b""
        if not data and self.check_end is not None:
            await self.check_end()
        return data

    async def send(self, data: bytes) -> None:
        """See :class:`ByteStream`."""
        try:
            await write_when_ready(self._writing, data, self._writing.send)
        except anyio.ClosedResourceError as error:
            raise BrokenPipeError("the stream was closed") from error

    async def send_eof(self) -> None:
        """See :class:`ByteStream`."""
        with suppress(OSError):
            self._writing.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """See :class:`ByteStream`."""
        if self._reading.fileno() < 0:
            return
        for one in {self._reading, self._writing}:
            anyio.notify_closing(one)
            one.close()
        self._on_close()

    def abort(self) -> None:
        """See :class:`ByteStream`."""
        with suppress(OSError):  # closed, or not a TCP socket
            self._writing.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.close()


class BufferedStream(ByteStream):
    """A stream from which a number of bytes can be read."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._buffer = b""

    async def receive_exactly(self, count: int) -> bytes:
        """Return the next ``count`` bytes.

        Raises:
            EOFError: There are not so many.
        """
        while len(self._buffer) < count:
            data = await self._stream.receive()
            if not data:
                raise EOFError
            self._buffer += data
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    async def receive(self) -> bytes:
        """See :class:`ByteStream`."""
        if self._buffer:
            taken, self._buffer = self._buffer, b""
            return taken
        return await self._stream.receive()

    async def send(self, data: bytes) -> None:
        """See :class:`ByteStream`."""
        await self._stream.send(data)

    async def send_eof(self) -> None:
        """See :class:`ByteStream`."""
        await self._stream.send_eof()

    def close(self) -> None:
        """See :class:`ByteStream`."""
        self._stream.close()

    def abort(self) -> None:
        """See :class:`ByteStream`."""
        self._stream.abort()


async def relay(one: ByteStream, other: ByteStream) -> None:
    """Copy both ways until both have ended, and close both; if one breaks, or this is cancelled, abort both."""
    done = False
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_copy, one, other, tasks.cancel_scope)
            tasks.start_soon(_copy, other, one, tasks.cancel_scope)
        done = not tasks.cancel_scope.cancel_called
    finally:
        for stream in (one, other):
            if done:
                stream.close()
            else:
                stream.abort()


async def _copy(source: ByteStream, sink: ByteStream, both: anyio.CancelScope) -> None:
    """Copy one direction to its end; an error of the source ends both directions."""
    while True:
        try:
            data = await source.receive()
        except (OSError, HarnessError):
            both.cancel()
            return
        if not data:
            await sink.send_eof()
            return
        try:
            await sink.send(data)
        except OSError:  # it receives no more, but may still send
            return
        except HarnessError:
            both.cancel()
            return
