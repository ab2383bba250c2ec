"""One client of an announced process: what it is sent, and what it asks for.

Its state is sent as it is when the client reads, so a slow client gets fewer messages and delays nothing. What it asks
for is bounded, and the items of its streams are fetched as fast as it reads them.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from ..errors import HarnessError
from ..system.background_tasks import BackgroundTasks, open_background_tasks
from ..system.descriptor_stream import read_when_ready, write_when_ready
from .access_token import is_proof, new_challenge, read_token
from .peers import acting_refusal, peer_of
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
    StopStream,
    StreamEnded,
    StreamItem,
    Watch,
    decode,
    encode,
)
from .sessions.session import ACTIONS, QUERIES, STREAMS, AnnouncedSessions, LiveSession
from .sessions.state import ProcessFacts
from .sockets import listed_processes

__all__ = ["Connection"]

MAX_BUFFERED_BYTES = 256 << 10
"""Bytes for a client from which the items of its streams wait."""
MAX_UNREAD_BYTES = 4 << 20
"""Bytes for a client from which it has to go; its requests would use up the memory."""
MAX_REQUESTS = 64
"""Maximum requests and streams of a client at the same time."""
MAX_NAME_CHARS = 64
MIN_INTERVAL = 0.03
"""Seconds between two reports of the state."""
GOODBYE_TIMEOUT = 2.0
"""Seconds for the last message to a client that is refused."""
TOO_MANY = f"more than {MAX_REQUESTS} requests at the same time"
LAST_ANSWERS_TIMEOUT = 0.5
"""Seconds that the end of the process waits for a client to take the answers to its requests."""
log = logging.getLogger(__name__)


class Connection:
    """The process's side of a connection.

    Args:
        announcement: What the process shows.
        connected: The connected, non-blocking socket, which the caller closes.
    """

    def __init__(self, announcement: AnnouncedSessions, connected: socket.socket) -> None:
        self._announcement = announcement
        self._socket = connected
        self._peer = peer_of(connected)
        self._challenge = new_challenge()
        self._name = ""
        self._outgoing: deque[bytes] = deque()
        self._buffered = 0
        self._wakeup = anyio.Event()
        self._drained = anyio.Event()
        self._is_watching = False
        self._has_news = False
        self._sent: dict[str, dict[str, Any]] = {}
        self._pending: dict[int, anyio.CancelScope] = {}
        self._is_leaving = False
        self._is_sending = False
        self._is_closed = False
        self._left = anyio.Event()

    # -- the connection

    def refusal(self) -> str:
        """Return why the client is not served at all; empty if it is."""
        if self._peer is not None and self._peer.uid != os.geteuid():
            return f"it is a process of another user ({self._peer.uid})"
        return ""

    async def refuse(self, reason: str) -> None:
        """Send the reason, and nothing else."""
        with anyio.move_on_after(GOODBYE_TIMEOUT), suppress(OSError):
            await self._send(encode(Goodbye(reason)))

    async def serve(self) -> None:
        """Serve the client until it disconnects, or breaks the protocol."""
        facts = ProcessFacts(
            self._announcement.here.pid, self._announcement.kind, self._announcement.started, _version()
        )
        try:
            await self._serve(facts)
        except OSError:
            log.debug("a dashboard has closed its connection", exc_info=True)
        finally:
            self._is_closed = True
            await self._send_rest()

    async def _send_rest(self) -> None:
        """Send the answers that wait: a request that ended the command, such as ``cancel``, is answered, too."""
        if self._is_sending:
            return  # a part of a message was sent
        with anyio.move_on_after(LAST_ANSWERS_TIMEOUT, shield=True), suppress(OSError):
            while self._outgoing:
                await self._send(self._outgoing.popleft())

    async def _serve(self, facts: ProcessFacts) -> None:
        await self._send(encode(Hello(PROTOCOL_VERSION, facts.to_json(), self._challenge)))
        async with open_background_tasks() as tasks:
            tasks.start_soon(self._write)
            if reason := await self._read(tasks):
                await self._leave(reason)

    async def _leave(self, reason: str) -> None:
        """Send the reason after the message that is being sent, if the client reads it in time."""
        self._outgoing.clear()
        self._post(Goodbye(reason))
        self._is_leaving = True
        with anyio.move_on_after(GOODBYE_TIMEOUT):
            await self._left.wait()

    async def _read(self, tasks: BackgroundTasks) -> str:
        """Handle the client's messages until it disconnects, and return why it has to go."""
        lines = LineBuffer()
        while data := await read_when_ready(self._socket, lambda: self._socket.recv(1 << 16)):
            if self._buffered > MAX_UNREAD_BYTES:
                return "it sends requests and does not read the answers"
            try:
                for line in lines.feed(data):
                    self._handle(decode(line), tasks)
            except ProtocolError as error:
                return str(error)
        return ""

    # -- writing

    def state_changed(self) -> None:
        """Report the state of the sessions when the client next reads. Never waits."""
        self._has_news = self._is_watching
        self._wakeup.set()

    def _post(self, message: Message) -> None:
        line = encode(message)
        self._outgoing.append(line)
        self._buffered += len(line)
        self._wakeup.set()

    async def _put(self, message: Message) -> None:
        """Send a message once the client has read enough of those before it."""
        while self._buffered > MAX_BUFFERED_BYTES:
            if self._drained.is_set():  # several streams may wait
                self._drained = anyio.Event()
            await self._drained.wait()
        self._post(message)

    async def _write(self) -> None:
        """Send what waits, then what has changed."""
        is_complete = False
        while True:
            while self._outgoing:
                line = self._outgoing.popleft()
                await self._send(line)
                self._buffered -= len(line)
                self._drained.set()
            if self._is_leaving:
                self._left.set()
                return
            if self._has_news:
                self._has_news = False
                await self._send_changes()
                if not is_complete:
                    await self._send(encode(Complete()))
                    is_complete = True
                await anyio.sleep(MIN_INTERVAL)
                continue
            self._wakeup = anyio.Event()
            await self._wakeup.wait()

    async def _send_changes(self) -> None:
        for message in self._changes():
            if self._is_leaving:
                return
            await self._send(encode(message))

    async def _send(self, line: bytes) -> None:
        self._is_sending = True
        await write_when_ready(self._socket, line, self._socket.send)
        self._is_sending = False

    def _changes(self) -> Iterator[Message]:
        """Yield what the client does not know yet."""
        states = {name: _state_of(session) for name, session in list(self._announcement.sessions.items())}
        for name in self._sent.keys() - states.keys():
            yield SessionEnded(name)
        for name, state in states.items():
            known = self._sent.get(name, {})
            fields = {key: value for key, value in state.items() if key not in known or known[key] != value}
            if fields:
                yield from _changes_of(name, fields)
        self._sent = states

    # -- requests

    @property
    def may_act(self) -> bool:
        """Whether the client has proved that it may act."""
        return bool(self._name)

    def _handle(self, message: Message | None, tasks: BackgroundTasks) -> None:
        if isinstance(message, Watch):
            self._is_watching = True
            self.state_changed()
        elif isinstance(message, StopStream):
            if (scope := self._pending.get(message.request)) is not None:
                scope.cancel()
        elif isinstance(message, Authorize | Request):
            if len(self._pending) >= MAX_REQUESTS:
                raise ProtocolError(TOO_MANY)
            if message.request in self._pending:
                raise ProtocolError(f"the request {message.request} is still being worked on")
            scope = self._pending[message.request] = anyio.CancelScope()
            if isinstance(message, Authorize):
                tasks.start_soon(self._answer, message.request, scope, partial(self._authorize, message))
            elif message.action in STREAMS:
                tasks.start_soon(self._stream, message, scope)
            else:  # continues if the client disconnects
                work = partial(self._request, message)
                self._announcement.start_soon(partial(self._answer, message.request, scope, work))

    async def _answer(self, request: int, scope: anyio.CancelScope, work: Any) -> None:
        """Run the work of a request and send its result, or its error."""
        reply = Reply(request, ok=False, error="cancelled")
        try:
            with scope:
                reply = Reply(request, ok=True, result=await work())
        except HarnessError as error:
            reply = Reply(request, ok=False, error=error.message, hint=error.hint)
        except Exception as error:  # of this request, which must end nothing else
            log.debug("a request of a dashboard failed", exc_info=True)
            reply = Reply(request, ok=False, error=f"internal error: {type(error).__name__}: {error}")
        del self._pending[request]
        try:
            self._post(reply)
        except ProtocolError as error:
            self._post(Reply(request, ok=False, error=str(error)))

    async def _authorize(self, message: Authorize) -> Mapping[str, Any]:
        here = self._announcement.here
        others = await to_thread.run_sync(listed_processes, here)
        known = {(one.pid, one.started) for one in (here, *others.values())}
        if refusal := await to_thread.run_sync(acting_refusal, self._peer, known):
            raise HarnessError(f"this client may not act: {refusal}", hint="start the dashboard in a shell of your own")
        token = await to_thread.run_sync(partial(read_token, create=False))
        if token is None or not is_proof(message.proof, token, self._challenge, here.pid, message.name):
            raise HarnessError("this client may not act: it does not have the token of this user")
        self._name = _clean_name(message.name) or "unnamed"
        return {"name": self._name}

    async def _request(self, message: Request) -> Mapping[str, Any]:
        session = self._session_of(message)
        if message.action in QUERIES:
            return await session.query(message.action, message.arguments)
        if message.action not in ACTIONS:
            raise HarnessError(f"unknown action: {message.action}", hint="this process has another version of harness")
        if not self._name:
            raise HarnessError("this client may not act: it has not proved that it has the token of this user")
        by = _clean_name(message.name) or self._name
        log.info("%s: %s", by, message.action)
        result = await session.act(message.action, message.arguments, f"dashboard: {by}")
        if "pane" in result:
            self._announcement.leases.note(
                (message.session, str(result["pane"]), f"dashboard: {by}"), message.action, self
            )
        if self._is_closed:
            self._announcement.release_panes_of(self)
        return result

    def _session_of(self, message: Request) -> LiveSession:
        session = self._announcement.sessions.get(message.session)
        if session is None:
            raise HarnessError(f"there is no session {message.session} in this process any more")
        return session

    # -- streams

    async def _stream(self, message: Request, scope: anyio.CancelScope) -> None:
        reason = ""
        try:
            with scope:
                await self._send_items(message)
        except HarnessError as error:
            reason = str(error)
        except Exception as error:  # of this stream, which must end nothing else
            log.debug("a stream of a dashboard failed", exc_info=True)
            reason = f"internal error: {type(error).__name__}: {error}"
        del self._pending[message.request]
        self._post(StreamEnded(message.request, reason))

    async def _send_items(self, message: Request) -> None:
        items = self._session_of(message).open_stream(message.action, message.arguments)
        async with aclosing(items):
            async for item in items:
                await self._put(StreamItem(message.request, item))


def _state_of(session: LiveSession) -> dict[str, Any]:
    """Return the state to send; what cannot be shown must not end the program."""
    try:
        return session.state().to_json()
    except Exception as error:
        log.debug("the state of session %s cannot be shown", session.session_id, exc_info=True)
        return {"session": session.session_id, "note": f"internal error: {type(error).__name__}"}


def _changes_of(session: str, values: Mapping[str, Any]) -> Iterator[SessionChanged]:
    """Yield changes in messages of the permitted length; a list that is too long for one loses entries."""
    if _fits(whole := SessionChanged(session, values)):
        yield whole
        return
    for name, value in values.items():
        while not _fits(SessionChanged(session, {name: value})):
            half = len(value) // 2
            value = value[:half] if name == "approvals" else value[half + len(value) % 2 :]  # noqa: PLW2901  # cut
        yield SessionChanged(session, {name: value})


def _fits(message: Message) -> bool:
    try:
        encode(message)
    except ProtocolError:
        return False
    return True


def _clean_name(name: str) -> str:
    """Return a name to record: printable and short."""
    return "".join(char if char.isprintable() else "?" for char in name)[:MAX_NAME_CHARS].strip()


def _version() -> str:
    from importlib.metadata import version

    return version("harness-ops")
