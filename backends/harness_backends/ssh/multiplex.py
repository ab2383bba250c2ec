"""The control master's protocol, and processes started through it."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple, Self

import anyio
import anyio.lowlevel

from harness.errors import ConnectionLost
from harness.target import Target
from harness.transport import Process

from ..posix.output_noise import NoiseFilter

__all__ = [
    "UNIX_SOCKET",
    "ForwardAddress",
    "ForwardType",
    "MuxConnection",
    "MuxConnectionClosed",
    "MuxError",
    "MuxProcess",
    "MuxRefused",
    "Packet",
    "PacketReader",
    "connect_mux",
    "open_pipes",
]


# -- The protocol between an OpenSSH control master and its clients (PROTOCOL.mux of OpenSSH, version 4, since 5.4).
#
# ``ssh -S`` uses it to pass its three descriptors to the master and wait for an exit status. Using it directly saves a
# process per channel, cannot fall back to a login of its own, and distinguishes what ``ssh -S`` reports as status 255:
# a program that exited with 255, a session that the server refused, and a master that exited.


VERSION = 4
MAX_PACKET = 256 * 1024
NO_ESCAPE = 0xFFFFFFFF
SEND_TIMEOUT = 5.0


class Message(IntEnum):
    """The message types that harness uses."""

    HELLO = 0x00000001
    NEW_SESSION = 0x10000002
    ALIVE_CHECK = 0x10000004
    TERMINATE = 0x10000005
    OPEN_FORWARD = 0x10000006
    CLOSE_FORWARD = 0x10000007
    NEW_STDIO_FORWARD = 0x10000008
    OK = 0x80000001
    PERMISSION_DENIED = 0x80000002
    FAILURE = 0x80000003
    EXIT_MESSAGE = 0x80000004
    ALIVE = 0x80000005
    SESSION_OPENED = 0x80000006
    REMOTE_PORT = 0x80000007


class ForwardType(IntEnum):
    """Which side listens: this machine, or the server."""

    LOCAL = 1
    REMOTE = 2


UNIX_SOCKET = 0xFFFFFFFE
"""The port of an address that is the path of a Unix socket."""

ForwardAddress = tuple[bytes, int]
"""A host and a port, or a path and :data:`UNIX_SOCKET`; an empty host to listen on is loopback."""


class MuxError(Exception):
    """The master's answer violates the protocol."""


class MuxConnectionClosed(MuxError):
    """No master listens at the socket, or it exited."""


class MuxRefused(MuxError):
    """The master or its server refused a request; the text gives the reason."""


class Packet(NamedTuple):
    """One message: its type and its body."""

    kind: int
    body: bytes

    def integer(self, index: int) -> int:
        """Return the 32-bit number with this index."""
        try:
            (value,) = struct.unpack_from(">I", self.body, 4 * index)
        except struct.error:
            raise MuxError(f"a message of type {self.kind:#x} is too short") from None
        return int(value)

    def text(self, offset: int) -> str:
        """Return the string at a byte offset."""
        length = int.from_bytes(self.body[offset : offset + 4], "big")
        return self.body[offset + 4 : offset + 4 + length].decode("utf-8", "replace")


class PacketReader:
    """A parser that splits a byte stream into packets. Pure."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes of the stream."""
        self._buffer += data

    def next(self) -> Packet | None:
        """Return the next complete packet, or None."""
        if len(self._buffer) < 4:
            return None
        size = int.from_bytes(self._buffer[:4], "big")
        if not 4 <= size <= MAX_PACKET:
            raise MuxError(f"invalid message size of {size} bytes")
        if len(self._buffer) < 4 + size:
            return None
        packet = Packet(int.from_bytes(self._buffer[4:8], "big"), bytes(self._buffer[8 : 4 + size]))
        del self._buffer[: 4 + size]
        return packet


def encode_packet(kind: Message, *fields: int | bytes) -> bytes:
    """Encode a packet: numbers as 32 bits, bytes with their length."""
    parts = [struct.pack(">I", kind)]
    for value in fields:
        parts.append(struct.pack(">I", value if isinstance(value, int) else len(value)))
        if isinstance(value, bytes):
            parts.append(value)
    body = b"".join(parts)
    return struct.pack(">I", len(body)) + body


