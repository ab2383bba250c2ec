"""Questions of an agent to its user, and the answers.

Every user interface receives ``QuestionAsked`` and ``QuestionAnswered``, even if no user can answer. A model cannot
answer: replies only come from the session's :class:`Questioner`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio

from ..values import Json

__all__ = [
    "ANSWER_LIMIT",
    "EventQuestioner",
    "Option",
    "PresetAnswers",
    "QuestionReply",
    "QuestionResult",
    "QuestionSet",
    "Questioner",
    "Replies",
    "UserQuestion",
    "check_replies",
    "questions_json",
    "replies_json",
]

ANSWER_LIMIT = 3600.0
"""Seconds after which an unanswered question is cancelled."""
OTHER_LIMIT = 10_000
"""Maximum characters of an answer in the user's own words."""
OTHER = "Other:"


@dataclass(frozen=True, slots=True)
class Option:
    """One selectable answer."""

    label: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class UserQuestion:
    """One question. The user can always answer in their own words instead of selecting an option."""

    question: str
    options: tuple[Option, ...]
    header: str = ""
    """A name of one or two words."""
    multi_select: bool = False
    """Whether several options may be selected."""


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions that are asked together, redacted. Their texts are from a model: escape control characters."""

    request_id: str
    questions: tuple[UserQuestion, ...]
    session_id: str = ""
    agent_id: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class QuestionReply:
    """The answer to one question: indexes of its options, starting at 0, or the user's own text, or both."""

    chosen: tuple[int, ...] = ()
    other: str = ""


Replies = tuple[QuestionReply, ...]
"""One reply for each question, in order."""


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The result of questions: the replies, or why there are none."""

    replies: Replies = ()
    failure: Literal["", "no_user", "cancelled", "timeout"] = ""


class Questioner(ABC):
    """Asks the user."""

    def present(self) -> bool:
        """Return whether a user can answer now. The default is True."""
        return True

    def expect(self, asked: QuestionSet) -> None:  # noqa: B027  # optional
        """Prepare for answers; called before the questions are published, so that no answer arrives too early."""

    def forget(self, asked: QuestionSet) -> None:  # noqa: B027  # optional
        """Clean up; called when the questions have ended for any reason."""

    @abstractmethod
    async def ask(self, asked: QuestionSet) -> Replies | None:
        """Wait for the replies and return them; None if the user declined. Cancelled on a timeout."""


@dataclass(slots=True)
class _Waiting:
    asked: QuestionSet
    came: anyio.Event = field(default_factory=anyio.Event)
    replies: Replies | None = None


class EventQuestioner(Questioner):
    """Asks with the ``QuestionAsked`` event; a subscriber answers with its ``request_id``."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    def expect(self, asked: QuestionSet) -> None:
        """Start accepting answers."""
        self._waiting[asked.request_id] = _Waiting(asked)

    def forget(self, asked: QuestionSet) -> None:
        """Stop accepting answers."""
        self._waiting.pop(asked.request_id, None)

    async def ask(self, asked: QuestionSet) -> Replies | None:
        """Wait until a subscriber answers."""
        waiting = self._waiting[asked.request_id]
        await waiting.came.wait()
        return waiting.replies

    def answer(self, request_id: str, replies: Replies | None, *, agent_id: str = "") -> bool:
        """Answer a question; None declines. The first answer counts.

        Returns:
            False if no question is waiting for it, or an agent tries to answer; nothing is changed then.

        Raises:
            ValueError: the replies do not match the questions.
        """
        waiting = self._waiting.get(request_id)
        if waiting is None or waiting.came.is_set() or agent_id:
            return False
        if replies is not None:
            check_replies(waiting.asked.questions, replies)
        waiting.replies = replies
        waiting.came.set()
        return True

    @property
    def pending(self) -> tuple[QuestionSet, ...]:
        """The questions that wait for an answer."""
        return tuple(waiting.asked for waiting in self._waiting.values() if not waiting.came.is_set())


class PresetAnswers(Questioner):
    """Answers that a user interface has already collected, by header or, without one, by the question's text.

    A value is a label, a text in the user's own words (``Other: ...``, or any other text), or a list of these. If one
    question has no answer, all are declined.
    """

    def __init__(self, answers: Mapping[str, Json]) -> None:
        self._answers = answers

    async def ask(self, asked: QuestionSet) -> Replies | None:
        """Return the answers to these questions."""
        found = [self._answers.get(one.header or one.question) for one in asked.questions]
        if any(answer is None for answer in found):
            return None
        return tuple(_given(one, answer) for one, answer in zip(asked.questions, found, strict=True))


def _given(question: UserQuestion, answer: Json) -> QuestionReply:
    labels = [option.label for option in question.options]
    texts = [str(item) for item in (answer if isinstance(answer, list) else [answer])]
    chosen = tuple(labels.index(text) for text in texts if text in labels)
    own = [text.removeprefix(OTHER).strip() for text in texts if text not in labels]
    return QuestionReply(chosen, "\n".join(own))


def check_replies(questions: Sequence[UserQuestion], replies: Sequence[QuestionReply]) -> None:
    """Refuse replies that do not match the questions. Pure.

    Raises:
        ValueError: a reply is missing, empty or too long, or selects an unknown option or too many.
    """
    if len(replies) != len(questions):
        raise ValueError(f"{len(replies)} answers to {len(questions)} questions")
    for number, (question, reply) in enumerate(zip(questions, replies, strict=True), 1):
        if problem := _problem(question, reply):
            raise ValueError(f"answer {number}: {problem}")


def _problem(question: UserQuestion, reply: QuestionReply) -> str:
    if not reply.chosen and not reply.other.strip():
        return "it is empty"
    if len(reply.other) > OTHER_LIMIT:
        return f"it is longer than {OTHER_LIMIT} characters"
    if not set(reply.chosen) <= set(range(len(question.options))):
        return f"it selects an unknown option; there are {len(question.options)}"
    if len(set(reply.chosen)) < len(reply.chosen):
        return "it selects an option twice"
    if not question.multi_select and len(reply.chosen) + bool(reply.other.strip()) > 1:
        return "only one answer is possible"
    return ""


def questions_json(questions: Sequence[UserQuestion]) -> Json:
    """Return questions as the event contains them. Pure."""
    return [
        {
            "question": one.question,
            "header": one.header,
            "options": [{"label": option.label, "description": option.description} for option in one.options],
            "multi_select": one.multi_select,
        }
        for one in questions
    ]


def replies_json(questions: Sequence[UserQuestion], replies: Sequence[QuestionReply]) -> Json:
    """Return replies as the event and the result contain them: with the labels of selected options. Pure."""
    return [
        {
            "question": question.question,
            "header": question.header,
            "chosen": [question.options[number].label for number in reply.chosen],
            "other": reply.other.strip(),
        }
        for question, reply in zip(questions, replies, strict=True)
    ]
