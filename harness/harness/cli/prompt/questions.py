"""Questions of a tool to the operator, at the prompt."""

from __future__ import annotations

from collections.abc import Callable

from ...toolkit.questions import Asked, Questioner, Replies, Reply, UserQuestion
from ..questioning import parse_reply, question_text
from .surface import Asking, QuestionSurface
from .themes import Line, Span, line

__all__ = ["PromptQuestioner"]


class PromptQuestioner(Questioner):
    """The operator at the prompt. ``catch_up`` shows what has happened before the question."""

    def __init__(self, surface: QuestionSurface, catch_up: Callable[[], None]) -> None:
        self._surface = surface
        self._catch_up = catch_up

    async def ask(self, asked: Asked) -> Replies | None:
        """One question after the other; Ctrl-C or Ctrl-D declines all of them."""
        self._catch_up()
        replies = []
        for number, question in enumerate(asked.questions, 1):
            lines = _lines(question, number, len(asked.questions))
            reply = await self._reply(question, lines, follows=number > 1)
            if reply is None:
                return None
            replies.append(reply)
        return tuple(replies)

    async def _reply(self, question: UserQuestion, lines: tuple[Line, ...], *, follows: bool) -> Reply | None:
        def complaint(text: str) -> str:
            reply = parse_reply(text, question)
            return "" if isinstance(reply, Reply) else reply

        text = await self._surface.ask(Asking(lines, "answer:", check=complaint, follows=follows))
        reply = parse_reply(text, question) if text is not None else None
        return reply if isinstance(reply, Reply) else None


def _lines(question: UserQuestion, number: int, count: int) -> tuple[Line, ...]:
    first, *rest = question_text(question, number, count).split("\n")
    return (line(Span(first.removeprefix("harness: "), "warn")), *(line(one.removesuffix(": ")) for one in rest))
