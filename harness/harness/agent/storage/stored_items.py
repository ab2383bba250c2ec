"""The stored part of a conversation, as the items that its live events have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...errors import HarnessError
from .store import ConversationStore
from .values import ConversationNotFound

__all__ = ["items_of_messages", "stored_items"]

MAX_MESSAGES = 400
"""Messages of a conversation that are shown; the newest ones."""
MAX_TEXT_CHARS = 20_000
"""Characters of each text that are shown."""
MAX_TOTAL_CHARS = 400_000
"""Characters of all texts; beyond it, the oldest items are left out."""


async def stored_items(session_id: str, redact: Callable[[str], str]) -> Sequence[Mapping[str, Any]]:
    """Return the stored items of a conversation; none if it is not stored.

    Args:
        session_id: The conversation.
        redact: Replaces secrets.
    """
    try:
        stored = await ConversationStore().load(session_id)
    except ConversationNotFound:
        return []
    except HarnessError as error:
        return [{"type": "notice", "text": redact(error.message)}]
    return items_of_messages(stored.messages[-MAX_MESSAGES:], redact)


def items_of_messages(messages: Sequence[str], redact: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return the items of stored messages, the oldest first. Pure."""

    def text_of(value: object) -> str:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        cut = redact(text)
        return cut if len(cut) <= MAX_TEXT_CHARS else f"{cut[:MAX_TEXT_CHARS]} … {len(cut) - MAX_TEXT_CHARS} more"

    items = [item for message in messages for item in _items(json.loads(message), text_of)]
    total = 0
    for number in range(len(items) - 1, -1, -1):
        total += len(json.dumps(items[number]))
        if total > MAX_TOTAL_CHARS:
            return [{"type": "notice", "text": "earlier parts are not shown"}, *items[number + 1 :]]
    return items


def _items(message: Mapping[str, Any], text_of: Callable[[object], str]) -> Iterator[dict[str, Any]]:
    for part in message.get("parts") or ():
        kind, content = part.get("part_kind"), part.get("content")
        if kind == "user-prompt":
            yield {"type": "turn_started", "prompt": text_of(content)}
        elif kind == "text" and str(content).strip():
            yield {"type": "answer_completed", "text": text_of(content)}
        elif kind == "tool-call":
            call = {"call_id": str(part.get("tool_call_id")), "name": str(part.get("tool_name"))}
            yield {"type": "tool_call_requested", "call": {**call, "arguments": text_of(part.get("args") or {})}}
        elif kind in ("tool-return", "retry-prompt"):
            call = {"call_id": str(part.get("tool_call_id")), "name": str(part.get("tool_name"))}
            result = {"text": text_of(content), "is_error": kind == "retry-prompt", "status": ""}
            yield {"type": "tool_call_completed", "outcome": {"call": call, **result}}
