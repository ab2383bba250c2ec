"""The operator at the terminal of ``harness exec``: approvals and questions, asked as the prompt asks them.

They go to the controlling terminal, so that standard input and output stay those of a pipe.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from ..login import LoginQuestion, TerminalPrompter
from ..toolkit.values import ToolCall
from .prompt.approvals import PromptApprover
from .prompt.plain import asked_text
from .prompt.questions import PromptQuestioner
from .prompt.surface import Asking, QuestionSurface
from .prompt.themes import NONE, Line, Theme, line, painted, theme_for

if TYPE_CHECKING:
    from ..agent.opening import People
    from .runtime import Session

__all__ = ["ExecOperator", "TerminalSurface", "operator_of"]

DUMB = frozenset({"", "dumb", "unknown"})
FOREGROUND_INTERVAL = 0.5
"""Seconds between two looks whether a program in the background is in the foreground again."""


class TerminalSurface(QuestionSurface):
    """The controlling terminal, one line for each answer. ``asking`` is held while a question is shown."""

    def __init__(self, theme: Theme = NONE, prompter: TerminalPrompter | None = None) -> None:
        self._theme = theme
        self._prompter = prompter or TerminalPrompter()
        self.asking = anyio.Lock()

    @property
    def width(self) -> int:
        """Columns."""
        return shutil.get_terminal_size().columns

    def show(self, *lines: Line) -> None:
        """Lines that stay."""
        self._prompter.show(painted(lines, self._theme))

    async def ask(self, asking: Asking) -> str | None:
        """Ask until the answer is a clear one; None at an end of file (Ctrl-D)."""
        async with self.asking:
            text = asked_text(asking, self.width, self._theme)
            while True:
                await self._in_foreground()
                question = LoginQuestion("other", f"{text}{asking.label} ", asking.secret, "")
                answer = await self._prompter.answer(question)
                if answer is None:
                    return None
                answer = answer.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
                complaint = asking.check(answer)
                if not complaint:
                    return answer
                text = painted([line(f"  {complaint}")], self._theme)

    async def _in_foreground(self) -> None:
        """Wait while a shell has this program in the background, where reading the terminal would stop it."""
        while not self._prompter.usable():  # noqa: ASYNC110  # no signal says that it is back in the foreground
            await anyio.sleep(FOREGROUND_INTERVAL)


class ExecOperator:
    """Who is asked during one run. ``surface`` is the terminal."""

    def __init__(self, surface: TerminalSurface) -> None:
        self.surface = surface
        self._catch_up: Callable[[], None] | None = None
        self._changed: Callable[[ToolCall], None] | None = None

    def serve(self, catch_up: Callable[[], None], changed: Callable[[ToolCall], None]) -> None:
        """Report to a run, now that it has its agent.

        Args:
            catch_up: shows what has happened before a question.
            changed: is called with a call as the operator changed it.
        """
        self._catch_up, self._changed = catch_up, changed

    @property
    def people(self) -> People:
        """The approver and the questioner of the prompt, at this terminal."""
        from ..agent.opening import People

        approver = PromptApprover(self.surface, self._report_change, self._show_events)
        return People(approver, PromptQuestioner(self.surface, self._show_events))

    def _report_change(self, call: ToolCall) -> None:
        if self._changed is not None:
            self._changed(call)

    def _show_events(self) -> None:
        if self._catch_up is not None:
            self._catch_up()


def operator_of(session: Session, theme: str) -> ExecOperator | None:
    """The operator who can be asked.

    Returns:
        None with ``--batch``, when neither standard input nor standard error is a terminal, and in the background.
    """
    if session.invocation.batch or not any(stream and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return None
    prompter = TerminalPrompter()
    if not prompter.usable():
        return None
    plain = os.environ.get("TERM", "") in DUMB
    drawn = NONE if plain else theme_for(theme, color=session.invocation.color is not False)
    return ExecOperator(TerminalSurface(drawn, prompter))
