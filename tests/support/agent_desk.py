"""An agent on this machine, in a home of its own, whose model is a server that answers as the test says.

::

    async with agent_desk(tmp_path, monkeypatch, [call("run_shell", {"command": "id"}), say("done")]) as desk:
        result = await desk.agent.turn("who am I?")
        assert desk.server.asked[1]...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from tests.support.model_server import ModelServer, Script, model_server

from harness import connect
from harness.agent.agent import Agent
from harness.agent.models import EnvironmentKey, ModelProfile
from harness.agent.opening import HumanHandlers, ResumedConversation, open_agent
from harness.agent.settings import AgentSettings
from harness.agent.storage import ConversationLog, MemoryLog
from harness.context import ExecutionContext
from harness.toolkit.assembly import Toolkit, ToolkitSettings, open_toolkit
from harness.toolkit.events import Event
from harness.toolkit.hooks.dispatch import RegisteredHook
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings

__all__ = ["AgentDesk", "agent_desk", "profile_for"]

E = TypeVar("E", bound=Event)


def profile_for(
    server: ModelServer,
    provider: str = "openai",
    name: str = "test",
    *,
    context_window: int = 100_000,
    key: str = "HARNESS_TEST_KEY",
) -> ModelProfile:
    """A model of that provider, which the server plays."""
    url = {
        "openai": server.openai_url,
        "openai-responses": server.openai_url,
        "anthropic": server.anthropic_url,
        "google": server.google_url,
    }[provider]
    return ModelProfile(
        name=name,
        provider=provider,
        model="test-model",
        base_url=url,
        key=EnvironmentKey(key),
        context_window=context_window,
        retries=2,
    )


@dataclass
class AgentDesk:
    """What a test works with."""

    agent: Agent
    server: ModelServer
    log: ConversationLog
    execution: ExecutionContext
    toolkit: Toolkit
    home: Path
    seen: list[Event] = field(default_factory=list)

    _more: anyio.Event = field(default_factory=anyio.Event)

    def of(self, kind: type[E]) -> list[E]:
        """The events of a kind so far."""
        return [event for event in self.seen if isinstance(event, kind)]

    def heard(self, event: Event) -> None:
        """Take an event."""
        self.seen.append(event)
        self._more.set()
        self._more = anyio.Event()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for the event with which something is true."""
        while not true():
            await self._more.wait()

    async def seen_of(self, kind: type[E], number: int = 1) -> E:
        """The so-many-th event of a kind."""
        await self.until(lambda: len(self.of(kind)) >= number)
        return self.of(kind)[number - 1]


@asynccontextmanager
async def agent_desk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: Script,
    *,
    provider: str = "openai",
    mode: Mode = Mode.AUTO,
    settings: AgentSettings | None = None,
    handlers: HumanHandlers | None = None,
    log: ConversationLog | None = None,
    session_id: str = "",
    resumed: ResumedConversation | None = None,
    tmux: bool = False,
    hooks: tuple[RegisteredHook, ...] = (),
    tool_profile: str | None = None,
) -> AsyncIterator[AgentDesk]:
    """An agent, and the server that plays its model; at the end, nothing that it was asked may have been wrong."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.chdir(home)
    monkeypatch.setenv("HARNESS_TEST_KEY", "key-of-the-test")
    kept = log or MemoryLog()
    with model_server(script) as server:
        async with (
            connect("local:", tmux=tmux) as execution,
            open_toolkit(ToolkitSettings(permissions=PermissionSettings(mode), hooks=hooks)) as toolkit,
            open_agent(
                execution,
                toolkit,
                profile_for(server, provider),
                settings=settings,
                handlers=handlers,
                log=kept,
                session_id=session_id,
                resumed=resumed,
                tool_profile=tool_profile,
            ) as agent,
        ):
            desk = AgentDesk(agent, server, kept, execution, toolkit, home)
            with agent.events.listening(desk.heard):
                yield desk
        assert server.refused == []
