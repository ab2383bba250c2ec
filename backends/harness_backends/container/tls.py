"""A TLS stream whose sending half can be closed alone, to signal the end of a program's input."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import anyio
from anyio.abc import ByteStream

__all__ = ["TlsStream", "wrap_tls"]

RECORD = 65536
T = TypeVar("T")


class TlsStream(ByteStream):
    """A TLS client on a byte stream; one task may send while another receives."""

    def __init__(self, stream: ByteStream, context: ssl.SSLContext, hostname: str) -> None:
        self._stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=hostname)
        self._early = bytearray()
        self._ended = False
        self._sending = anyio.Lock()

    async def handshake(self) -> None:
        """Perform the TLS handshake.

        Raises:
            ssl.SSLError: the peer's or the client's certificate is not trusted.
        """
        await self._until_done(self._tls.do_handshake)

    async def _until_done(self, step: Callable[[], T]) -> T:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self._answer()
                await self._fill()
            else:
                await self._answer()
                return result

    async def _answer(self) -> None:
        """Send data that reading produced, unless a sender is active: the peer may wait until this side reads."""
        if self._outgoing.pending and not self._sending.locked():
            await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            if data := self._outgoing.read():
                await self._stream.send(data)  # the stream queues all of it, even if this is cancelled

    async def _fill(self) -> None:
        try:
            self._incoming.write(await self._stream.receive())
        except anyio.EndOfStream:
            self._incoming.write_eof()

    async def receive(self, max_bytes: int = RECORD) -> bytes:
        if self._early:
            data = bytes(self._early[:max_bytes])
            del self._early[:max_bytes]
            return data
        if self._ended:
            raise anyio.EndOfStream
        try:
            data = await self._until_done(lambda: self._tls.read(max_bytes))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            data = b""
        if not data:
            self._ended = True
            raise anyio.EndOfStream
        return data

    async def send(self, item: bytes) -> None:
        view = memoryview(item)
        while view:
            view = view[self._tls.write(view[:RECORD]) :]
            await self._flush()

    async def send_eof(self) -> None:
        """Signal the end of the sent data; the peer's data can still be received."""
        self._take_early()  # unwrap expects the peer's answer, so pending data is read first
        with suppress(ssl.SSLError):  # the answer has not arrived yet
            self._tls.unwrap()
        await self._flush()

    def _take_early(self) -> None:
        try:
            while data := self._tls.read(RECORD):
                self._early += data
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._ended = True

    async def aclose(self) -> None:
        await self._stream.aclose()


async def wrap_tls(stream: ByteStream, context: ssl.SSLContext, hostname: str) -> TlsStream:
    """Open a TLS client on a stream, and close the stream on failure.

    Raises:
        ssl.SSLError: as :meth:`TlsStream.handshake`.
    """
    wrapped = TlsStream(stream, context, hostname)
    try:
        await wrapped.handshake()
    except BaseException:
        await stream.aclose()
        raise
    return wrapped
