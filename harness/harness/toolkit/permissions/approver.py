"""Who is asked: the seam for prompts, and the approver whose answers come from whoever watches the events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import anyio

from .answers import Answer, Question

__all__ = ["Approver", "EventApprover"]


class Approver(ABC):
    """Asks somebody."""

    @property
    def by_sight(self) -> bool:
        """Whether the answer is that of somebody who decides by what is shown, and not one given in advance."""
        return True

    def expect(self, question: Question) -> None:  # noqa: B027  # most approvers have nothing to do here
        """Called before the question is published, so that an answer to the event cannot come too early."""

    def forget(self, question: Question) -> None:  # noqa: B027  # as above
        """Called when the question is over, however it ended."""

    async def ready(self) -> None:  # noqa: B027  # as above
        """Wait until what was allowed may begin: nothing limits the time. Called after each question."""

    @abstractmethod
    async def ask(self, question: Question) -> Answer:
        """Wait for the answer. Out of time, it is cancelled."""


@dataclass(slots=True)
class _Waiting:
    question: Question
    came: anyio.Event = field(default_factory=anyio.Event)
    answer: Answer | None = None


class EventApprover(Approver):
    """The question is the ``PermissionAsked`` event; who sees it answers with its ``request_id``."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    def expect(self, question: Question) -> None:
        """Take answers to it from now on."""
        self._waiting[question.request_id] = _Waiting(question)

    def forget(self, question: Question) -> None:
        """Take no more answers to it."""
        self._waiting.pop(question.request_id, None)

    async def ask(self, question: Question) -> Answer:
        """Wait until somebody answers."""
        waiting = self._waiting[question.request_id]
        await waiting.came.wait()
        assert waiting.answer is not None
        return waiting.answer

    def answer(self, request_id: str, answer: Answer) -> bool:
        """Answer a question. The first answer counts.

        Returns False, and changes nothing, when nobody waits for it (any more), or when an agent would allow: that is
        for people.
        """
        waiting = self._waiting.get(request_id)
        if waiting is None or waiting.answer is not None:
            return False
        if answer.agent_id and answer.scope.allows:
            return False
        waiting.answer = answer
        waiting.came.set()
        return True

    @property
    def pending(self) -> tuple[Question, ...]:
        """The questions that wait."""
        return tuple(waiting.question for waiting in self._waiting.values() if waiting.answer is None)
