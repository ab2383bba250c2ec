"""A TLS socket whose sending half can be closed alone, to signal the end of a program's input."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress

import anyio
from urllib3.util.ssltransport import SSLTransport

from .exec_stream import ExecSocket

__all__ = ["TlsSocket"]

RECORD = 65536


class TlsSocket(ExecSocket):
    """An open TLS connection; one task may receive while another sends.

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
                if data := self._socket.recv(RECORD):
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            rest = rest[self._tls.write(rest[:RECORD]) :]
            await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            await super().send(self._outgoing.read())

    async def send_eof(self) -> None:
        with suppress(ssl.SSLError):  # unwrap expects the peer's answer, so received data is read first
            while data := self._tls.read(RECORD):
                self._early += data
        with suppress(ssl.SSLError):  # the peer's answer has not arrived yet
            self._tls.unwrap()
        await self._flush()
