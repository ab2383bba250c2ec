"""Many pages that see one pane: they cost the session one stream, and each sees all of it."""

from __future__ import annotations

import json
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.model_server import say
from tests.support.seats import Seats, seats
from tests.support.web_client import first, logged_in, page_of
from tests.support.web_dashboard import web_program
from websockets.asyncio.client import ClientConnection

__all__ = ["seats"]

pytestmark = pytest.mark.usefixtures("needs_tmux")
VIEWERS = 20
LIMIT = 60


def sockets_of(pid: int) -> int:
    """Return how many sockets a process has open."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += os.readlink(entry).startswith("socket:")
        except OSError:
            continue
    return count


async def pane_of(page: ClientConnection) -> str:
    """Return the session of the first row that a page is sent."""
    while True:
        message = await first(page)
        if message["type"] == "sessions" and message["changed"]:
            return str(next(iter(message["changed"])))


async def shown(page: ClientConnection, text: bytes) -> bytes:
    """Read frames until a text was shown; returns what was drawn since the last screen."""
    drawn, unseen = b"", 0
    with anyio.fail_after(LIMIT):
        while text not in drawn:
            frame = await page.recv()
            if isinstance(frame, str):
                continue
            assert int.from_bytes(frame[:4]) == 1
            drawn = frame[9:] if frame[4] == 1 else drawn + frame[5:] if frame[4] == 0 else drawn
            unseen += len(frame) - 4
            await page.send(json.dumps({"type": "ack", "streams": {"1": unseen}}))
            unseen = 0
            await anyio.sleep(0.02)  # as a page that draws; more messages would be refused
    return drawn


async def reply(page: ClientConnection, number: int) -> dict[str, Any]:
    """Read until a request was answered."""
    with anyio.fail_after(LIMIT):
        while True:
            frame = await page.recv()
            if isinstance(frame, str) and (message := json.loads(frame)).get("request") == number:
                return dict(message)


async def test_twenty_viewers_cost_one_stream_and_all_see_the_same(seats: Seats) -> None:
    seat = seats.take("--tmux", script=[say("hello")], size=(120, 40))
    await seat.on_screen("»", "scripted")
    async with web_program(seats.program, seats.environment) as web, AsyncExitStack() as stack:
        cookie, key = logged_in(web)
        pages = [await stack.enter_async_context(page_of(web, cookie, key)) for _ in range(VIEWERS)]
        session = await pane_of(pages[0])
        harness = harness_of(seats)
        before = sockets_of(harness)
        opening = {"type": "open", "request": 1, "session": session, "stream": "pane", "about": "main"}
        screens: list[bytes] = []
        for page in pages:
            await page.send(json.dumps(opening))
            screens.append(await shown(page, b"[harness 0: 0]"))
        assert sockets_of(harness) == before + 1

        act: dict[str, Any] = {"type": "act", "session": session}
        await pages[0].send(json.dumps({**act, "request": 2, "action": "take_pane", "arguments": {"pane": "main"}}))
        assert (await reply(pages[0], 2))["ok"]
        typed = {"pane": "main", "text": "seq 1 3000; echo over-$((1 + 1))\r"}
        await pages[0].send(json.dumps({**act, "request": 3, "action": "type", "arguments": typed}))
        ends: list[bytes] = []

        async def read(page: ClientConnection) -> None:
            ends.append(await shown(page, b"over-2"))

        async with anyio.create_task_group() as tasks:
            for page in pages:
                tasks.start_soon(read, page)
        assert len(ends) == VIEWERS
        assert all(b"2999" in end and b"3000" in end for end in ends)
        assert sockets_of(harness) == before + 1


def harness_of(seats: Seats) -> int:
    """Return the process of the prompt in that home."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            if line.endswith(b"harness\0--tmux\0") and f"HOME={seats.home}".encode() in environment.split(b"\0"):
                return int(entry.name)
    raise AssertionError("the prompt does not run")
