"""A client of the dashboard that is no browser: it sends what no page would."""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import websockets
from tests.support.web_dashboard import WebProgram
from websockets.asyncio.client import ClientConnection, connect

__all__ = ["LIMIT", "close_code", "first", "logged_in", "page_of", "send", "token_of"]

LIMIT = 30


def send(web: WebProgram, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any, str]:
    """Send a request; returns the status, the JSON document, and the cookie."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=LIMIT)
    given = {
        "Origin": web.origin,
        "Content-Type": "application/json",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    connection.request(method, path, json.dumps(body) if body is not None else None, given)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    cookie = answer.getheader("Set-Cookie") or ""
    try:
        return answer.status, json.loads(text), cookie
    except ValueError:
        return answer.status, None, cookie


def token_of(url: str) -> str:
    return url.partition("#token=")[2]


def logged_in(web: WebProgram, url: str = "") -> tuple[str, str]:
    """Log in; returns the cookie and the key."""
    status, document, cookie = send(web, "POST", "/api/login", {"token": token_of(url or web.url)})
    assert status == 200
    return cookie.partition(";")[0], document["key"]


@asynccontextmanager
async def page_of(web: WebProgram, cookie: str, key: str, **more: Any) -> AsyncIterator[ClientConnection]:
    headers = {"Cookie": cookie}
    options = {"origin": web.origin, "open_timeout": LIMIT, "max_size": None, **more}
    async with connect(f"ws://127.0.0.1:{web.port}/api/live", additional_headers=headers, **options) as page:
        await page.send(json.dumps({"type": "hello", "key": key}))
        yield page


async def close_code(page: ClientConnection) -> int:
    """Read until the server has closed the connection; returns why."""
    with anyio.fail_after(LIMIT):
        try:
            while True:
                await page.recv()
        except websockets.ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else 0


async def first(page: ClientConnection) -> dict[str, Any]:
    with anyio.fail_after(LIMIT):
        return dict(json.loads(await page.recv()))
