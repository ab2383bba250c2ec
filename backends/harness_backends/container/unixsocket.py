"""A client for Unix domain sockets.

anyio's own stream has a race: if a waiting task is cancelled in the moment when data arrives, a callback fails in the
event loop (``InvalidStateError``). Its ``wait_readable`` does not have this race.
"""

from __future__ import annotations

import socket
from contextlib import suppress

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

__all__ = ["UnixStream", "connect_unix"]

RETRY = 0.01
"""Seconds between attempts: a listener with a full queue does not signal when it has space."""


class UnixStream(ByteStream):
    """A bidirectional byte stream; one task may read and one may write at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = self._socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error
            if not data:
                raise anyio.EndOfStream
            return data

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()
        await anyio.lowlevel.checkpoint()


async def connect_unix(path: str) -> UnixStream:
    """Connect to a socket by its path.

    Raises:
        OSError: no process listens there.
    """
    await anyio.lowlevel.checkpoint()
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        while True:
            try:
                sock.connect(path)
            except BlockingIOError:
                await anyio.sleep(RETRY)
            else:
                return UnixStream(sock)
    except BaseException:
        sock.close()
        raise
