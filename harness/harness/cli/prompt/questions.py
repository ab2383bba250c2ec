"""Questions of a tool to the operator, at the prompt."""

from __future__ import annotations

from ...toolkit.questions import Asked, Questioner, Replies, Reply, UserQuestion
from ..questioning import parse_reply, question_text
from .surface import Asking, Surface
from .themes import Line, Span, line

__all__ = ["PromptQuestioner"]


class PromptQuestioner(Questioner):
    """The operator at the prompt."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface

    async def ask(self, asked: Asked) -> Replies | None:
        """One question after the other; Ctrl-C or Ctrl-D declines all of them."""
        replies = []
        for number, question in enumerate(asked.questions, 1):
            reply = await self._reply(question, _lines(question, number, len(asked.questions)))
            if reply is None:
                return None
            replies.append(reply)
        return tuple(replies)

    async def _reply(self, question: UserQuestion, lines: tuple[Line, ...]) -> Reply | None:
        while True:
            text = await self._surface.ask(Asking(lines, "answer:"))
            if text is None:
                return None
            reply = parse_reply(text, question)
            if isinstance(reply, Reply):
                return reply
            lines = (line(Span(f"  {reply}", "warn")),)


def _lines(question: UserQuestion, number: int, count: int) -> tuple[Line, ...]:
    first, *rest = question_text(question, number, count).split("\n")
    return (line(Span(first.removeprefix("harness: "), "warn")), *(line(one.removesuffix(": ")) for one in rest))
