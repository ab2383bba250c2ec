"""A process behind an attached connection, whose streams are demultiplexed."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from harness.errors import ConnectionLost
from harness.system.descriptor_stream import read_when_ready, write_when_ready
from harness.transport import Process

if TYPE_CHECKING:
    from urllib3.util.ssltransport import SSLTransport

__all__ = [
    "AttachedProcess",
    "Demultiplexer",
    "ExecSocket",
    "TlsSocket",
]


# -- Demultiplexing the stream of a process without a terminal. Pure.
#
# Each frame is a header of eight bytes (the stream's number, three zeros, the length as a big-endian number) and
# that many bytes. Parts of a frame are passed on immediately.


_HEADER = 8
_STREAMS = (0, 1, 2, 3)
_PADDING = b"\0\0\0"


class Demultiplexer:
    """A parser that splits an attached connection into streams: 1 is standard output, 2 is standard error.

    Stream 0 is an echo of the input, which engines do not send; stream 3 is an error of the engine itself.
    """

    def __init__(self) -> None:
        self._header = b""
        self._left = 0
        self._stream = 0

    @property
    def inside(self) -> bool:
        """True in the middle of a frame: a stream that ends here is truncated."""
        return self._left > 0 or bool(self._header)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Add bytes and return their content in order, as (stream, bytes), without empty parts.

        Raises:
            ConnectionLost: the data is not such a stream.
        """
        parts: list[tuple[int, bytes]] = []
        while data:
            if self._left == 0:
                data = self._begin(data)
                continue
            part, data = data[: self._left], data[self._left :]
            self._left -= len(part)
            parts.append((self._stream, part))
        return parts

    def _begin(self, data: bytes) -> bytes:
        missing = _HEADER - len(self._header)
        self._header += data[:missing]
        if len(self._header) == _HEADER:
            if self._header[0] not in _STREAMS or self._header[1:4] != _PADDING:
                raise ConnectionLost("the engine sent invalid process output")
            self._stream = self._header[0]
            self._left = int.from_bytes(self._header[4:], "big")
            self._header = b""
        return data[missing:]


# -- The connection of an exec: a socket of the ``docker`` package, read and written by the event loop.


class ExecSocket(ByteStream):
    """A non-blocking socket; one task may receive while another sends.

    anyio's stream of a Unix socket has a race: a receiver that is cancelled when data arrives leaves a callback that
    fails with ``InvalidStateError``.

    Args:
        sock: the socket.
        early: received bytes that come first.
        release: closes what else uses the socket.
    """

    def __init__(self, sock: socket.socket, early: bytes = b"", release: Callable[[], None] = lambda: None) -> None:
        self._socket = sock
        self._early = early
        self._release = release

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        if self._early:
            data, self._early = self._early[:max_bytes], self._early[max_bytes:]
            return data
        try:
            data = await read_when_ready(self._socket, lambda: self._receive_ready(max_bytes))
        except OSError as error:
            raise anyio.BrokenResourceError from error
        if not data:
            raise anyio.EndOfStream
        return data

    def _receive_ready(self, max_bytes: int) -> bytes:
        return self._socket.recv(max_bytes)

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        try:
            await write_when_ready(self._socket, item, self._socket.send)
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._release()
            self._socket.close()
        await anyio.lowlevel.checkpoint()


_RECORD = 65536
"""Bytes read or written at a time over TLS."""


class TlsSocket(ExecSocket):
    """A TLS connection whose sending half can be closed alone; one task may receive while another sends.

    ``ssl.SSLSocket.unwrap`` cannot close one half: it reads from the socket, and if data of the peer arrives at that
    moment, this and all later data is lost (``APPLICATION_DATA_AFTER_CLOSE_NOTIFY``). Here it reads from memory.

    Args:
        tls: the connection.
        early: decrypted bytes that come first.
        release: closes what else uses the socket.
    """

    def __init__(self, tls: SSLTransport, early: bytes = b"", release: Callable[[], None] = lambda: None) -> None:
        super().__init__(tls.socket, early, release)
        self._tls = tls.sslobj
        self._incoming, self._outgoing = tls.incoming, tls.outgoing
        self._sending = anyio.Lock()

    def _receive_ready(self, max_bytes: int) -> bytes:
        while True:
            try:
                return self._tls.read(max_bytes)
            except ssl.SSLWantReadError:
                if data := self._socket.recv(_RECORD):
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            rest = rest[self._tls.write(rest[:_RECORD]) :]
            await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            await super().send(self._outgoing.read())

    async def send_eof(self) -> None:
        with suppress(ssl.SSLError):  # unwrap expects the peer's answer, so received data is read first
            while data := self._tls.read(_RECORD):
                self._early += data
        with suppress(ssl.SSLError):  # the peer's answer has not arrived yet
            self._tls.unwrap()
        await self._flush()