def encode_session(request: int, command: bytes, environment: Sequence[bytes], *, forward_agent: bool) -> bytes:
    """Encode a request for a session without a PTY that runs ``command``; three descriptors must follow it."""
    flags = (0, 0, int(forward_agent), 0)  # terminal, X11, agent, subsystem
    return encode_packet(Message.NEW_SESSION, request, b"", *flags, NO_ESCAPE, b"", command, *environment)


class MuxConnection:
    """One connection to a master: a lease, which keeps the master running, or one session."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = PacketReader()
        self._requests = 0

    async def hello(self) -> None:
        """Exchange protocol versions."""
        await self._send(encode_packet(Message.HELLO, VERSION))
        packet = await self.receive()
        if packet.kind != Message.HELLO or packet.integer(0) != VERSION:
            raise MuxError("the master uses another version of the protocol")

    async def alive(self) -> int:
        """Check that the master is alive, and return its process id."""
        packet = await self._request(Message.ALIVE_CHECK, Message.ALIVE)
        return packet.integer(1)

    async def terminate(self) -> None:
        """Terminate the master with all its sessions, and wait for its exit."""
        with suppress(MuxConnectionClosed):
            await self._request(Message.TERMINATE, Message.OK)
            while True:
                await self.receive()

    async def open_session(
        self, command: bytes, environment: Sequence[bytes], descriptors: Sequence[int], *, forward_agent: bool
    ) -> None:
        """Start a command with three descriptors, and wait until the server has opened the session.

        Raises:
            MuxRefused: the server or the master refuses a further session.
            MuxConnectionClosed: the master exited; the command may have started.
            TimeoutError: the master does not read the request.
        """
        self._requests += 1
        with anyio.fail_after(SEND_TIMEOUT, shield=True):  # the master blocks for all clients until it has all three
            await self._send(encode_session(self._requests, command, environment, forward_agent=forward_agent))
            for descriptor in descriptors:
                await self._send_descriptor(descriptor)
        self._expect(await self.receive(), Message.SESSION_OPENED)

    async def open_forward(self, host: str, port: int, descriptors: tuple[int, int]) -> None:
        """Connect two descriptors, to read from and to write to, to an address that the server reaches (``ssh -W``).

        Raises:
            MuxRefused: the server cannot connect, or does not permit it.
            MuxConnectionClosed: the master exited.
            TimeoutError: the master does not read the request.
        """
        self._requests += 1
        with anyio.fail_after(SEND_TIMEOUT, shield=True):  # the master blocks for all clients until it has both
            message = encode_packet(Message.NEW_STDIO_FORWARD, self._requests, b"", host.encode(), port)
            await self._send(message)
            for descriptor in descriptors:
                await self._send_descriptor(descriptor)
        self._expect(await self.receive(), Message.SESSION_OPENED)

    async def start_listening(self, kind: ForwardType, listen: ForwardAddress, connect: ForwardAddress) -> int:
        """Let the master or the server listen, and the other side connect (``ssh -O forward``).

        Returns:
            The port that the server has chosen if it listens on port 0; else 0.

        Raises:
            MuxRefused: it cannot listen there, or does not permit it.
            MuxConnectionClosed: the master exited.
        """
        self._requests += 1
        await self._send(encode_packet(Message.OPEN_FORWARD, self._requests, kind, *listen, *connect))
        packet = await self.receive()
        if packet.kind == Message.REMOTE_PORT:
            return packet.integer(1)
        self._expect(packet, Message.OK)
        return 0

    async def stop_listening(self, kind: ForwardType, listen: ForwardAddress, connect: ForwardAddress) -> None:
        """End what :meth:`start_listening` began with the same arguments (``ssh -O cancel``).

        Raises:
            MuxRefused: nothing listens there.
            MuxConnectionClosed: the master exited.
        """
        self._requests += 1
        await self._send(encode_packet(Message.CLOSE_FORWARD, self._requests, kind, *listen, *connect))
        self._expect(await self.receive(), Message.OK)

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
        """Return True if either side has closed this connection, even if unread data is left."""
        if self._socket.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._socket, 0)
        return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))

    async def receive(self) -> Packet:
        """Wait for the next message; cancelling drops no data.

        Raises:
            MuxConnectionClosed: the connection was closed.
        """
        while (packet := self._reader.next()) is None:
            try:
                data = self._socket.recv(4096)
            except BlockingIOError:
                await self._readable()
                continue
            except OSError as error:
                raise MuxConnectionClosed(str(error)) from error
            if not data:
                raise MuxConnectionClosed("the master closed the connection")
            self._reader.feed(data)
        return packet

    async def _readable(self) -> None:
        try:
            await anyio.wait_readable(self._socket)
        except (anyio.ClosedResourceError, ValueError) as error:  # ValueError: closed before the wait began
            raise MuxConnectionClosed("the connection was closed") from error

    async def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise MuxConnectionClosed(str(error)) from error

    async def _send_descriptor(self, descriptor: int) -> None:
        while True:
            try:
                socket.send_fds(self._socket, [b"\0"], [descriptor])
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise MuxConnectionClosed(str(error)) from error
            else:
                return

    def close(self) -> None:
        """Close the connection; the master then closes its session."""
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
        MuxConnectionClosed: no master listens there.
        MuxError: the listener does not use the protocol, or the socket has another owner.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    mux = MuxConnection(connection)
    try:
        if os.lstat(path).st_uid != os.getuid():
            raise MuxError(f"{path} is owned by another user")
        connection.connect(path)
        await mux.hello()
    except OSError as error:  # also EAGAIN: its queue is full, so it is unresponsive
        mux.close()
        raise MuxConnectionClosed(f"{path}: {error.strerror}") from error
    except BaseException:
        mux.close()
        raise
    return mux


# -- A program started through a control master: one session, three streams, one exit status.
#
# Standard input is a socket pair and the outputs are pipes. A full pipe becomes writable as soon as one page is free,
# which wakes a sender every few kilobytes; a socket only when half of it is free. A pipe of one megabyte is read in
# large pieces, but the system limits them per user, so a pipe is enlarged only when the caller asks for large pieces.


SETTLE_TIMEOUT = 1.0

SEND_BUFFER = 1 << 20
"""Bytes requested; Linux grants at most 208 KiB by default."""
BULK = 1 << 17
"""Bytes: a caller that reads more than this at once is copying a file."""
BULK_PIPE = 1 << 20
"""Bytes: the largest pipe that Linux allows to an unprivileged user, who may have 64 of them."""


class Pipes(NamedTuple):
    """Both ends of a program's three streams: this process's ends, and in ``theirs`` the master's."""

    stdin: int
    stdout: int
    stderr: int
    theirs: tuple[int, int, int]

    def close_theirs(self) -> None:
        """Close this process's copies of the master's ends, so that end of file is seen."""
        for descriptor in self.theirs:
            os.close(descriptor)

    def close_ours(self) -> None:
        """Close the ends that this process uses."""
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.close(descriptor)


