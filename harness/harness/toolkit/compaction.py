"""Making a conversation shorter: the seam for whoever keeps one."""

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
    """What was done: how many messages there were, and are now, and what was put in the place of those that went."""

    before: int
    after: int
    summary: str = ""


class Compactor(ABC):
    """Keeps a conversation, and can replace its older messages by a summary."""

    @abstractmethod
    async def compact(self, session_id: str) -> Compaction | None:
        """Do it; None: there is nothing to compact yet.

        Raises:
            HarnessError: it could not be done; the conversation is as it was.
        """


def without_compact(registry: R) -> R:
    """The tools without the one that has no use here: a model should not see what cannot work."""
    return registry.filter(lambda tool: tool.own.name != COMPACT)
