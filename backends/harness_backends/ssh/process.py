"""A program on the other side of a control master: one session, three streams, one exit status.

Standard input is a socket pair and the outputs are pipes. A full pipe is writable again as soon as one page of it is
free, so that a sender is woken for every few kilobytes; a socket only when half of it is. A pipe of a megabyte reads in
large pieces, but the system lends each user few of those, so a pipe grows when the caller asks for large pieces.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from harness.errors import ConnectionLost
from harness.target import Target
from harness.transport import Process

from .mux import Message, MuxConnection, MuxError
from .remote import NoiseFilter

__all__ = ["MuxProcess", "Pipes", "open_pipes"]

SETTLE_TIMEOUT = 1.0

SEND_BUFFER = 1 << 20
"""Bytes asked for; the system gives what it allows, 208 KiB by default on Linux."""
BULK = 1 << 17
"""Who asks for more bytes than this at once is moving a file."""
BULK_PIPE = 1 << 20
"""The most that Linux gives to ordinary users, who have 64 of them."""


@dataclass(frozen=True, slots=True)
class Pipes:
    """Both ends of a program's three streams: ours, and the three that the master gets."""

    stdin: int
    stdout: int
    stderr: int
    theirs: tuple[int, int, int]

    def close_theirs(self) -> None:
        """Close the master's ends here, so that their end can be seen."""
        for descriptor in self.theirs:
            os.close(descriptor)

    def close_ours(self) -> None:
        """Close the ends that are used here."""
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.close(descriptor)


def open_pipes() -> Pipes:
    """The three streams; the ends used here do not block."""
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
    """A reading and a writing end."""
    source, sink = socket.socketpair()
    sink.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return source.detach(), sink.detach()


class _Stream:
    """The reading end of a pipe, without what came before the nonce."""

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
        with suppress(OSError):  # the user has no more of them: this one stays as it is
            fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, BULK_PIPE)

    async def wait_for_start(self) -> bool:
        """Read up to the nonce; False when the stream ended without it."""
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
        pipes: the program's streams; closed by this.
        nonce: what the program's start is marked with on both output streams.
        on_close: called once, when the session no longer counts against the server's limit.
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
        self._ended = False  # the master closed the session: no more messages
        self._status_turn = anyio.Lock()

    async def wait_for_start(self) -> bool:
        """Wait until the program is started; False when the session ended before."""
        return await self._stdout.wait_for_start()

    async def last_words(self) -> str:
        """What the login shell printed instead of starting the program; call it after its end."""
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
            except ConnectionResetError as error:  # a socket's word for a reader that left something unread
                raise BrokenPipeError("the program reads no more") from error

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
        """After an end in order, wait for the server to forget the session: it counts against its limit until then."""
        if self._status is None or not (self._stdout.ended and self._stderr.ended) or self._status_turn.locked():
            return
        with anyio.move_on_after(SETTLE_TIMEOUT), suppress(MuxError):
            while not self._ended:
                await self._next_message()
