"""Events of calls as a stream for user interfaces: prompts, viewers, MCP clients, tests.

Progress may be dropped for a slow subscriber, and the next piece it receives carries the number of dropped ones.
All other events are buffered without a limit, because a dropped question or end would leave its receiver waiting.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import anyio

from .values import CallOutcome, Image, Json, JsonObject, Text, ToolCall

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
    "event_json",
    "event_type",
]

PROGRESS_KEPT = 256
"""Buffered pieces of progress for a slow subscriber."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of events. ``number`` is unique in a session; ``parent_call`` is the call that started the sub-agent."""

    number: int = 0
    session_id: str = ""
    parent_call: str = ""

    def notification(self) -> tuple[str, str] | None:
        """Return the kind and the text of an operator notification; None for no notification."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRequested(Event):
    """A call with valid arguments enters the pipeline. Exactly one completion follows."""

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
    """The end of a call, including calls that were never requested. Its call is as it may be shown."""

    outcome: CallOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAsked(Event):
    """The operator must decide about ``what``, the exact text. ``details`` is what the caller states about it.

    ``preview`` has lines to show below ``what``; those that start with ``| `` are from the caller.
    """

    request_id: str
    call: ToolCall
    what: str
    reason: str
    details: JsonObject = field(default_factory=dict)
    preview: str = ""

    def notification(self) -> tuple[str, str] | None:
        """Return the notification that an approval is required."""
        return "permission_request", self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionReplied(Event):
    """The decision on an approval request, and who made it."""

    request_id: str
    allowed: bool
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked(Event):
    """A tool asks the operator questions."""

    request_id: str
    questions: Json

    def notification(self) -> tuple[str, str] | None:
        """Return the notification that a question was asked."""
        asked = self.questions if isinstance(self.questions, list) else []
        return "question", "\n".join(str(one.get("question", "")) for one in asked if isinstance(one, dict))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswered(Event):
    """The answers, or None if there are none."""

    request_id: str
    answers: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(Event):
    """A command was left running on the target."""

    job_id: str
    command: str
    host: str = ""
    """The host of a fleet, by its name; empty in a session on one target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExited(Event):
    """A command that was left running has exited."""

    job_id: str
    exit_code: int | None
    host: str = ""
    """As in :class:`JobStarted`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentStarted(Event):
    """A call started a sub-agent."""

    agent_id: str
    prompt: str
    kind: str = ""
    """Its type."""
    title: str = ""
    """Its task in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentCompleted(Event):
    """A sub-agent has ended."""

    agent_id: str
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TodoChanged(Event):
    """The to-do list was changed."""

    todos: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalFailure(Event):
    """An internal failure of harness, for the operator. The model is notified separately."""

    message: str
    call_id: str = ""


class Subscription:
    """The events since it was created, in order: ``async for event in subscription``."""

    def __init__(self) -> None:
        self._waiting: deque[Event] = deque()
        self._progress = 0
        self._missed: dict[str, int] = {}
        self._more = anyio.Event()

    def put(self, event: Event) -> None:
        """Buffer an event for the subscriber."""
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
        """Return and remove all buffered events, without waiting."""
        events = list(self._waiting)
        self._waiting.clear()
        self._progress = 0
        return events


class EventBus:
    """Delivers every event to every subscriber. Publishing never waits."""

    def __init__(self, session_id: str = "") -> None:
        self.session_id = session_id
        self._number = 0
        self._listeners: list[Callable[[Event], None]] = []

    def publish(self, event: Event) -> Event:
        """Number an event, deliver it and return it as delivered."""
        self._number += 1
        numbered = replace(event, number=self._number, session_id=event.session_id or self.session_id)
        for listener in tuple(self._listeners):
            listener(numbered)
        return numbered

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Yield a subscription to the events published while the context is open."""
        subscription = Subscription()
        with self.listening(subscription.put):
            yield subscription

    @contextmanager
    def listening(self, listener: Callable[[Event], None]) -> Iterator[None]:
        """Call ``listener`` with each event before publishing returns. It may not raise."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


# -- Events as JSON, as ``harness exec --json`` prints them and dashboards get them; see docs/exec.md.


_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def event_type(kind: type[Event]) -> str:
    """Return the type name of an event class: ``tool_call_requested`` for ``ToolCallRequested``."""
    return _WORD.sub("_", kind.__name__).lower()


def event_json(event: Event) -> dict[str, object]:
    """Return an event as a JSON object; an empty ``parent_call``, as most events have, is omitted."""
    found = {field.name: _value(getattr(event, field.name)) for field in fields(event)}
    if not found["parent_call"]:
        del found["parent_call"]
    return {"type": event_type(type(event)), **found}


def _value(value: Any) -> object:
    if isinstance(value, CallOutcome):
        return _outcome(value)
    if isinstance(value, ToolCall):
        return _call(value)
    return value


def _call(call: ToolCall) -> dict[str, object]:
    return {
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
        "agent_id": call.agent_id,
    }


def _outcome(outcome: CallOutcome) -> dict[str, object]:
    result = outcome.result
    return {
        "call": _call(outcome.call),
        "status": outcome.status.value,
        "is_error": result.is_error,
        "error_code": result.error_code,
        "text": "\n".join(_block(block) for block in result.content),
        "data": result.data,
        "seconds": round(outcome.seconds, 6),
        "cached": outcome.cached,
    }


def _block(block: Text | Image) -> str:
    return block.text if isinstance(block, Text) else f"[{block.media_type}, {len(block.data)} bytes]"
