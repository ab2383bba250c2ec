"""What a browser types into a pane: all of it, in order, in pieces that a session accepts, and with a limit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel

from harness.errors import HarnessError
from harness.live.sessions.pane_leases import PaneLeases
from harness.live.sessions.session import MAX_TYPED_CHARS
from harness.system.background_tasks import BackgroundTasks, open_background_tasks
from harness.web.browser import MAX_REQUESTS, MAX_WAITING_CHARS, Browser
from harness.web.logins import Login, Role


class Process:
    """The processes of a dashboard, which answer once ``may_answer`` is set."""

    def __init__(self) -> None:
        self.typed: list[str] = []
        self.may_answer = anyio.Event()
        self.leases = PaneLeases()

    async def ask(self, key: str, action: str, arguments: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        await self.may_answer.wait()
        if len(arguments["text"]) > MAX_TYPED_CHARS:
            raise HarnessError("too long")
        self.typed.append(arguments["text"])
        return {}

    def redact(self, text: str) -> str:
        return text


def browser_of(process: Process) -> Browser:
    return Browser(cast(Any, SimpleNamespace()), cast(Any, process), Login("anna", Role.OPERATOR, 0.0, "1"), ("", ""))


def type_into(browser: Browser, tasks: BackgroundTasks, text: str, pane: str = "main") -> None:
    arguments = {"pane": pane, "text": text}
    message = {"type": "act", "request": 0, "session": "p/s", "action": "type", "arguments": arguments}
    browser._handle(json.loads(json.dumps(message)), tasks)


def errors_of(browser: Browser) -> list[str]:
    return [str(document["error"]) for document in browser._outgoing]


async def test_a_long_paste_is_typed_in_order_in_accepted_pieces() -> None:
    process = Process()
    browser = browser_of(process)
    text = "".join(f"{number:07}\n" for number in range(5_000))
    async with open_background_tasks() as tasks:
        for start in range(0, len(text), 8_000):
            type_into(browser, tasks, text[start : start + 8_000])
        process.may_answer.set()
        with anyio.fail_after(10):
            while sum(map(len, process.typed)) < len(text):
                await anyio.lowlevel.checkpoint()
    assert ("".join(process.typed), errors_of(browser)) == (text, [])


async def test_what_is_typed_for_a_stopped_process_is_bounded() -> None:
    process = Process()
    browser = browser_of(process)
    async with open_background_tasks() as tasks:
        for _ in range(2 * MAX_WAITING_CHARS // MAX_TYPED_CHARS):
            type_into(browser, tasks, "x" * MAX_TYPED_CHARS)
        assert sum(map(len, browser._typed.values())) == MAX_WAITING_CHARS
        assert set(errors_of(browser)) == {f"{MAX_WAITING_CHARS} typed characters wait for the pane already"}
        for number in range(MAX_REQUESTS):
            type_into(browser, tasks, "x", f"pane-{number}")
        assert errors_of(browser)[-1] == f"typed text waits for {MAX_REQUESTS} panes already"
        assert len(browser._typed) == MAX_REQUESTS
