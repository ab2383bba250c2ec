"""What the prompt does for slash commands: another conversation, model or theme, the terminal lent, the end."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from ...context import ExecutionContext
from ...errors import HarnessError
from .context import Front
from .surface import Surface
from .themes import THEMES, theme_for

if TYPE_CHECKING:
    from ...agent.models import ModelProfile
    from .conversing import Begun, Conversation
    from .loop import Loop

__all__ = ["PromptFront"]


class PromptFront(Front):
    """See the module.

    Args:
        begun: what a conversation with a model begins with; without a model, with the one that is configured.
    """

    def __init__(
        self,
        loop: Loop,
        surface: Surface,
        execution: ExecutionContext,
        begun: Callable[[ModelProfile | None], Begun],
        opened: Callable[[Conversation], None],
        *,
        color: bool,
    ) -> None:
        self._loop = loop
        self._surface = surface
        self._execution = execution
        self._begun = begun
        self._opened = opened
        self._color = color
        self._theme = surface.theme.name

    def leave(self) -> None:
        """See :class:`Front`."""
        self._loop.leave()

    async def open_session(self, session_id: str | None) -> None:
        """See :class:`Front`."""
        agent = self._loop.agent
        begun = self._begun(agent.profile if agent is not None else None)
        await self._open(replace(begun, session_id=session_id or "", here=False))

    async def use_model(self, profile: ModelProfile) -> None:
        """See :class:`Front`."""
        await self._open(self._begun(profile))

    async def _open(self, begun: Begun) -> None:
        self._opened(await self._loop.supplies.conversations.open(begun))
        self._loop.answers()

    async def attach(self, *, read_only: bool = False) -> None:
        """See :class:`Front`."""
        words = self._execution.attach_command_read_only if read_only else self._execution.attach_command
        failures: list[OSError] = []

        async def work() -> None:
            try:
                await _become(words)
            except OSError as error:
                failures.append(error)

        await self._surface.lend(work)
        if failures:
            raise HarnessError(f"{words[0]}: {(failures[0].strerror or 'cannot be started').lower()}")

    @property
    def themes(self) -> tuple[str, ...]:
        """See :class:`Front`."""
        return tuple(THEMES)

    @property
    def theme(self) -> str:
        """See :class:`Front`."""
        return self._theme

    def set_theme(self, name: str) -> None:
        """See :class:`Front`."""
        self._theme = name
        self._surface.restyle(theme_for(name, color=self._color))


async def _become(words: list[str]) -> None:
    """Run a program that has our terminal until it ends."""
    environment = {name: value for name, value in os.environ.items() if name != "TMUX"}  # or tmux refuses to nest

    async with await anyio.open_process(words, stdin=None, stdout=None, stderr=None, env=environment) as process:
        await process.wait()
