"""Calls of one client: each goes through the executor once, shows its progress, and ends as a result."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError

from ..tasks import background_tasks
from ..toolkit.events import Event, ToolCallProgress
from ..toolkit.executor import Executor
from ..toolkit.values import CallOutcome, Text, ToolCall
from .elicitation import ClientApprover
from .handles import handle_note, running_job
from .server_values import plain, result_of

__all__ = ["AT_ONCE", "WAITING", "Calls", "Progress"]

AT_ONCE = 16
"""Calls of one client that run at once."""
WAITING = 256
"""Calls of one client that wait for their turn; more are refused."""
INTERVAL = 0.075
"""Seconds between two notifications of progress."""
HEARTBEAT = 10.0
"""Seconds after which a silent call shows that it is alive: many clients wait longer for one that does."""
SHOWN = 2_000
"""Characters of new output in one notification."""
LAST_WORDS = 1.0
"""Seconds that the last notification may hold up the result."""
BUSY = -32000
log = logging.getLogger("harness.mcp")


class Progress:
    """What a call has put out, told to the client in pieces, not too many of them."""

    def __init__(self, call_id: str, client: ServerSession) -> None:
        self._call_id = call_id
        self._client = client
        self._started = time.monotonic()
        self._told = 0.0
        self._text = ""
        self._left_out = 0
        self._more = anyio.Event()

    def listen(self, event: Event) -> None:
        """Take what belongs to the call."""
        if isinstance(event, ToolCallProgress) and event.call_id == self._call_id:
            longer = self._text + event.text
            self._left_out += max(0, len(longer) - SHOWN)
            self._text = longer[-SHOWN:]
            self._more.set()

    async def run(self) -> None:
        """Tell it until the call ends."""
        while True:
            with anyio.move_on_after(HEARTBEAT):
                await self._more.wait()
                await anyio.sleep(INTERVAL)
            await self._tell(self._take() or f"running for {time.monotonic() - self._started:.0f} s")

    async def finish(self) -> None:
        """Tell the rest, unless the client is too slow to hear it."""
        if self._text:
            with anyio.move_on_after(LAST_WORDS):
                await self._tell(self._take())

    def _take(self) -> str:
        left_out = f"[... {self._left_out} characters left out ...]" if self._left_out else ""
        text, self._text, self._left_out, self._more = left_out + self._text, "", 0, anyio.Event()
        return text

    async def _tell(self, message: str) -> None:
        self._told = max(round(time.monotonic() - self._started, 3), self._told + 0.001)  # it has to grow
        await self._client.report_progress(self._told, message=plain(message))


class Calls:
    """The calls of one client."""

    def __init__(self, executor: Executor, approver: ClientApprover) -> None:
        self._executor = executor
        self._approver = approver
        self._turns = anyio.CapacityLimiter(AT_ONCE)

    async def call(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Answer ``tools/call``.

        Raises:
            MCPError: too many calls wait already.
        """
        if self._turns.statistics().tasks_waiting >= WAITING:
            raise MCPError(code=BUSY, message=f"{WAITING} calls wait already; nothing was run")
        async with self._turns:
            with self._approver.asks(ctx):
                return await self._run(ctx, params)

    async def _run(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        call = ToolCall(params.name, params.arguments or {}, call_id=uuid.uuid4().hex)
        if (ctx.meta or {}).get("progress_token") is None:
            return self._result(await self._executor.call(call))
        with self._progress(call.call_id, ctx.session) as progress:
            async with background_tasks() as tasks:
                tasks.start_soon(progress.run)
                outcome = await self._executor.call(call)
            await progress.finish()
        return self._result(outcome)

    @contextmanager
    def _progress(self, call_id: str, client: ServerSession) -> Iterator[Progress]:
        progress = Progress(call_id, client)
        with self._executor.events.listening(progress.listen):
            yield progress

    def _result(self, outcome: CallOutcome) -> types.CallToolResult:
        if outcome.error is not None:
            log.warning("%s could not run: %s", outcome.call.name, outcome.error)
        if job_id := running_job(outcome):
            tools = [tool.name for tool in self._executor.registry.list()]
            note = Text(handle_note(job_id, tools))
            outcome = replace(outcome, result=replace(outcome.result, content=(*outcome.result.content, note)))
        return result_of(outcome)
