"""Questions of logins while the prompt is there: a link that was lost may ask for the password again."""

from __future__ import annotations

import anyio

from ...login import LoginQuestion, TerminalPrompter
from ..output import readable
from .surface import Asking, Surface
from .themes import Span, line

__all__ = ["PromptPrompter"]


class PromptPrompter:
    """Asks at the terminal, and on the surface of the prompt as long as that has the terminal."""

    def __init__(self) -> None:
        self._terminal = TerminalPrompter()
        self._has_terminal = anyio.Lock()
        self._asking: set[anyio.CancelScope] = set()
        self._leaving = False
        self._surface: Surface | None = None
        self.has_asked = False
        """A question was asked at the terminal: what is typed after it may be an answer that came too late."""

    async def answer(self, question: LoginQuestion) -> str | None:
        """The answer; None gives up."""
        with anyio.CancelScope() as scope:
            self._asking.add(scope)
            try:
                return None if self._leaving else await self._answer(question)
            finally:
                self._asking.discard(scope)
        return None

    async def _answer(self, question: LoginQuestion) -> str | None:
        async with self._has_terminal:
            surface = self._surface
            if surface is None:
                return await self._at_terminal(question)
        return await _on(surface, question)

    async def _at_terminal(self, question: LoginQuestion) -> str | None:
        if not self._terminal.usable():
            return None
        self.has_asked = True
        return await self._terminal.answer(question)

    async def give_terminal_to(self, surface: Surface) -> None:
        """Ask on that surface from now on, which may have the terminal as soon as this returns.

        A question that is asked at the terminal is answered first.
        """
        async with self._has_terminal:
            self._surface = surface

    def leave(self) -> None:
        """Give up what is asked, and ask no more: a link that is down must not hold up who leaves."""
        self._leaving = True
        for scope in self._asking:
            scope.cancel()

    async def leave_when_cancelled(self) -> None:
        """Wait until we are cancelled, and ask no more from then on, whatever is to be closed."""
        try:
            await anyio.sleep_forever()
        finally:
            self.leave()


async def _on(surface: Surface, question: LoginQuestion) -> str | None:
    *above, label = question.text.rstrip().split("\n")
    heading = f"{readable(question.target)} asks:"
    if question.refusal:
        heading = f"{readable(question.target)}: {question.refusal}"
    lines = (line(Span(heading, "warn")), *(line(readable(one)) for one in above))
    return await surface.ask(Asking(lines, readable(label), secret=question.secret, kind="login"))
