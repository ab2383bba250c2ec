"""A dashboard's side of a connection to one harness process."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from ..errors import HarnessError
from ..system.background_tasks import open_background_tasks
from ..system.descriptor_stream import read_when_ready, write_when_ready
from .access_token import proof_for, read_token
from .peers import peer_of
from .protocol import (
    PROTOCOL_VERSION,
    Authorize,
    Complete,
    Goodbye,
    Hello,
    LineBuffer,
    Message,
    ProtocolError,
    Reply,
    Request,
    SessionChanged,
    SessionEnded,
    StreamEnded,
    StreamItem,
    Watch,
    decode,
    encode,
)
from .sessions.state import ProcessFacts, SessionState
from .sockets import connect_to

__all__ = ["ProcessClient", "ProcessLeft", "open_client", "open_stream"]

HELLO_TIMEOUT = 10.0
"""Seconds for a process to say what it is; a stopped one does not."""


class ProcessLeft(HarnessError):
    """The process has closed the connection, or has ended."""


@dataclass(slots=True)
class _Pending:
    """A request without an answer yet; ``ended`` is also set when the connection is closed."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    reply: Reply | None = None


class ProcessClient:
    """One connection; :func:`open_client` opens it.

    Args:
        connected: The connected, non-blocking socket.
        hello: The process's first message.
        changed: Called after each change of :attr:`sessions`.
    """

    def __init__(self, connected: socket.socket, hello: Hello, changed: Callable[[], None]) -> None:
        self._socket = connected
        self._hello = hello
        self._changed = changed
        self._sending = anyio.Lock()
        self._number = 0
        self._pending: dict[int, _Pending] = {}
        self._closed = anyio.Event()
        self._documents: dict[str, dict[str, Any]] = {}
        self.facts = ProcessFacts.from_json(hello.process)
        self.sessions: dict[str, SessionState] = {}
        self.is_complete = False
        """Whether the state of every session was received."""
        self.goodbye = ""
        """Why the process closed the connection, if it said so."""

    @property
    def peer_pid(self) -> int | None:
        """The process that listens, as the kernel reports it; None where it does not."""
        peer = peer_of(self._socket)
        return None if peer is None else peer.pid

    # -- receiving

    async def serve(self, lines: LineBuffer, received: list[bytes]) -> None:
        """Take messages until the process closes the connection."""
        try:
            while True:
                for line in received:
                    self._take(decode(line))
                data = await read_when_ready(self._socket, lambda: self._socket.recv(1 << 18))
                if not data:
                    return
                received = lines.feed(data)
        except (OSError, ProtocolError) as error:
            self.goodbye = self.goodbye or str(error)
        finally:
            self._closed.set()
            for pending in self._pending.values():
                pending.ended.set()

    def _take(self, message: Message | None) -> None:
        match message:
            case SessionChanged():
                document = self._documents.setdefault(message.session, {})
                document.update(message.fields)
                self.sessions[message.session] = _session_of(document)
                self._changed()
            case SessionEnded():
                self._documents.pop(message.session, None)
                self.sessions.pop(message.session, None)
                self._changed()
            case Complete():
                self.is_complete = True
                self._changed()
            case Reply() if (pending := self._pending.get(message.request)) is not None:
                pending.reply = message
                pending.ended.set()
            case Goodbye():
                self.goodbye = message.reason

    # -- asking

    async def watch(self) -> None:
        """Ask for the sessions, which are in :attr:`sessions` from then on."""
        await self._send(Watch())

    async def authorize(self, name: str) -> None:
        """Prove that this client may act.

        Args:
            name: Who acts, for the audit log.

        Raises:
            HarnessError: The process refuses it.
        """
        token = await to_thread.run_sync(partial(read_token, create=True))
        assert token is not None
        proof = proof_for(token, self._hello.challenge, self.peer_pid or 0, name)
        await self._ask(lambda number: Authorize(number, name, proof))

    async def request(
        self, session: str, action: str, arguments: Mapping[str, Any] | None = None, *, name: str = ""
    ) -> Mapping[str, Any]:
        """Ask a session for an action or a query, and return its result.

        Args:
            session: The session's ID.
            action: One of :data:`.session.ACTIONS` or :data:`.session.QUERIES`.
            arguments: Its arguments.
            name: Who asks, if that is not the name of :meth:`authorize`.

        Raises:
            HarnessError: The process refused it, or it failed.
            ProcessLeft: The connection was closed before the answer.
        """
        return await self._ask(lambda number: Request(number, session, action, dict(arguments or {}), name))

    async def _ask(self, made: Callable[[int], Message]) -> Mapping[str, Any]:
        self._number += 1
        number = self._number
        pending = self._pending[number] = _Pending()
        try:
            await self._send(made(number))
            if not self._closed.is_set():
                await pending.ended.wait()
        finally:
            del self._pending[number]
        if pending.reply is None:
            raise ProcessLeft(self.goodbye or "the process closed the connection before it answered")
        if not pending.reply.ok:
            raise HarnessError(pending.reply.error, hint=pending.reply.hint)
        return pending.reply.result

    async def _send(self, message: Message) -> None:
        try:
            async with self._sending:
                with self._closing_if_cancelled():
                    await write_when_ready(self._socket, encode(message), self._socket.send)
        except OSError:
            raise ProcessLeft(self.goodbye or "the process has closed the connection") from None

    @contextmanager
    def _closing_if_cancelled(self) -> Iterator[None]:
        """Close the connection if the caller is cancelled inside: the rest of its line would be part of the next."""
        try:
            yield
        except anyio.get_cancelled_exc_class():
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            raise

    async def wait_closed(self) -> None:
        """Wait until the process has closed the connection."""
        await self._closed.wait()


