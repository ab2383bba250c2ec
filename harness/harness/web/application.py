"""The dashboard's HTTP application: its pages, the login, the audit log, recordings, and the WebSocket."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from ..errors import HarnessError
from .audit_pages import audit_calls, audit_record
from .browser import HELLO_TIMEOUT, Browser, BrowserLeft
from .dashboard import MAX_BROWSERS, Dashboard
from .guard import TokenBucket
from .logins import LOGIN_LIFETIME, Login
from .recording_pages import played_recording, recording_list

__all__ = ["COOKIE", "KEY_HEADER", "STATIC", "build_application"]

COOKIE = "harness_login"
"""The name of the cookie; over TLS with the prefix ``__Host-``, which binds it to this host and to TLS."""
KEY_HEADER = "x-harness-key"
STATIC = Path(__file__).parent / "static"
FAILED_LOGINS_PER_SECOND, FAILED_LOGINS_AT_ONCE = 0.5, 20
BODY_TIMEOUT = 10.0
MAX_DIGITS = 18
"""Digits of the number of an audited call, which is a signed integer of 64 bits."""
log = logging.getLogger("harness.web")


class _Answers:
    """The handlers of requests.

    Args:
        dashboard: What is shown.
        path: The path of the site, as browsers see it.
        is_encrypted: Whether browsers reach it over TLS.
    """

    def __init__(self, dashboard: Dashboard, path: str, *, is_encrypted: bool) -> None:
        self._dashboard = dashboard
        self._path = path
        self._is_encrypted = is_encrypted
        self._cookie = f"__Host-{COOKIE}" if is_encrypted and path == "/" else COOKIE
        self._failures = TokenBucket(FAILED_LOGINS_PER_SECOND, FAILED_LOGINS_AT_ONCE)

    # -- logins

    async def login(self, request: Request) -> Response:
        """Exchange a one-time token for a cookie and a key."""
        token = (await _body(request)).get("token")
        found = None
        if isinstance(token, str):
            found = await to_thread.run_sync(self._dashboard.logins.exchange, token)
        if found is None:
            if not self._failures.take():
                return _error("too many failed logins; wait a minute", 429)
            log.info("refused a login from %s", request.client.host if request.client else "?")
            return _error("this link was used before, or has expired", 401)
        log.info("%s logged in as %s", found.login.name, found.login.role)
        response = JSONResponse({"name": found.login.name, "role": found.login.role.value, "key": found.key})
        response.set_cookie(
            self._cookie,
            found.cookie,
            max_age=int(LOGIN_LIFETIME),
            path=self._path,
            httponly=True,
            samesite="strict",
            secure=self._is_encrypted,
        )
        return response

    async def current_login(self, request: Request) -> Response:
        """Return who is logged in; pages ask when the WebSocket is refused."""
        login = await self._login_of(request)
        return _unauthorized() if login is None else JSONResponse({"name": login.name, "role": login.role.value})

    async def logout(self, request: Request) -> Response:
        """End the login of the request."""
        login = await self._login_of(request)
        if login is None:
            return _unauthorized()
        await to_thread.run_sync(lambda: self._dashboard.logins.end(login_id=login.login_id))
        response = JSONResponse({})
        response.delete_cookie(self._cookie, path=self._path, httponly=True, samesite="strict")
        return response

    async def _login_of(self, request: Request) -> Login | None:
        cookie, key = request.cookies.get(self._cookie), request.headers.get(KEY_HEADER)
        if not cookie or not key:
            return None
        return await to_thread.run_sync(self._dashboard.logins.find, cookie, key)

    # -- what was

    async def audit(self, request: Request) -> Response:
        """Return the audited calls that match."""
        if await self._login_of(request) is None:
            return _unauthorized()
        found = await to_thread.run_sync(audit_calls, dict(request.query_params), self._dashboard.redact)
        return JSONResponse(found)

    async def audited_call(self, request: Request) -> Response:
        """Return one audited call with its later records."""
        if await self._login_of(request) is None:
            return _unauthorized()
        number = request.path_params["number"]
        found = None
        if number.isdecimal() and len(number) <= MAX_DIGITS:
            found = await to_thread.run_sync(audit_record, int(number), self._dashboard.redact)
        return JSONResponse(found) if found is not None else _error("the audit log has no such call", 404)

    async def recordings(self, request: Request) -> Response:
        """Return the list of recordings."""
        if await self._login_of(request) is None:
            return _unauthorized()
        return JSONResponse(await to_thread.run_sync(recording_list))

    async def recording(self, request: Request) -> Response:
        """Return the events of one recording."""
        if await self._login_of(request) is None:
            return _unauthorized()
        found = await to_thread.run_sync(played_recording, request.path_params["name"])
        return JSONResponse(found) if found is not None else _error("there is no such recording", 404)

    # -- what is

    async def live(self, websocket: WebSocket) -> None:
        """Serve a browser over a WebSocket."""
        cookie = websocket.cookies.get(self._cookie)
        if not cookie:
            await websocket.close()  # becomes status 403
            return
        if len(self._dashboard.browsers) >= MAX_BROWSERS:
            await websocket.accept()
            await websocket.close(1013, "too many pages are open")
            return
        await websocket.accept()
        with suppress(WebSocketDisconnect, OSError):
            await self._serve(websocket, cookie)

    async def _serve(self, websocket: WebSocket, cookie: str) -> None:
        key = await _key_of(websocket)
        login = await to_thread.run_sync(self._dashboard.logins.find, cookie, key) if key else None
        if login is None:
            await websocket.close(4401, "log in first")
            return
        browser = Browser(websocket, self._dashboard, login, (cookie, key))
        self._dashboard.browsers.add(browser)
        try:
            await browser.serve()
        except BrowserLeft as reason:
            log.info("disconnected %s: %s", login.name, reason)
            with suppress(RuntimeError, anyio.ClosedResourceError):
                await websocket.close(4401 if "login" in str(reason) else 1008, str(reason))
        except TimeoutError:
            log.info("disconnected %s: its browser accepts no data", login.name)
        finally:
            self._dashboard.browsers.discard(browser)


async def _key_of(websocket: WebSocket) -> str:
    """Return the key of the first message; empty without one."""
    with anyio.move_on_after(HELLO_TIMEOUT):
        try:
            hello = json.loads(await websocket.receive_text())
        except (ValueError, KeyError, RecursionError):
            return ""
        if isinstance(hello, dict) and hello.get("type") == "hello" and isinstance(hello.get("key"), str):
            return str(hello["key"])
    return ""


async def _body(request: Request) -> Mapping[str, Any]:
    """Return the JSON object of a request; empty if it is not one."""
    document = None
    with anyio.move_on_after(BODY_TIMEOUT):
        try:
            document = await request.json()  # the guard limits its length
        except (ValueError, RecursionError):
            return {}
    return document if isinstance(document, dict) else {}


def _error(text: str, status: int) -> Response:
    return JSONResponse({"error": text}, status)


def _unauthorized() -> Response:
    return _error("log in first", 401)


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HarnessError)
    return _error(error.message, 400)


def build_application(dashboard: Dashboard, path: str, *, is_encrypted: bool) -> Starlette:
    """Return the application.

    Args:
        dashboard: What is shown.
        path: The path of the site, as browsers see it.
        is_encrypted: Whether browsers reach it over TLS.
    """
    answers = _Answers(dashboard, path, is_encrypted=is_encrypted)
    return Starlette(
        routes=[
            Route("/api/login", answers.login, methods=["POST"]),
            Route("/api/login", answers.current_login),
            Route("/api/logout", answers.logout, methods=["POST"]),
            Route("/api/audit", answers.audit),
            Route("/api/audit/{number}", answers.audited_call),
            Route("/api/recordings", answers.recordings),
            Route("/api/recordings/{name}", answers.recording),
            WebSocketRoute("/api/live", answers.live),
            Mount("/", StaticFiles(directory=STATIC, html=True)),
        ],
        exception_handlers={HarnessError: _failed},
    )
