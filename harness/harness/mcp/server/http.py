"""The MCP server over HTTP: its token, access checks, a session per client, and the socket."""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import mcp_types as types
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from ...errors import ConfigError, HarnessError
from ...system.account import expand_home
from ...system.http_server import Address, header_value, names_of, serve_http, site_refusal
from ...system.private_files import make_directories, state_home, write_new_file
from ...toolkit.permissions.rules.rule import Action, Rule
from ...toolkit.permissions.rules.store import RuleFile
from .requests import (
    DUPLICATE_ID_MESSAGE,
    PendingRequests,
    TrackedRequests,
    TrackedResponses,
    request_id_of,
    with_unheard,
)
from .server import ClientSession

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = [
    "BODY_LIMIT",
    "IDLE_LIMIT",
    "MINIMUM",
    "PATH",
    "SESSIONS",
    "VARIABLE",
    "HttpAuthMiddleware",
    "HttpSessions",
    "Token",
    "check_address",
    "default_token_path",
    "deny_token_file",
    "find_token",
    "http_server",
    "http_sessions",
    "mcp_url",
    "refusal_of",
]


# -- The token: from the environment, or from a private file that is created if missing


VARIABLE = "HARNESS_MCP_TOKEN"
MINIMUM = 32
"""Minimum characters of a token."""
LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Token:
    """A secret, and its origin, which may be shown."""

    secret: str = field(repr=False)
    origin: str
    file: Path | None = None
    """The real path of its file, if that is not the default file."""

    def matches(self, offered: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(self.secret.encode(), offered.encode("utf-8", "surrogateescape"))


def default_token_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return the default path of the token file."""
    return state_home(environ) / "mcp-token"


def find_token(file: str | None, environ: Mapping[str, str] | None = None) -> Token:
    """Return the token from ``file``, else from :data:`VARIABLE`, else from the default file.

    Raises:
        ConfigError: it is too short, or other users could read or change its file.
    """
    env = os.environ if environ is None else environ
    if file is None and (value := env.get(VARIABLE)):
        return Token(_checked(value, VARIABLE), VARIABLE)
    path = expand_home(file) if file is not None else default_token_path(env)
    try:
        secret = _checked(_read_or_make(path), str(path))
        return Token(secret, str(path), None if file is None else Path(os.path.realpath(path)))
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def deny_token_file(token: Token, rules: RuleFile) -> None:
    """Add a rule to the user's rule file that denies every harness access to a token's file. Blocks.

    Raises:
        ConfigError: the rule file is not trusted or not writable.
    """
    if token.file is not None:
        rules.add([Rule(Action.DENY, argument=str(token.file))])


def _read_or_make(path: Path) -> str:
    try:
        return _read(path)
    except FileNotFoundError:
        make_directories(path.parent)
    with suppress(FileExistsError):  # another harness created it first
        _make(path)
    return _read(path)


def _read(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"{path} is not a regular file")
        if info.st_uid != os.geteuid():
            raise ConfigError(f"{path} belongs to another user", hint="use a file of your own")
        if info.st_mode & 0o077:
            raise ConfigError(
                f"other users may read or write {path}", hint=f"chmod 600 {path}, and renew the token in it"
            )
        return file.read(LONGEST).strip()


def _make(path: Path) -> None:
    """Write a new token; the file is complete as soon as its name exists."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_new_file(draft, f"{secrets.token_urlsafe(32)}\n".encode("ascii"))
    try:
        os.link(draft, path)
    finally:
        draft.unlink()


def _checked(secret: str, origin: str) -> str:
    if len(secret) < MINIMUM or not secret.isascii() or any(char.isspace() for char in secret):
        raise ConfigError(
            f"{origin} contains no valid token: at least {MINIMUM} ASCII characters without spaces",
            hint="delete the file to create a new one" if origin != VARIABLE else "openssl rand -hex 32 creates one",
        )
    return secret


# -- Access: only requests with the token, a known Host name, and no Origin of another site


PATH = "/mcp"
log = logging.getLogger("harness.mcp")


def mcp_url(address: Address) -> str:
    """Return the URL for clients."""
    return f"http://{address.authority}{PATH}"


def refusal_of(headers: Sequence[tuple[bytes, bytes]], names: frozenset[str], token: Token) -> tuple[int, str] | None:
    """Return the HTTP status and reason to refuse a request with, or None to accept it. Pure.

    ``names`` are the authorities of the server, such as ``127.0.0.1:8765``.
    """
    scheme, _, offered = (header_value(headers, b"authorization") or "").partition(" ")
    is_authorized = scheme.lower() == "bearer" and token.matches(offered.strip())
    refusal = site_refusal(headers, names)
    if refusal is None and not is_authorized:
        return 401, "a token is required: Authorization: Bearer ..."
    return refusal


class HttpAuthMiddleware:
    """Passes authorized requests to ``app`` and refuses others without reading their bodies."""

    def __init__(self, app: ASGIApp, names: frozenset[str], token: Token) -> None:
        self._app = app
        self._names = names
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        from starlette.responses import PlainTextResponse

        if scope["type"] != "http":
            return
        refusal = refusal_of(scope["headers"], self._names, self._token)
        if refusal is None and scope["path"] == PATH:
            await self._app(scope, receive, send)
            return
        status, reason = refusal or (404, f"the server is at {PATH}")
        log.info("refused a request from %s: %s %s", (scope.get("client") or ["?"])[0], status, reason)
        more = {"WWW-Authenticate": 'Bearer realm="harness"'} if status == 401 else {}
        await PlainTextResponse(reason + "\n", status, {"Connection": "close", **more})(scope, receive, send)


# -- Sessions: each client has its own, up to a maximum number.


SESSIONS = 32
"""Maximum number of concurrent sessions."""
IDLE_LIMIT = 30 * 60.0
"""Seconds after which a session ends if its client sends nothing and listens to nothing."""

OpenSession = Callable[[], AbstractAsyncContextManager[ClientSession]]


@dataclass(frozen=True, slots=True)
class _Session:
    """One client's transport, and its pending requests."""

    transport: StreamableHTTPServerTransport
    answering: PendingRequests = field(default_factory=PendingRequests)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, unless one with its id is pending."""
        first = await receive()  # the whole body, which the body limit has collected
        request_id = request_id_of(first.get("body", b"")) if scope["method"] == "POST" else None
        if request_id is not None and not self.answering.begin(request_id):
            await _refuse(scope, receive, send, 400, types.INVALID_REQUEST, DUPLICATE_ID_MESSAGE)
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
    """An ASGI application for streamable HTTP, with a session for each client that starts one.

    Requests have passed :class:`HttpAuthMiddleware` before.
    """

    def __init__(self, open_session: OpenSession, tasks: TaskGroup, limit: int, idle_limit: float) -> None:
        self._open_session = open_session
        self._tasks = tasks
        self._limit = limit
        self._idle_limit = idle_limit
        self._sessions: dict[str, _Session] = {}
        self._ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
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
            await _refuse(scope, receive, send, 404, types.INVALID_REQUEST, "unknown session, or it has ended")

    async def close(self) -> None:
        """End all sessions and accept no more."""
        self._ending = True
        for session in list(self._sessions.values()):
            await session.transport.terminate()

    async def _begin(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._ending or len(self._sessions) >= self._limit:
            log.warning("refused a session: %d are open", len(self._sessions))
            await _refuse(scope, receive, send, 503, types.INTERNAL_ERROR, "too many sessions; end one first")
            return
        transport = StreamableHTTPServerTransport(secrets.token_hex(16), idle_timeout=self._idle_limit)
        session_id = str(transport.mcp_session_id)
        self._sessions[session_id] = opened = _Session(transport)  # counted while it is being opened
        status = _Status(send)
        try:
            try:
                await self._tasks.start(self._serve, opened, session_id)
            except HarnessError as error:
                log.error("cannot open a session: %s", error)
                reason = "cannot open a session; see the server's log"
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
                log.info("a session starts; %d are open", len(self._sessions))
                with transport.idle_scope or anyio.CancelScope():
                    answers = TrackedResponses(outgoing, opened.answering)
                    await session.serve(TrackedRequests(incoming, answers), answers, session_id)
        except Exception:
            if not started:
                raise  # to the caller that waits for the session
            log.exception("a session failed")
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
    """Open the application; all sessions are ended when the block is left."""
    async with anyio.create_task_group() as tasks:
        sessions = HttpSessions(open_session, tasks, limit, idle_limit)
        try:
            yield sessions
        finally:
            with anyio.CancelScope(shield=True):
                await sessions.close()
            tasks.cancel_scope.cancel()


class _Status:
    """Passes a response on and records its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.good = False
        self.begun = False
        """Whether the request is being answered; refusals and notifications have other statuses."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.good = message["status"] < 400
            self.begun = message["status"] == 200
        await self._send(message)


def _after(first: Message, receive: Receive) -> Receive:
    """Return a callable that returns ``first``, which was received already, and then the rest."""
    kept = [first]

    async def replay() -> Message:
        return kept.pop() if kept else await receive()

    return replay


def _from_now_on(scope: Scope) -> Scope:
    """Return a request without Last-Event-ID: events have no ids, so nothing can be replayed."""
    kept = [(name, value) for name, value in scope["headers"] if name != b"last-event-id"]
    return {**scope, "headers": kept}


def _unsupported(version: str) -> tuple[int, str, dict[str, object]]:
    data: dict[str, object] = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version}
    return types.UNSUPPORTED_PROTOCOL_VERSION, "this server requires sessions: start with initialize", data


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


# -- The HTTP server: a socket with uvicorn, and a bounded shutdown


BODY_LIMIT = 4 << 20
"""Maximum bytes of one request."""


def check_address(address: Address, *, allow_remote: bool) -> None:
    """Refuse an address that other machines can reach, unless ``allow_remote`` is set.

    Raises:
        ConfigError: other machines can reach the address.
    """
    if not address.is_loopback and not allow_remote:
        raise ConfigError(
            f"{address.host} can be reached from other machines, and this port is not encrypted",
            hint="listen on 127.0.0.1 and forward the port with ssh -L, or use --allow-remote",
        )


@asynccontextmanager
async def http_server(
    sessions: HttpSessions, address: Address, token: Token, names: Sequence[str] = ()
) -> AsyncIterator[Address]:
    """Serve inside the block; yields the address with the actual port.

    Raises:
        HarnessError: the address is not available.
    """

    def build(found: Address) -> ASGIApp:
        return HttpAuthMiddleware(RequestBodyLimitMiddleware(sessions, BODY_LIMIT), names_of(found, names), token)

    async with serve_http(build, address) as found:
        try:
            yield found
        finally:
            with anyio.CancelScope(shield=True):
                await sessions.close()  # their streams would delay the shutdown