def _session_of(document: Mapping[str, Any]) -> SessionState:
    """Return the state of a session; a process of another version may send what this one cannot read."""
    try:
        return SessionState.from_json(document)
    except (TypeError, ValueError, AttributeError):
        return SessionState(
            session=str(document.get("session")), kind=str(document.get("kind")), note="sent by another version"
        )


async def _hello(connected: socket.socket, lines: LineBuffer) -> tuple[Hello, list[bytes]]:
    """Return the first message, and the lines after it."""
    received: list[bytes] = []
    with anyio.move_on_after(HELLO_TIMEOUT):
        while not received:
            data = await read_when_ready(connected, lambda: connected.recv(1 << 16))
            if not data:
                raise ProcessLeft("the process closed the connection")
            received = lines.feed(data)
    message = decode(received[0]) if received else None
    if isinstance(message, Goodbye):
        raise ProcessLeft(message.reason)
    if not isinstance(message, Hello):
        raise ProcessLeft("the process does not answer" if not received else "the process speaks another protocol")
    if message.version != PROTOCOL_VERSION:
        raise HarnessError(f"the process speaks version {message.version} of the protocol, not {PROTOCOL_VERSION}")
    return message, received[1:]


@asynccontextmanager
async def _connect(path: Path, lines: LineBuffer) -> AsyncIterator[tuple[socket.socket, Hello, list[bytes]]]:
    """Connect to the process of a socket; yields the connection, its first message, and the lines after it.

    Raises:
        ProcessLeft: The process refuses the connection, or does not answer.
    """
    try:
        connected = connect_to(path)
    except OSError as error:
        raise ProcessLeft(f"cannot connect to the process: {(error.strerror or str(error)).lower()}") from error
    with connected:
        try:
            hello, received = await _hello(connected, lines)
        except OSError as error:
            raise ProcessLeft(f"the connection was closed: {(error.strerror or str(error)).lower()}") from error
        yield connected, hello, received


@asynccontextmanager
async def open_client(path: Path, changed: Callable[[], None] = lambda: None) -> AsyncIterator[ProcessClient]:
    """Connect to the process of a socket.

    Args:
        path: The socket.
        changed: Called after each change of the client's sessions.

    Raises:
        ProcessLeft: The process refuses the connection, or does not answer.
    """
    lines = LineBuffer()
    async with _connect(path, lines) as (connected, hello, received):
        client = ProcessClient(connected, hello, changed)
        async with open_background_tasks() as tasks:
            tasks.start_soon(client.serve, lines, received)
            yield client


async def open_stream(
    path: Path, session: str, stream: str, arguments: Mapping[str, Any] | None = None
) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield the items of a stream over a connection of its own, as fast as they are fetched.

    Args:
        path: The socket of the process.
        session: The session's ID.
        stream: One of :data:`.session.STREAMS`.
        arguments: Its arguments.

    Raises:
        HarnessError: The process cannot open it, or it was ended.
        ProcessLeft: The connection was closed.
    """
    lines = LineBuffer()
    async with _connect(path, lines) as (connected, _, first_lines):
        received = first_lines
        request = encode(Request(1, session, stream, dict(arguments or {})))
        with suppress(OSError):  # closed by the process; what it sent before is read below
            await write_when_ready(connected, request, connected.send)
        while True:
            for line in received:
                message = decode(line)
                if isinstance(message, StreamItem):
                    yield message.item
                elif isinstance(message, StreamEnded):
                    if message.reason:
                        raise HarnessError(message.reason)
                    return
                elif isinstance(message, Reply) and not message.ok:  # of a version without this stream
                    raise HarnessError(message.error, hint=message.hint)
                elif isinstance(message, Goodbye):
                    raise ProcessLeft(message.reason)
            try:
                data = await read_when_ready(connected, lambda: connected.recv(1 << 18))
            except OSError:
                data = b""
            if not data:
                raise ProcessLeft("the process has ended")
            received = lines.feed(data)
