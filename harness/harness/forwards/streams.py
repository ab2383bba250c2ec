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
DISCARD_GRACE = 5.0
"""Seconds that a client has to read the answer and to close, if the rest of what it sends cannot be delivered."""
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
    async def wait_taken(self) -> None:
        """After :meth:`send_eof`, wait until a program in between, if there is one, has taken all bytes.

        Raises:
            OSError: It has closed without taking them.
        """

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

    async def wait_taken(self) -> None:
        """See :class:`ByteStream`; only a socket for one direction has a program in between."""
        if self._writing is not self._reading:
            with suppress(anyio.ClosedResourceError):
                await read_when_ready(self._writing, lambda: self._writing.recv(1))

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

    async def wait_taken(self) -> None:
        """See :class:`ByteStream`."""
        await self._stream.wait_taken()

    def close(self) -> None:
        """See :class:`ByteStream`."""
        self._stream.close()

    def abort(self) -> None:
        """See :class:`ByteStream`."""
        self._stream.abort()


async def relay(one: ByteStream, other: ByteStream) -> None:
    """Copy both ways until both have ended, and close both.

    If one breaks, bytes could not be delivered, or this is cancelled, abort both.
    """
    is_complete = False
    forth, back = _Direction(one, other), _Direction(other, one)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forth.copy, back, tasks.cancel_scope)
            tasks.start_soon(back.copy, forth, tasks.cancel_scope)
        is_complete = not (tasks.cancel_scope.cancel_called or forth.is_cut or back.is_cut)
    finally:
        for stream in (one, other):
            if is_complete:
                stream.close()
            else:
                stream.abort()


class _Direction:
    """The copying of one direction."""

    def __init__(self, source: ByteStream, sink: ByteStream) -> None:
        self._source = source
        self._sink = sink
        self._ended = anyio.Event()
        self.is_cut = False
        """Whether bytes could not be delivered."""

    async def copy(self, opposite: _Direction, both: anyio.CancelScope) -> None:
        """Copy to the end; an error of the source ends both directions."""
        try:
            self.is_cut = not await self._copy(opposite)
        except (OSError, HarnessError):
            both.cancel()
        finally:
            self._ended.set()
        if self.is_cut:
            await self._discard(opposite)

    async def _copy(self, opposite: _Direction) -> bool:
        while data := await self._source.receive():
            try:
                await self._sink.send(data)
            except OSError:  # it receives no more, but may still send
                return False
        if opposite._ended.is_set() and not opposite.is_cut:
            await opposite._sink.wait_taken()  # else the end that follows would be taken for a success
        await self._sink.send_eof()
        return True

    async def _discard(self, opposite: _Direction) -> None:
        """Read what cannot be delivered: a reset now would destroy an answer that is on its way to the source."""

        async def limit() -> None:
            await opposite._ended.wait()
            await anyio.sleep(DISCARD_GRACE)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(limit)
            with suppress(OSError, HarnessError):
                while await self._source.receive():
                    pass
            tasks.cancel_scope.cancel()
