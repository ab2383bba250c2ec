"""About how many tokens a text or a conversation is."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage

from .history import dumped

__all__ = ["estimate"]


def estimate(what: str | Sequence[ModelMessage]) -> int:
    """Tokens, counted on the safe side: no provider's own count is at hand before it has answered."""
    text = what if isinstance(what, str) else "".join(map(dumped, what))
    return -(-len(text.encode("utf-8", "replace")) // 4)
