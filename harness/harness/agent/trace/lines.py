"""What happens, as lines of JSON. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum

from ...toolkit.events import Event
from ...toolkit.redaction import redact_object
from ...toolkit.seams import Redactor
from ...toolkit.values import Json, JsonObject

__all__ = ["VERSION", "event_fields", "is_piece", "json_of", "line_of", "type_of"]

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