# -- A process behind an engine's attached connection, with both output streams in one direction, the input in the
# other.


MAX_BUFFERED_BYTES = 1 << 20
"""Bytes buffered for one stream while the other is read; beyond that the program blocks."""

_CLOSED = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class _ReceiveBuffer:
    """The received, unread data of one stream."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self.size = 0
        self._taken = anyio.Event()

    def add(self, data: bytes) -> None:
        self._chunks.append(data)
        self.size += len(data)

    def take(self, max_bytes: int) -> bytes:
        data = self._chunks.popleft()
        if len(data) > max_bytes:
            self._chunks.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        self.size -= len(data)
        taken, self._taken = self._taken, anyio.Event()
        taken.set()
        return data

    def watch(self) -> anyio.Event:
        """Return an event that is set when data is taken."""
        return self._taken


class AttachedProcess(Process):
    """One exec of an engine.

    Args:
        stream: the connection; the process closes it.
        status: queries the engine for the exit status, once the streams have ended.
    """

    def __init__(self, stream: ByteStream, status: Callable[[], Awaitable[int]]) -> None:
        self._stream = stream
        self._status = status
        self._demultiplexer = Demultiplexer()
        self._waiting = {1: _ReceiveBuffer(), 2: _ReceiveBuffer()}
        self._reads = 0
        self._turn = anyio.Lock()
        self._ended = False
        self._input_open = True

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._receive(1, max_bytes)

    async def receive_stderr(self, max_bytes: int = 65536) -> bytes:
        return await self._receive(2, max_bytes)

    async def _receive(self, number: int, max_bytes: int) -> bytes:
        await anyio.lowlevel.checkpoint()
        mine, other = self._waiting[number], self._waiting[3 - number]
        while not mine.size and not self._ended:
            if other.size >= MAX_BUFFERED_BYTES:
                await other.watch().wait()
            else:
                await self._read()
        return mine.take(max_bytes) if mine.size else b""

    async def _read(self) -> None:
        """Read once, unless another task has done so meanwhile."""
        seen = self._reads
        async with self._turn:
            if self._reads == seen and not self._ended:
                try:
                    data = await self._stream.receive()
                except _CLOSED:
                    self._end()
                else:
                    self._deliver(data)
                self._reads += 1

    def _deliver(self, data: bytes) -> None:
        try:
            for number, part in self._demultiplexer.feed(data):
                self._waiting[1 if number == 1 else 2].add(part)
        except ConnectionLost:
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._input_open = False

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if not self._input_open:
            raise BrokenPipeError("the program's input is closed")
        try:
            await self._stream.send(data)
        except _CLOSED as error:
            raise BrokenPipeError("the program has exited, or the engine closed the connection") from error

    async def send_eof(self) -> None:
        if self._input_open:
            self._input_open = False
            try:
                await self._stream.send_eof()
            except _CLOSED:
                return
        await anyio.lowlevel.checkpoint()

    async def wait(self) -> int:
        """Wait for the end of the streams, which must be read, and return the engine's exit status."""
        while not self._ended:
            if max(waiting.size for waiting in self._waiting.values()) < MAX_BUFFERED_BYTES:
                await self._read()
            else:
                full = next(waiting for waiting in self._waiting.values() if waiting.size >= MAX_BUFFERED_BYTES)
                await full.watch().wait()
        return await self._status()

    async def aclose(self) -> None:
        self._end()
        with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
            await self._stream.aclose()
