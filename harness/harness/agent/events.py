"""What happens in a conversation, on the same bus as what happens to its calls.

A turn is everything between a prompt and the end of the work on it: answers of the model, and calls. Texts of the
model are as it wrote them, redacted; whoever shows them spells out control characters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..toolkit.events import Event

__all__ = [
    "AgentPaused",
    "AgentResumed",
    "AnswerCompleted",
    "AnswerDelta",
    "ConversationCompacted",
    "ModelChanged",
    "ModelRetry",
    "Notice",
    "Origin",
    "PromptQueued",
    "PromptWithdrawn",
    "ReasoningDelta",
    "RequestStarted",
    "TurnCompleted",
    "TurnStarted",
    "TurnStatus",
    "UsageChanged",
]

Origin = Literal["operator", "jobs", "resume", "agent"]
"""Who asked for a turn: a person, jobs that have ended, a session that was taken up again, or a parent agent."""
TurnStatus = Literal["completed", "cancelled", "failed", "limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptQueued(Event):
    """A prompt waits for the turns before it; ``place`` is its number, by which it can be withdrawn."""

    place: int
    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptWithdrawn(Event):
    """A prompt that waited will not be worked on."""

    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(Event):
    """Work on a prompt begins. ``place`` is its number in the queue."""

    turn_id: str
    prompt: str
    origin: Origin = "operator"
    place: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStarted(Event):
    """A request goes to the model: the ``step``-th of the turn, from 1, with about this many tokens."""

    turn_id: str
    step: int
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDelta(Event):
    """A piece of the answer as it comes."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta(Event):
    """A piece of what the model thinks before it answers."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCompleted(Event):
    """One answer of the model is there, with ``calls`` calls to do. ``text`` is all of its text."""

    turn_id: str
    text: str
    calls: int = 0
    seconds: float = 0.0
    """From the request to the end of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetry(Event):
    """The provider failed, and is asked again in ``seconds``; what had come of the answer does not count."""

    turn_id: str
    attempt: int
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageChanged(Event):
    """What the conversation has used so far.

    ``context`` is the tokens of the last request and its answer, ``limit`` what the model takes (0: not known),
    ``cost`` is in US dollars, None where no price is known.
    """

    input_tokens: int
    output_tokens: int
    context: int
    limit: int
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCompleted(Event):
    """The end of a turn. ``failure`` says what happened, and what to do, when it is not ``completed``."""

    turn_id: str
    status: TurnStatus
    text: str = ""
    failure: str = ""
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationCompacted(Event):
    """Older messages were replaced by ``summary``."""

    before: int
    after: int
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChanged(Event):
    """Another model goes on with the conversation."""

    name: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPaused(Event):
    """Nothing more is asked of the model, and no call begins, until it is resumed."""

    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResumed(Event):
    """The agent goes on. ``meanwhile`` is what the operator did, as the model is told."""

    by: str
    meanwhile: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Event):
    """Something that whoever watches should know."""

    text: str

    def notification(self) -> tuple[str, str] | None:
        """The same, for hooks."""
        return "notice", self.text
