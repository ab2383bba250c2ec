"""A browser that follows the output of several jobs gets all of it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel

from harness.system.background_tasks import open_background_tasks
from harness.web.browser import Browser
from harness.web.logins import Login, Role

ITEMS = 20


class Socket:
    """A WebSocket that is read at once."""

    def __init__(self) -> None:
        self.items: dict[int, list[Any]] = {}
        self.ended: set[int] = set()
        self.all_ended = anyio.Event()

    async def send_bytes(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self.items.setdefault(int.from_bytes(data[:4]), []).append(json.loads(data[5:]))

    async def send_text(self, text: str) -> None:
        message = json.loads(text)
        if message["type"] == "stream_ended":
            self.ended.add(message["stream"])
            if self.ended == {1, 2, 3}:
                self.all_ended.set()


async def output(arguments: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any]]:
    for number in range(ITEMS):
        await anyio.lowlevel.checkpoint()
        yield {"text": f"{arguments['job_id']}-{number}"}


async def test_the_output_of_several_jobs_is_followed_at_the_same_time() -> None:
    socket = Socket()
    dashboard = SimpleNamespace(rows=dict, is_complete=True)
    browser = Browser(cast(Any, socket), cast(Any, dashboard), Login("anna", Role.VIEWER, 0.0, "1"), ("", ""))
    with anyio.fail_after(10):
        async with open_background_tasks() as tasks:
            tasks.start_soon(browser._write)
            for stream in (1, 2, 3):
                browser._tails[stream] = anyio.CancelScope()
                tasks.start_soon(browser._tail, stream, output, f"job:{stream}")
            await socket.all_ended.wait()
    assert socket.items == {stream: [{"text": f"{stream}-{number}"} for number in range(ITEMS)] for stream in (1, 2, 3)}
