"""What happens to calls, as a stream that front ends watch: prompts, viewers, MCP clients, tests.

Progress may be dropped for a slow subscriber, and the next one that fits says how many were; everything else is kept
for it without a bound, because to lose a question or an end would leave somebody waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import anyio

from .values import CallOutcome, Json, JsonObject, ToolCall

__all__ = [
    "Event",
    "EventBus",
    "InternalFailure",
    "JobExited",
    "JobStarted",
    "PermissionAsked",
    "PermissionReplied",
    "QuestionAnswered",
    "QuestionAsked",
    "SubagentCompleted",
    "SubagentStarted",
    "Subscription",
    "TodoChanged",
    "ToolCallCompleted",
    "ToolCallProgress",
    "ToolCallRequested",
]

PROGRESS_KEPT = 256
"""Pieces of progress that wait for a slow subscriber."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of events. ``number`` grows by one within a session; ``parent_call`` is the call that made the sub-agent."""

    number: int = 0
    session_id: str = ""
    parent_call: str = ""

    def notification(self) -> tuple[str, str] | None:
        """What kind of thing the operator should know, and its text; None: nothing."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRequested(Event):
    """A call with valid arguments is about to go through policy. Exactly one completion follows."""

    call: ToolCall
    mutating: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallProgress(Event):
    """A piece of output of a running call, redacted. ``missed`` pieces before it were dropped for this subscriber."""

    call_id: str
    text: str
    stream: Literal["stdout", "stderr", "note"] = "stdout"
    missed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallCompleted(Event):
    """The end of a call, also of one that never got as far as being requested. Its call is as it may be shown."""

    outcome: CallOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAsked(Event):
    """Somebody has to decide about ``what``, the exact text. ``details`` is what the caller says of it.

    ``preview`` has lines to show below ``what``; those that begin with ``| `` are the caller's.
    """

    request_id: str
    call: ToolCall
    what: str
    reason: str
    details: JsonObject = field(default_factory=dict)
    preview: str = ""

    def notification(self) -> tuple[str, str] | None:
        """The operator has to decide."""
        return "permission_request", self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionReplied(Event):
    """It was decided: by whom, and how."""

    request_id: str
    allowed: bool
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked(Event):
    """A tool asks the person at the prompt."""

    request_id: str
    questions: Json

    def notification(self) -> tuple[str, str] | None:
        """The operator is asked."""
        asked = self.questions if isinstance(self.questions, list) else []
        return "question", "\n".join(str(one.get("question", "")) for one in asked if isinstance(one, dict))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswered(Event):
    """The answers, or None when nobody gave any."""

    request_id: str
    answers: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(Event):
    """A command was left running on the target."""

    job_id: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExited(Event):
    """A command that had been left running has ended."""

    job_id: str
    exit_code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentStarted(Event):
    """A call started an agent of its own."""

    agent_id: str
    prompt: str
    kind: str = ""
    """Its type."""
    title: str = ""
    """What it is for, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentCompleted(Event):
    """That agent has ended."""

    agent_id: str
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TodoChanged(Event):
    """The list of things to do is another."""

    todos: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalFailure(Event):
    """For the operator: something of harness itself went wrong. The model is told separately."""

    message: str
    call_id: str = ""


class Subscription:
    """The events since it was made, one after the other: ``async for event in subscription``."""

    def __init__(self) -> None:
        self._waiting: deque[Event] = deque()
        self._progress = 0
        self._missed: dict[str, int] = {}
        self._more = anyio.Event()

    def put(self, event: Event) -> None:
        """Keep an event for the subscriber."""
        if isinstance(event, ToolCallProgress):
            if self._progress >= PROGRESS_KEPT:
                self._missed[event.call_id] = self._missed.get(event.call_id, 0) + 1
                return
            self._progress += 1
            event = replace(event, missed=self._missed.pop(event.call_id, 0))
        self._waiting.append(event)
        self._more.set()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            self._more = anyio.Event()
            await self._more.wait()
        event = self._waiting.popleft()
        self._progress -= isinstance(event, ToolCallProgress)
        return event

    def drain(self) -> list[Event]:
        """What has come and was not taken yet, at once."""
        events = list(self._waiting)
        self._waiting.clear()
        self._progress = 0
        return events


class EventBus:
    """Hands every event to every subscriber. Publishing never waits."""

    def __init__(self, session_id: str = "") -> None:
        self.session_id = session_id
        self._number = 0
        self._listeners: list[Callable[[Event], None]] = []

    def publish(self, event: Event) -> Event:
        """Give the event its number and hand it on; returns it as it was handed on."""
        self._number += 1
        numbered = replace(event, number=self._number, session_id=event.session_id or self.session_id)
        for listener in tuple(self._listeners):
            listener(numbered)
        return numbered

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """A subscription to what is published inside."""
        subscription = Subscription()
        with self.listening(subscription.put):
            yield subscription

    @contextmanager
    def listening(self, listener: Callable[[Event], None]) -> Iterator[None]:
        """Call ``listener`` with what is published inside, before publishing returns. It may not raise."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)
