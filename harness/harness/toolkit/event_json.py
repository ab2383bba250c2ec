"""Events as JSON objects, as ``harness exec --json`` prints them and dashboards get them; see docs/exec.md. Pure."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from .events import Event
from .values import CallOutcome, Image, Text, ToolCall

__all__ = ["event_json", "event_type"]

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
