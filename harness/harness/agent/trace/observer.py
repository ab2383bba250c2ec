"""Who watches an agent: the interface, which request a task makes, events as lines of JSON, news of lost links."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from ...toolkit.events import Event, EventBus
from ...toolkit.interfaces import Redactor
from ...toolkit.redaction.redactor import redact_object
from ...toolkit.values import Json, JsonObject

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from ..models import ModelProfile, OpenModel

__all__ = [
    "CURRENT",
    "VERSION",
    "Observer",
    "event_fields",
    "is_piece",
    "json_of",
    "line_of",
    "link_news",
    "observed",
    "type_of",
    "watching",
]


# -- Which request of which turn a task makes: set by what it publishes, read when the model is asked.


CURRENT: ContextVar[tuple[str, int]] = ContextVar("harness_current_request", default=("", 0))
"""The turn's id, and the number of the request in it."""


# -- What happens, as lines of JSON. Pure.


VERSION = 1
"""Of the form of the lines."""
PIECES = frozenset({"AnswerDelta", "ReasoningDelta", "ToolCallProgress"})
_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
DEPTH = 40


def is_piece(event: Event) -> bool:
    """Whether it is a piece of something that comes again as a whole."""
    return type(event).__name__ in PIECES


def type_of(event: Event) -> str:
    """The name of an event in a trace: ``tool_call_completed``."""
    return _BORDER.sub("_", type(event).__name__).lower()


def event_fields(event: Event) -> JsonObject:
    """An event as an object; what is empty is left out."""
    values = {item.name: json_of(getattr(event, item.name)) for item in fields(event)}
    return {name: value for name, value in values.items() if value not in ("", None, {}, [])}


def json_of(value: object, depth: int = DEPTH) -> Json:
    """Any value as JSON: of bytes only how many they are, of what is unknown its text."""
    if isinstance(value, Enum):
        return json_of(value.value, depth)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"bytes": len(value)}
    return _compound(value, depth - 1) if depth else "[too deep]"


def _compound(value: object, depth: int) -> Json:
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: json_of(getattr(value, item.name), depth) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): json_of(item, depth) for name, item in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [json_of(item, depth) for item in value]
    return str(value)


def line_of(kind: str, at: float, values: JsonObject, redactor: Redactor) -> bytes:
    """One line of a trace, without secrets."""
    whole = {"type": kind, "at": round(at, 6), **redact_object(values, redactor.text)}
    return json.dumps(whole, separators=(",", ":")).encode() + b"\n"


# -- News of links to targets that were lost and are back, which the backends log.


LOGGER = "harness_backends.links"


class _Listener(logging.Handler):
    """Hands on what the news is about: the target's URL, and the seconds that it was out of reach."""

    def __init__(self, report: Callable[[str, float], None]) -> None:
        super().__init__(logging.INFO)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and len(record.args) == 2:
            target, seconds = record.args
            if isinstance(target, str) and isinstance(seconds, float):
                self._report(target, seconds)


@contextmanager
def link_news(report: Callable[[str, float], None]) -> Iterator[None]:
    """Call ``report`` with the target and the seconds whenever a link is back; it may not raise.

    What is shown of it on the screen stays as the operator chose.
    """
    logger, listener = logging.getLogger(LOGGER), _Listener(report)
    level, propagate = logger.level, logger.propagate
    logger.propagate = propagate and logger.isEnabledFor(logging.INFO)
    logger.setLevel(logging.INFO if not logger.isEnabledFor(logging.INFO) else level)
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
        logger.propagate = propagate


# -- The seam to those who watch.


OpenOne = Callable[["ModelProfile"], AbstractAsyncContextManager["OpenModel"]]


class Observer:
    """Hears of every event, and sees what a model is sent and answers. It never waits and never raises.

    ``heard`` is called by the task that publishes: what a :class:`.events.RequestStarted` says holds for the request
    that this task makes next.
    """

    def heard(self, event: Event) -> None:
        """An event was published."""

    def model(self, model: Model) -> Model:
        """The model that is to be used instead; the default is the same one."""
        return model


def observed(open_one: OpenOne, observers: Sequence[Observer]) -> OpenOne:
    """Opens models as ``open_one`` does, so that all of these see their requests."""

    @asynccontextmanager
    async def opened(profile: ModelProfile) -> AsyncIterator[OpenModel]:
        async with open_one(profile) as found:
            model = found.model
            for observer in observers:
                model = observer.model(model)
            yield replace(found, model=model)

    return opened if observers else open_one


@contextmanager
def watching(events: EventBus, observers: Sequence[Observer]) -> Iterator[None]:
    """All of these hear what is published inside."""
    with ExitStack() as stack:
        for observer in observers:
            stack.enter_context(events.listening(observer.heard))
        yield
