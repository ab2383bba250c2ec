"""A pane that a browser takes is released after it has left, also if it left before the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from harness.live.sessions import pane_leases
from harness.system.background_tasks import open_background_tasks
from harness.web.browser import Browser
from harness.web.dashboard import Dashboard
from harness.web.logins import Login, LoginStore, Role


class Process:
    """A session with one pane, whose process answers nobody who takes it."""

    def __init__(self) -> None:
        self.taken_by = ""
        self.taken, self.released = anyio.Event(), anyio.Event()

    async def request(self, session: str, action: str, arguments: Mapping[str, Any], *, name: str) -> Mapping[str, Any]:
        if action == "take_pane":
            self.taken_by = name
            self.taken.set()
            await anyio.sleep_forever()
        assert (action, arguments["pane"], name) == ("release_pane", "main", self.taken_by)
        self.released.set()
        return {"pane": "main"}


class Tab:
    """The WebSocket of a tab that takes the pane and is closed at once."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._requests = [
            {"type": "act", "request": 1, "session": "p/s", "action": "take_pane", "arguments": {"pane": "main"}}
        ]

    async def receive(self) -> dict[str, str]:
        if self._requests:
            return {"type": "websocket.receive", "text": json.dumps(self._requests.pop())}
        await self._process.taken.wait()
        return {"type": "websocket.disconnect"}

    async def send_text(self, text: str) -> None:
        pass


async def test_a_pane_whose_taker_left_before_the_answer_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pane_leases, "LEASE_GRACE", 0.1)
    process = Process()
    live = SimpleNamespace(sessions={"s": None}, client=process)
    async with open_background_tasks() as tasks:
        dashboard = Dashboard(LoginStore(tmp_path), str, tasks)
        overview = SimpleNamespace(processes={"p": live}, is_complete=True, rows=list)
        dashboard.overview = cast(Any, overview)
        login = Login("anna", Role.OPERATOR, 0.0, "1")
        with anyio.fail_after(10):
            await Browser(cast(Any, Tab(process)), dashboard, login, ("", "")).serve()
            await process.released.wait()