def open_pipes() -> Pipes:
    """Create the three streams; the ends that this process uses are non-blocking."""
    made: list[int] = []
    try:
        made.extend(_socket_pair())
        for _ in range(2):
            made.extend(os.pipe())
        ours = (made[1], made[2], made[4])
        for descriptor in ours:
            os.set_blocking(descriptor, False)
    except OSError:
        for descriptor in made:
            os.close(descriptor)
        raise
    return Pipes(*ours, (made[0], made[3], made[5]))


def _socket_pair() -> tuple[int, int]:
    """Return a reading and a writing end."""
    source, sink = socket.socketpair()
    sink.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return source.detach(), sink.detach()


class _Stream:
    """The reading end of a pipe, without the output before the nonce."""

    def __init__(self, descriptor: int, noise: NoiseFilter) -> None:
        self._descriptor = descriptor
        self._early = b""
        self._is_large = not hasattr(fcntl, "F_SETPIPE_SZ")
        self.noise = noise
        self.ended = False

    async def receive(self, max_bytes: int) -> bytes:
        await anyio.lowlevel.checkpoint()
        if max_bytes > BULK and not self._is_large and not self.ended:
            self._enlarge()
        while not self._early and not self.ended:
            self._early = self.noise.feed(await self._read(max_bytes))
        data, self._early = self._early[:max_bytes], self._early[max_bytes:]
        return data

    def _enlarge(self) -> None:
        self._is_large = True
        with suppress(OSError):  # the user's limit is reached: keep the size
            fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, BULK_PIPE)

    async def wait_for_start(self) -> bool:
        """Read up to the nonce; return False if the stream ended without it."""
        while not self.noise.passed and not self.ended:
            self._early = self.noise.feed(await self._read(65536))
        return self.noise.passed

    async def _read(self, max_bytes: int) -> bytes:
        while not self.ended:
            try:
                data = os.read(self._descriptor, max_bytes)
            except BlockingIOError:
                await self._readable()
                continue
            self.ended = not data
            return data
        return b""

    async def _readable(self) -> None:
        try:
            await anyio.wait_readable(self._descriptor)
        except anyio.ClosedResourceError:
            self.ended = True


