"""The interface of observers, events as lines of JSON, and reports of reconnected links."""

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
from ...toolkit.redaction.redactor import Redactor, redact_object
from ...toolkit.values import Json, JsonObject

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from ..models import ModelProfile, OpenModel

__all__ = [
    "CURRENT",
    "VERSION",
    "MakeLine",
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


# -- The current request of a task: set when its start is published, read when the model is called.


CURRENT: ContextVar[tuple[str, int]] = ContextVar("harness_current_request", default=("", 0))
"""The turn's id, and the number of the request in it."""


# -- Events as lines of JSON. Pure.


VERSION = 1
"""The version of the line format."""
PIECES = frozenset({"AnswerDelta", "ReasoningDelta", "ToolCallProgress"})
_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
DEPTH = 40


MakeLine = Callable[[], tuple[str, JsonObject]]
"""Returns the type and the values of a line; called in the writer's thread."""


def is_piece(event: Event) -> bool:
    """Return whether an event is a part of something that is published again as a whole."""
    return type(event).__name__ in PIECES


def type_of(event: Event) -> str:
    """Return the name of an event in a trace, such as ``tool_call_completed``."""
    return _BORDER.sub("_", type(event).__name__).lower()


def event_fields(event: Event) -> JsonObject:
    """Return an event as an object without empty values."""
    values = {item.name: json_of(getattr(event, item.name)) for item in fields(event)}
    return {name: value for name, value in values.items() if value not in ("", None, {}, [])}


def json_of(value: object, depth: int = DEPTH) -> Json:
    """Return any value as JSON: bytes as their number, unknown objects as text."""
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
    """Return one line of a trace, redacted."""
    whole = {"type": kind, "at": round(at, 6), **redact_object(values, redactor.text)}
    return json.dumps(whole, separators=(",", ":")).encode() + b"\n"


# -- Reconnected links to targets, which the backends log


LOGGER = "harness_backends.links"


class _Listener(logging.Handler):
    """Reports the target's URL and the seconds without connection from a log record."""

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
    """Call ``report`` with the target and the seconds after each reconnect; it must not raise.

    The operator's choice of which log records are shown is unchanged.
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


# -- Observers


OpenOne = Callable[["ModelProfile"], AbstractAsyncContextManager["OpenModel"]]


class Observer:
    """Receives every event, and the requests to and responses of models. It must not block or raise.

    ``heard`` is called by the publishing task: a :class:`.events.RequestStarted` describes the next request of this
    task.
    """

    def heard(self, event: Event) -> None:
        """Handle a published event."""

    def model(self, model: Model) -> Model:
        """Return the model to use instead; the default is the same one."""
        return model


def observed(open_one: OpenOne, observers: Sequence[Observer]) -> OpenOne:
    """Return a variant of ``open_one`` whose models are wrapped by the observers."""

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
    """Send the events published inside the block to all observers."""
    with ExitStack() as stack:
        for observer in observers:
            stack.enter_context(events.listening(observer.heard))
        yield
