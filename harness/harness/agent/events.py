"""Events of a conversation, published on the same bus as those of its tool calls.

A turn is everything between a prompt and the end of the work on it: model responses and calls. Texts of the model are
redacted and otherwise unchanged; UIs must escape control characters.
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
    "BudgetNearlyUsed",
    "CompactionEnded",
    "CompactionStarted",
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
"""Origin of a turn: an operator, jobs that have ended, a resumed conversation, or a parent agent."""
TurnStatus = Literal["completed", "cancelled", "failed", "limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptQueued(Event):
    """A prompt was added to the queue; ``place`` identifies it, for example to withdraw it."""

    place: int
    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptWithdrawn(Event):
    """A prompt was removed from the queue before its turn."""

    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(Event):
    """The turn of a prompt starts. ``place`` identifies the prompt in the queue."""

    turn_id: str
    prompt: str
    origin: Origin = "operator"
    place: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStarted(Event):
    """A model request is sent: the ``step``-th of the turn, from 1, with about ``tokens`` tokens."""

    turn_id: str
    step: int
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDelta(Event):
    """A part of the response, published as received."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta(Event):
    """A part of the model's reasoning."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCompleted(Event):
    """A model response is complete, with all of its ``text`` and the number of its ``calls``."""

    turn_id: str
    text: str
    calls: int = 0
    seconds: float = 0.0
    """From the request to the end of the response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetry(Event):
    """The request failed, and is retried in ``seconds``; the received part of the response is discarded."""

    turn_id: str
    attempt: int
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageChanged(Event):
    """The conversation's usage so far.

    ``context`` is the tokens of the last request and its response, ``limit`` the model's context limit (0: unknown),
    ``cost`` is in US dollars, None if no price is known.
    """

    input_tokens: int
    output_tokens: int
    context: int
    limit: int
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetNearlyUsed(Event):
    """Most of a budget is used: ``used`` of the ``limit`` that the setting sets, in US dollars or tokens."""

    setting: str
    used: float
    limit: float

    @property
    def text(self) -> str:
        """The event as a sentence."""
        unit = "$" if self.setting.endswith("_usd") else ""
        used, limit = (f"{unit}{number:.2f}" if unit else f"{number:.0f}" for number in (self.used, self.limit))
        return f"{self.used / self.limit:.0%} of {self.setting} is used: {used} of {limit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCompleted(Event):
    """The end of a turn. ``failure`` gives the reason and the remedy when the status is not ``completed``."""

    turn_id: str
    status: TurnStatus
    text: str = ""
    failure: str = ""
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStarted(Event):
    """A compaction between turns waits for the end of the turn, or runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEnded(Event):
    """A compaction between turns has ended; if it replaced messages, :class:`ConversationCompacted` came before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationCompacted(Event):
    """Older messages were replaced by ``summary``."""

    before: int
    after: int
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChanged(Event):
    """Another model continues the conversation."""

    name: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPaused(Event):
    """The agent was paused: it starts no calls and sends no model requests until it is resumed."""

    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResumed(Event):
    """The agent was resumed. ``meanwhile`` is the operator's activity, as the model is notified of it."""

    by: str
    meanwhile: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Event):
    """A message for the operators and UIs that watch the agent."""

    text: str

    def notification(self) -> tuple[str, str] | None:
        """Return the event's kind and text for notification hooks."""
        return "notice", self.text