class MuxProcess(Process):
    """A program started through a control master.

    Args:
        target: for messages.
        session: the connection to the master that holds the session.
        pipes: the program's streams; the process closes them.
        nonce: the word that marks the program's start on both output streams.
        on_close: called once, when the session no longer counts towards the server's limit.
    """

    def __init__(
        self, target: Target, session: MuxConnection, pipes: Pipes, nonce: str, on_close: Callable[[], None]
    ) -> None:
        self._target = target
        self._session = session
        self._pipes = pipes
        self._stdout = _Stream(pipes.stdout, NoiseFilter(nonce, "stdout"))
        self._stderr = _Stream(pipes.stderr, NoiseFilter(nonce, "stderr"))
        self._stdin_open = True
        self._closed = False
        self._on_close = on_close
        self._status: int | None = None
        self._ended = False  # the master closed the session: no more messages follow
        self._status_turn = anyio.Lock()

    async def wait_for_start(self) -> bool:
        """Wait until the program has started; return False if the session ended first."""
        return await self._stdout.wait_for_start()

    async def last_words(self) -> str:
        """Return what the login shell printed instead of starting the program; call it after the shell's exit."""
        await self._stderr.wait_for_start()
        words = (self._stdout.noise.noise + b"\n" + self._stderr.noise.noise).decode("utf-8", "replace")
        return " ".join(words.split())

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._stdout.receive(max_bytes)

    async def receive_stderr(self, max_bytes: int = 65536) -> bytes:
        return await self._stderr.receive(max_bytes)

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        view = memoryview(data)
        while view:
            if not self._stdin_open:
                raise BrokenPipeError("the input was closed")
            try:
                view = view[os.write(self._pipes.stdin, view) :]
            except BlockingIOError:
                await self._writable()
            except ConnectionResetError as error:  # what a socket reports when the reader closed with data unread
                raise BrokenPipeError("the program no longer reads its input") from error

    async def _writable(self) -> None:
        try:
            await anyio.wait_writable(self._pipes.stdin)
        except anyio.ClosedResourceError as error:
            raise BrokenPipeError("the input was closed") from error

    async def send_eof(self) -> None:
        self._close_stdin()
        await anyio.lowlevel.checkpoint()

    def _close_stdin(self) -> None:
        if self._stdin_open:
            self._stdin_open = False
            anyio.notify_closing(self._pipes.stdin)
            os.close(self._pipes.stdin)

    async def wait(self) -> int:
        await anyio.lowlevel.checkpoint()
        async with self._status_turn:
            try:
                while self._status is None:
                    await self._next_message()
            except MuxError as error:
                raise ConnectionLost(
                    "no exit status: the connection was lost, or the session was killed on the target",
                    target=self._target,
                    hint="the program may still be running",
                ) from error
        return self._status

    async def _next_message(self) -> None:
        try:
            packet = await self._session.receive()
        except MuxError:
            self._ended = True
            raise
        if packet.kind == Message.EXIT_MESSAGE:
            self._status = packet.integer(1)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            self._close_stdin()
            await self._settle()
            self._session.close()
            for stream in (self._stdout, self._stderr):
                stream.ended = True
            for descriptor in (self._pipes.stdout, self._pipes.stderr):
                anyio.notify_closing(descriptor)
                os.close(descriptor)
            self._on_close()

    async def _settle(self) -> None:
        """After a normal exit, wait until the server has closed the session: until then it counts towards the limit."""
        if self._status is None or not (self._stdout.ended and self._stderr.ended) or self._status_turn.locked():
            return
        with anyio.move_on_after(SETTLE_TIMEOUT), suppress(MuxError):
            while not self._ended:
                await self._next_message()
