"""Questions of logins while the prompt is there: a link that was lost may ask for the password again."""

from __future__ import annotations

from ...login import LoginQuestion, TerminalPrompter
from ..output import readable
from .surface import Asking, Surface
from .themes import Span, line

__all__ = ["PromptPrompter"]


class PromptPrompter:
    """Asks at the terminal, and on the surface of the prompt as long as that has the terminal."""

    def __init__(self) -> None:
        self._terminal = TerminalPrompter()
        self.surface: Surface | None = None

    async def answer(self, question: LoginQuestion) -> str | None:
        """The answer; None gives up."""
        if self.surface is None:
            return await self._terminal.answer(question) if self._terminal.usable() else None
        *above, label = question.text.rstrip().split("\n")
        lines = (line(Span(f"{readable(question.target)} asks:", "warn")), *(line(readable(one)) for one in above))
        return await self.surface.ask(Asking(lines, readable(label), secret=question.secret, kind="login"))
