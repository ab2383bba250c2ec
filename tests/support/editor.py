"""An editor: the client side of the Agent Client Protocol's SDK, connected to the program ``harness acp``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp
import anyio
from acp.schema import AllowedOutcome, ClientCapabilities, DeniedOutcome, RequestPermissionResponse
from tests.support.program import Program

__all__ = ["Editor", "Update", "editor"]

LIMIT = 60.0
Update = dict[str, Any]


@dataclass
class Editor:
    """What the agent sends, and the answers of the editor's user."""

    connection: Any = None
    process: Any = None
    updates: list[tuple[str, Update]] = field(default_factory=list)
    asked: list[Update] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    """IDs of the options that the user chooses, in order; an empty one dismisses the request."""
    on_ask: Callable[[], Awaitable[None]] | None = None
    _more: anyio.Event = field(default_factory=anyio.Event)

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Called by the SDK."""
        self.updates.append((session_id, update.model_dump(by_alias=True, exclude_none=True)))
        self._more.set()

    async def request_permission(self, tool_call: Any, options: Any, **_: Any) -> RequestPermissionResponse:
        """Called by the SDK."""
        self.asked.append(
            {
                "call": tool_call.model_dump(by_alias=True, exclude_none=True),
                "options": {option.option_id: option.kind for option in options},
            }
        )
        self._more.set()
        if self.on_ask is not None:
            await self.on_ask()
        answer = self.answers.pop(0)
        if not answer:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=answer))

    def on_connect(self, conn: Any) -> None:
        """Called by the SDK."""

    # -- what tests read

    async def until(self, found: Callable[[], object]) -> None:
        """Wait until something was received."""
        with anyio.fail_after(LIMIT):
            while not found():
                self._more = anyio.Event()
                await self._more.wait()

    async def open(self, directory: Path, *servers: Any) -> str:
        """Open a session."""
        opened = await self.connection.new_session(cwd=str(directory), mcp_servers=list(servers))
        return str(opened.session_id)

    async def prompt(self, session: str, text: str) -> str:
        """Run a turn and return the reason of its end."""
        with anyio.fail_after(LIMIT):
            done = await self.connection.prompt(session_id=session, prompt=[acp.text_block(text)])
        return str(done.stop_reason)

    def of(self, kind: str, session: str = "") -> list[Update]:
        """The updates of a kind."""
        return [update for name, update in self.updates if update["sessionUpdate"] == kind and session in ("", name)]

    def text(self, session: str = "", kind: str = "agent_message_chunk") -> str:
        """What the agent said."""
        return "".join(update["content"]["text"] for update in self.of(kind, session))

    def call(self, call_id: str) -> Update:
        """A call with its last state."""
        merged: Update = {}
        for _, update in self.updates:
            if update.get("toolCallId") == call_id:
                merged |= update
        return merged

    @property
    def calls(self) -> list[Update]:
        """All calls with their last states."""
        return [self.call(update["toolCallId"]) for update in self.of("tool_call")]


@asynccontextmanager
async def editor(program: Program, *words: str, initialize: bool = True) -> AsyncIterator[Editor]:
    """Start the program, and connect to it."""
    made = Editor()
    async with acp.spawn_agent_process(
        made,  # type: ignore[arg-type]  # it has no methods for what the agent does not use
        program.path,
        *program.always,
        *words,
        "acp",
        env=program.environ,
        cwd=program.home,
        transport_kwargs={"limit": 64 << 20, "stderr": None},
    ) as (made.connection, made.process):
        if initialize:
            answer = await made.connection.initialize(
                protocol_version=acp.PROTOCOL_VERSION, client_capabilities=ClientCapabilities(terminal=True)
            )
            assert answer.protocol_version == acp.PROTOCOL_VERSION
            assert answer.agent_capabilities.mcp_capabilities.http
        yield made
