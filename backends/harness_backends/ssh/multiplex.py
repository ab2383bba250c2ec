"""The protocol between an OpenSSH control master and its clients (PROTOCOL.mux of OpenSSH, version 4, since 5.4).

``ssh -S`` speaks it to hand its three descriptors to the master and wait for an exit status. Speaking it here saves a
process per channel, cannot fall back to a login of its own, and tells apart what ``ssh -S`` folds into status 255: a
program that exited with 255, a session that the server refused, and a master that died.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import anyio

__all__ = ["MuxConnection", "MuxError", "MuxGone", "MuxRefused", "Packet", "PacketReader", "connect_mux"]

VERSION = 4
MAX_PACKET = 256 * 1024
NO_ESCAPE = 0xFFFFFFFF
SEND_TIMEOUT = 5.0


class Message(IntEnum):
    """The messages that are used here."""

    HELLO = 0x00000001
    NEW_SESSION = 0x10000002
    ALIVE_CHECK = 0x10000004
    TERMINATE = 0x10000005
    OK = 0x80000001
    PERMISSION_DENIED = 0x80000002
    FAILURE = 0x80000003
    EXIT_MESSAGE = 0x80000004
    ALIVE = 0x80000005
    SESSION_OPENED = 0x80000006


class MuxError(Exception):
    """The master answered with something else than this protocol."""


class MuxGone(MuxError):
    """Nobody listens at the socket, or the master ended."""


class MuxRefused(MuxError):
    """The master, or the server behind it, refused a request; the text says why."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One message: its type, and what follows."""

    kind: int
    body: bytes

    def integer(self, index: int) -> int:
        """The 32-bit number at a position counted in numbers."""
        try:
            (value,) = struct.unpack_from(">I", self.body, 4 * index)
        except struct.error:
            raise MuxError(f"a message of type {self.kind:#x} is too short") from None
        return int(value)

    def text(self, offset: int) -> str:
        """The string that begins at a byte offset."""
        length = int.from_bytes(self.body[offset : offset + 4], "big")
        return self.body[offset + 4 : offset + 4 + length].decode("utf-8", "replace")


class PacketReader:
    """Splits a byte stream into packets. Pure."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes of the stream."""
        self._buffer += data

    def next(self) -> Packet | None:
        """Take the next whole packet; None when there is none yet."""
        if len(self._buffer) < 4:
            return None
        size = int.from_bytes(self._buffer[:4], "big")
        if not 4 <= size <= MAX_PACKET:
            raise MuxError(f"a message of {size} bytes is not of this protocol")
        if len(self._buffer) < 4 + size:
            return None
        packet = Packet(int.from_bytes(self._buffer[4:8], "big"), bytes(self._buffer[8 : 4 + size]))
        del self._buffer[: 4 + size]
        return packet


def encode_packet(kind: Message, *fields: int | bytes) -> bytes:
    """A packet on the wire: numbers as 32 bits, bytes with their length."""
    parts = [struct.pack(">I", kind)]
    for value in fields:
        parts.append(struct.pack(">I", value if isinstance(value, int) else len(value)))
        if isinstance(value, bytes):
            parts.append(value)
    body = b"".join(parts)
    return struct.pack(">I", len(body)) + body


def encode_session(request: int, command: bytes, environment: Sequence[bytes], *, forward_agent: bool) -> bytes:
    """A request for a session without a terminal that runs ``command``; three descriptors must follow it."""
    flags = (0, 0, int(forward_agent), 0)  # terminal, X11, agent, subsystem
    return encode_packet(Message.NEW_SESSION, request, b"", *flags, NO_ESCAPE, b"", command, *environment)


class MuxConnection:
    """One connection to a master: a lease on it (it stays while the connection is open), or one session."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = PacketReader()
        self._requests = 0

    async def hello(self) -> None:
        """Exchange versions."""
        await self._send(encode_packet(Message.HELLO, VERSION))
        packet = await self.receive()
        if packet.kind != Message.HELLO or packet.integer(0) != VERSION:
            raise MuxError("the master speaks another version of the protocol")

    async def alive(self) -> int:
        """The master's process id."""
        packet = await self._request(Message.ALIVE_CHECK, Message.ALIVE)
        return packet.integer(1)

    async def terminate(self) -> None:
        """Ask the master to end, with all its sessions, and wait until it has."""
        with suppress(MuxGone):
            await self._request(Message.TERMINATE, Message.OK)
            while True:
                await self.receive()

    async def open_session(
        self, command: bytes, environment: Sequence[bytes], descriptors: Sequence[int], *, forward_agent: bool
    ) -> None:
        """Start a command with the given three descriptors; returns when the server has opened the session.

        Raises:
            MuxRefused: the server opens no more sessions, or the master was told not to.
            MuxGone: the master ended; the command may have been started.
            TimeoutError: the master reads nothing.
        """
        self._requests += 1
        with anyio.fail_after(SEND_TIMEOUT, shield=True):  # the master stops for everybody until it has all three
            await self._send(encode_session(self._requests, command, environment, forward_agent=forward_agent))
            for descriptor in descriptors:
                await self._send_descriptor(descriptor)
        self._expect(await self.receive(), Message.SESSION_OPENED)

    async def _request(self, kind: Message, wanted: Message) -> Packet:
        self._requests += 1
        await self._send(encode_packet(kind, self._requests))
        return self._expect(await self.receive(), wanted)

    @staticmethod
    def _expect(packet: Packet, wanted: Message) -> Packet:
        if packet.kind in (Message.FAILURE, Message.PERMISSION_DENIED):
            raise MuxRefused(packet.text(4))
        if packet.kind != wanted:
            raise MuxError(f"the master answered with a message of type {packet.kind:#x}")
        return packet

    def has_ended(self) -> bool:
        """True when the master has closed this connection, or we have, whether or not all of it was read."""
        if self._socket.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._socket, 0)
        return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))

    async def receive(self) -> Packet:
        """The next message. Cancelling loses nothing.

        Raises:
            MuxGone: there will be none.
        """
        while (packet := self._reader.next()) is None:
            try:
                data = self._socket.recv(4096)
            except BlockingIOError:
                await self._readable()
                continue
            except OSError as error:
                raise MuxGone(str(error)) from error
            if not data:
                raise MuxGone("the master closed the connection")
            self._reader.feed(data)
        return packet

    async def _readable(self) -> None:
        try:
            await anyio.wait_readable(self._socket)
        except (anyio.ClosedResourceError, ValueError) as error:  # ValueError: closed before the wait began
            raise MuxGone("the connection was closed") from error

    async def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise MuxGone(str(error)) from error

    async def _send_descriptor(self, descriptor: int) -> None:
        while True:
            try:
                socket.send_fds(self._socket, [b"\0"], [descriptor])
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise MuxGone(str(error)) from error
            else:
                return

    def close(self) -> None:
        """Close the connection; the master then closes the session that belongs to it."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


async def connect_mux(path: str) -> MuxConnection:
    """Connect to the master that listens at ``path``, which must be this user's socket.

    Raises:
        MuxGone: there is none.
        MuxError: what listens there does not speak the protocol.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    mux = MuxConnection(connection)
    try:
        if os.lstat(path).st_uid != os.getuid():
            raise MuxError(f"{path} belongs to somebody else")
        connection.connect(path)
        await mux.hello()
    except OSError as error:  # also EAGAIN: its queue is full, so it serves nobody
        mux.close()
        raise MuxGone(f"{path}: {error.strerror}") from error
    except BaseException:
        mux.close()
        raise
    return mux
