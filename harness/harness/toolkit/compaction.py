"""Compaction of conversations: the interface to the code that stores them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar

from .registry import Registry

__all__ = ["COMPACT", "Compaction", "Compactor", "without_compact"]

COMPACT = "compact"
"""The tool that needs a compactor."""

R = TypeVar("R", bound=Registry)


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction: the number of messages before and after, and the summary that replaced the removed ones."""

    before: int
    after: int
    summary: str = ""


class Compactor(ABC):
    """Stores a conversation, and can replace its older messages by a summary."""

    @abstractmethod
    async def compact(self, session_id: str) -> Compaction | None:
        """Compact the conversation; return None if there is nothing to compact yet.

        Raises:
            HarnessError: compaction failed; the conversation is unchanged.
        """


def without_compact(registry: R) -> R:
    """Return the tools without the one that compacts, which would not work here."""
    return registry.filter(lambda tool: tool.own.name != COMPACT)
