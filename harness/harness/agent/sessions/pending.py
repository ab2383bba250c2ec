"""Calls that an answer asks for and that have no result: which of them never ran, as the audit knows it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ...toolkit.ledger import AuditCall
from ...toolkit.values import Json, JsonObject

__all__ = ["never_begun", "of_the_kill", "pending_calls"]

OPEN = frozenset({"", "running", "unknown"})
"""What the audit says of a call whose end nobody has written."""


def pending_calls(messages: Sequence[str]) -> tuple[JsonObject, ...]:
    """The calls of the last message, as ``tool`` and ``arguments``; none when it is a request, or cannot be read."""
    try:
        message = json.loads(messages[-1]) if messages else None
    except ValueError:
        return ()
    parts = message.get("parts") if isinstance(message, dict) and message.get("kind") == "response" else None
    calls = [part for part in _objects(parts) if part.get("part_kind") == "tool-call"]
    return tuple({"tool": str(call.get("tool_name")), "arguments": _arguments(call.get("args"))} for call in calls)


def of_the_kill(calls: Iterable[AuditCall], turn_id: str, changed: float) -> list[AuditCall]:
    """The calls that were made since the conversation was last written, and those of the turn that have no end.

    The second are the same as the first, but for a clock that was set back meanwhile.
    """
    return [call for call in calls if _at(call) >= changed or (_is_of(call, turn_id) and call.status in OPEN)]


def never_begun(pending: Sequence[JsonObject], calls: Iterable[AuditCall]) -> list[JsonObject]:
    """The pending calls that the audit would know if they had begun.

    A call that changes something is in the audit before it runs. Where the audit has a call that is none of the
    pending ones as they were asked for, it may be any of them in another form: then nothing is said of any.
    """
    known = [(call.call.get("tool"), call.call.get("arguments")) for call in calls]
    left = []
    for call in pending:
        one = (call["tool"], call["arguments"])
        if one in known:
            known.remove(one)
        else:
            left.append(call)
    return [] if known else left


def _at(call: AuditCall) -> float:
    at = call.call.get("at")
    return at if isinstance(at, int | float) else 0.0


def _is_of(call: AuditCall, turn_id: str) -> bool:
    return call.call.get("message_id") == turn_id


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _arguments(value: Any) -> dict[str, Json]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = {"text": value}
    return value if isinstance(value, dict) else {}
