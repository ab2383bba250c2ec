"""Sessions over HTTP by themselves: how they begin, how many there are, and how they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from tests.support.toolbox import toolbox

from harness.errors import ConnectionLost
from harness.mcp.server.elicitation import ClientApprover
from harness.mcp.server.http import http_sessions
from harness.mcp.server.server import ClientSession, open_session
from harness.toolkit import Executor

URL = "http://127.0.0.1/mcp"
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
HEADERS = {"Accept": "application/json, text/event-stream"}

Open = Callable[[], AbstractAsyncContextManager[ClientSession]]


class Doors:
    """Counts the sessions that are open."""

    def __init__(self) -> None:
        self.open = 0
        self._all_closed = anyio.Event()

    async def closed(self) -> None:
        """Wait until none is open."""
        with anyio.fail_after(10):
            while self.open:
                self._all_closed = anyio.Event()
                await self._all_closed.wait()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[ClientSession]:
        @asynccontextmanager
        async def executor(approver: ClientApprover) -> AsyncIterator[Executor]:
            yield toolbox([]).executor

        self.open += 1
        try:
            async with open_session(executor, "1") as session:
                yield session
        finally:
            self.open -= 1
            self._all_closed.set()


@asynccontextmanager
async def web(opened: Open, **limits: Any) -> AsyncIterator[httpx2.AsyncClient]:
    async with http_sessions(opened, **limits) as sessions:
        transport = httpx2.ASGITransport(app=sessions)
        async with httpx2.AsyncClient(transport=transport, headers=HEADERS) as client:
            yield client


async def test_a_session_begins_with_initialize_and_ends_with_delete() -> None:
    doors = Doors()
    async with web(doors.session) as client:
        answer = await client.post(URL, json=HELLO)
        assert answer.status_code == 200
        assert doors.open == 1
        session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
        assert (await client.delete(URL, headers=session)).status_code == 200
        await doors.closed()
        assert (await client.post(URL, json=HELLO, headers=session)).status_code == 404


@pytest.mark.parametrize("body", [{"jsonrpc": "2.0", "id": 1}, [], {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}])
async def test_whatever_else_begins_none(body: Any) -> None:
    doors = Doors()
    async with web(doors.session) as client:
        answer = await client.post(URL, json=body)
        assert answer.status_code == 400
        await doors.closed()


async def test_a_session_that_cannot_be_opened_is_told_and_takes_no_place(caplog: pytest.LogCaptureFixture) -> None:
    broken = True

    doors = Doors()

    @asynccontextmanager
    async def opened() -> AsyncIterator[ClientSession]:
        if broken:
            raise ConnectionLost("the link broke", target="ssh://h")
        async with doors.session() as session:
            yield session

    async with web(opened, limit=1) as client:
        for _ in range(3):
            answer = await client.post(URL, json=HELLO)
            assert answer.status_code == 500
            assert "link" not in answer.text
        assert "the link broke" in caplog.text
        broken = False
        assert (await client.post(URL, json=HELLO)).status_code == 200


async def test_more_sessions_than_are_allowed_are_refused_until_one_ends() -> None:
    doors = Doors()
    async with web(doors.session, limit=2) as client:
        first = await client.post(URL, json=HELLO)
        assert [(await client.post(URL, json=HELLO)).status_code for _ in range(2)] == [200, 503]
        await client.delete(URL, headers={"Mcp-Session-Id": first.headers["mcp-session-id"]})
        assert (await client.post(URL, json=HELLO)).status_code == 200


async def test_a_session_that_nobody_uses_ends() -> None:
    doors = Doors()
    async with web(doors.session, idle_limit=0.2) as client:
        assert (await client.post(URL, json=HELLO)).status_code == 200
        await doors.closed()


async def test_the_end_of_the_server_ends_all_sessions() -> None:
    doors = Doors()
    async with web(doors.session) as client:
        for _ in range(3):
            await client.post(URL, json=HELLO)
        assert doors.open == 3
    assert doors.open == 0


async def test_a_later_revision_is_told_which_ones_there_are() -> None:
    doors = Doors()
    async with web(doors.session) as client:
        answer = await client.post(URL, json=HELLO, headers={"Mcp-Protocol-Version": "2026-07-28"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": "2026-07-28"}
    assert doors.open == 0
