"""A session at the prompt without a prompt: what commands print and ask for is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio

from harness.cli.prompt.commands.base import Deadlines, HostSession, Output, PromptActions, PromptContext
from harness.cli.prompt.commands.table import parse, run_command
from harness.context import ExecutionContext
from harness.system.background_tasks import open_background_tasks
from harness.toolkit.assembly import ToolkitSettings, open_toolkit
from harness.toolkit.permissions.remembered_answers import TimedApproval

if TYPE_CHECKING:
    from harness.agent.models import ModelProfile

__all__ = ["Desk", "slash_desk"]


@dataclass
class Shown(Output):
    """What was printed."""

    lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    warned: anyio.Event = field(default_factory=anyio.Event)

    def say(self, *lines: str) -> None:
        self.lines += lines

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.lines += [" | ".join(row) for row in (headers, *rows)]

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.warned.set()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass
class Asked(PromptActions):
    """What the loop was asked for."""

    done: list[tuple[Any, ...]] = field(default_factory=list)
    chosen: str = "dark"

    def leave(self) -> None:
        self.done.append(("leave",))

    async def open_session(self, session_id: str | None) -> None:
        self.done.append(("open", session_id))

    async def use_model(self, profile: ModelProfile) -> None:
        self.done.append(("model", profile.name))

    async def attach(self, sessions: Sequence[HostSession]) -> None:
        self.done.append(("attach", *((session.host, *session.command) for session in sessions)))

    @property
    def themes(self) -> tuple[str, ...]:
        return ("dark", "light", "plain")

    @property
    def theme(self) -> str:
        return self.chosen

    def set_theme(self, name: str) -> None:
        self.chosen = name


@dataclass
class Desk:
    """The context of commands, and what came of them."""

    context: PromptContext
    output: Shown
    front: Asked

    async def type(self, line: str, *, in_turn: bool = False) -> str:
        """Run a line; returns what it printed, with ``!`` before each warning."""
        self.output.lines.clear()
        self.output.warnings.clear()
        self.output.warned = anyio.Event()
        done = await run_command(parse(line), self.context, in_turn=in_turn)
        assert done or self.output.warnings, "it failed without a word"
        return "\n".join([*self.output.lines, *(f"! {text}" for text in self.output.warnings)])

    def with_(self, **more: Any) -> Desk:
        """The same with other parts of the context."""
        return replace(self, context=replace(self.context, **more))


@asynccontextmanager
async def slash_desk(execution: ExecutionContext, settings: ToolkitSettings | None = None) -> AsyncIterator[Desk]:
    """A desk on a target, with the tools and the audit that there are."""
    output, front, timed = Shown(), Asked(), TimedApproval()
    async with (
        open_toolkit(settings) as toolkit,
        toolkit.executor(execution, timed=timed) as executor,
        open_background_tasks() as tasks,
    ):
        context = PromptContext(execution, toolkit, executor, timed, output, front, Deadlines(tasks))
        yield Desk(context, output, front)
