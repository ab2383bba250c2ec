"""The sessions of the HTTP server: each client has its own, and there are only so many."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import mcp_types as types
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from ..errors import HarnessError
from .answering import TAKEN, Answering
from .http_requests import AnswersSeen, RequestsSeen, request_id_of, with_unheard
from .server import ClientSession

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

__all__ = ["IDLE_LIMIT", "SESSIONS", "HttpSessions", "http_sessions"]

SESSIONS = 32
"""Sessions at once."""
IDLE_LIMIT = 30 * 60.0
"""Seconds after which a session ends whose client sends nothing and listens to nothing."""
log = logging.getLogger("harness.mcp")

OpenSession = Callable[[], AbstractAsyncContextManager[ClientSession]]


@dataclass(frozen=True, slots=True)
class _Session:
    """One client's transport, and what it waits for."""

    transport: StreamableHTTPServerTransport
    answering: Answering = field(default_factory=Answering)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, unless one with its id is still being answered."""
        first = await receive()  # the whole body: the limit of its length has gathered it
        request_id = request_id_of(first.get("body", b"")) if scope["method"] == "POST" else None
        if request_id is not None and not self.answering.begin(request_id):
            await _refuse(scope, receive, send, 400, types.INVALID_REQUEST, TAKEN)
            return
        status, unheard = _Status(send), anyio.Event()
        try:
            known = with_unheard(_from_now_on(scope), unheard)
            await self.transport.handle_request(known, _after(first, receive), status)
        finally:
            unheard.set()
            if request_id is not None and not status.begun:
                self.answering.end(request_id)


class HttpSessions:
    """An ASGI application: streamable HTTP, with a session for each client that begins one.

    Requests have passed the guard already.
    """

    def __init__(self, open_session: OpenSession, tasks: TaskGroup, limit: int, idle_limit: float) -> None:
        self._open_session = open_session
        self._tasks = tasks
        self._limit = limit
        self._idle_limit = idle_limit
        self._sessions: dict[str, _Session] = {}
        self._ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
        session_id = headers.get(MCP_SESSION_ID_HEADER)
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            await _refuse(scope, receive, send, 400, *_unsupported(version))
        elif session_id is None:
            await self._begin(scope, receive, send)
        elif (session := self._sessions.get(session_id)) is not None:
            await session.handle(scope, receive, send)
            if session.transport.is_terminated:
                self._sessions.pop(session_id, None)
        else:
            await _refuse(scope, receive, send, 404, types.INVALID_REQUEST, "there is no such session, or it has ended")

    async def close(self) -> None:
        """End all sessions, and take no more."""
        self._ending = True
        for session in list(self._sessions.values()):
            await session.transport.terminate()

    async def _begin(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._ending or len(self._sessions) >= self._limit:
            log.warning("refused a session: %d are open", len(self._sessions))
            await _refuse(scope, receive, send, 503, types.INTERNAL_ERROR, "there are too many sessions; end one first")
            return
        transport = StreamableHTTPServerTransport(secrets.token_hex(16), idle_timeout=self._idle_limit)
        session_id = str(transport.mcp_session_id)
        self._sessions[session_id] = opened = _Session(transport)  # from here on it counts
        status = _Status(send)
        try:
            try:
                await self._tasks.start(self._serve, opened, session_id)
            except HarnessError as error:
                log.error("a session could not be opened: %s", error)
                reason = "the session could not be opened; the server's log says why"
                await _refuse(scope, receive, send, 500, types.INTERNAL_ERROR, reason)
                return
            await transport.handle_request(scope, receive, status)
        finally:
            if not status.good:
                await self._discard(session_id)

    async def _serve(self, opened: _Session, session_id: str, *, task_status: TaskStatus[None]) -> None:
        started, transport = False, opened.transport
        try:
            async with self._open_session() as session, transport.connect() as (incoming, outgoing):
                started = True
                task_status.started()
                log.info("a session begins; there are %d", len(self._sessions))
                with transport.idle_scope or anyio.CancelScope():
                    answers = AnswersSeen(outgoing, opened.answering)
                    await session.serve(RequestsSeen(incoming, answers), answers, session_id)
        except Exception:
            if not started:
                raise  # to whoever waits for the session
            log.exception("a session ended by an error")
        finally:
            await self._discard(session_id)

    async def _discard(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None and not session.transport.is_terminated:
            with anyio.CancelScope(shield=True):
                await session.transport.terminate()


@asynccontextmanager
async def http_sessions(
    open_session: OpenSession, *, limit: int = SESSIONS, idle_limit: float = IDLE_LIMIT
) -> AsyncIterator[HttpSessions]:
    """The application; all sessions are ended when it is left."""
    async with anyio.create_task_group() as tasks:
        sessions = HttpSessions(open_session, tasks, limit, idle_limit)
        try:
            yield sessions
        finally:
            with anyio.CancelScope(shield=True):
                await sessions.close()
            tasks.cancel_scope.cancel()


class _Status:
    """Passes an answer on, and knows what kind of one it was."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.good = False
        self.begun = False
        """A request is being answered: what was refused, or was no request after all, has another status."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.good = message["status"] < 400
            self.begun = message["status"] == 200
        await self._send(message)


def _after(first: Message, receive: Receive) -> Receive:
    """What gives ``first``, which has been received already, and then the rest."""
    kept = [first]

    async def replay() -> Message:
        return kept.pop() if kept else await receive()

    return replay


def _from_now_on(scope: Scope) -> Scope:
    """A request without the event after which it wants to go on: nothing is replayed, as no event has an id."""
    kept = [(name, value) for name, value in scope["headers"] if name != b"last-event-id"]
    return {**scope, "headers": kept}


def _unsupported(version: str) -> tuple[int, str, dict[str, object]]:
    data: dict[str, object] = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version}
    return types.UNSUPPORTED_PROTOCOL_VERSION, "this server keeps sessions: begin with initialize", data


async def _refuse(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    code: int,
    message: str,
    data: dict[str, object] | None = None,
) -> None:
    from starlette.responses import JSONResponse

    error: dict[str, object] = {"code": code, "message": message} | ({"data": data} if data is not None else {})
    await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status)(scope, receive, send)
