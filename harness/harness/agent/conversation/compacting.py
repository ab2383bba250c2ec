"""Makes a conversation shorter: older messages give way to a summary of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic_ai.messages import ModelMessage

from .tokens import estimate

if TYPE_CHECKING:
    from ..models import OpenModel

__all__ = ["Compacted", "Compacting", "needed"]

NEAR = 0.85
"""Of the model's limit: from here on a conversation is made shorter before the next request."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """A shorter conversation. ``by_model`` is False when the model could not write the summary."""

    messages: tuple[ModelMessage, ...]
    summary: str
    before: int
    after: int
    by_model: bool = True


def needed(messages: Sequence[ModelMessage], used: int, limit: int) -> bool:
    """Whether to compact before the next request.

    Args:
        used: tokens of the last request and its answer, as the provider counted; 0: not known.
        limit: what the model takes; 0: not known, then never.
    """
    return limit > 0 and max(used, estimate(messages)) >= NEAR * limit


class Compacting:
    """Compacts the conversations of one agent.

    Args:
        open_model: opens the model that writes summaries.
    """

    def __init__(self, open_model: Callable[[], AbstractAsyncContextManager[OpenModel]]) -> None:
        self._open_model = open_model

    async def compact(self, messages: Sequence[ModelMessage], limit: int = 0) -> Compacted | None:
        """The conversation, shorter; None when there is nothing that could go."""
        return None
