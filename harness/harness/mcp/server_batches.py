"""Batches: several messages in one line, whose answers come in one line. Revision 2025-03-26 alone has them."""

from __future__ import annotations

from dataclasses import dataclass, field

import mcp_types as types
from mcp.shared.message import SessionMessage

__all__ = ["WITH_BATCHES", "Batch", "BatchAnswer", "Batches"]

WITH_BATCHES = frozenset({"2025-03-26"})
"""Revisions of the protocol that have batches."""

Answer = types.JSONRPCResponse | types.JSONRPCError


@dataclass
class BatchAnswer(SessionMessage):
    """All the answers to a batch; ``message`` is the first."""

    answers: tuple[Answer, ...] = ()


@dataclass(slots=True)
class Batch:
    """A batch, the ids of whose requests wait for their answers."""

    waiting: set[str] = field(default_factory=set)
    answers: list[Answer] = field(default_factory=list)

    @property
    def message(self) -> BatchAnswer | None:
        """What is sent; None while something is waited for, and where there is nothing to say."""
        if self.waiting or not self.answers:
            return None
        return BatchAnswer(self.answers[0], answers=tuple(self.answers))


class Batches:
    """The batches of a client that have not been answered."""

    def __init__(self) -> None:
        self._of: dict[str, Batch] = {}

    def add(self, batch: Batch) -> None:
        """Wait for the answers to a batch."""
        self._of.update(dict.fromkeys(batch.waiting, batch))

    def answered(self, request_id: str, answer: Answer) -> tuple[bool, BatchAnswer | None]:
        """Whether the answer belongs to a batch, and the answer to that batch when this was the last one."""
        batch = self._of.pop(request_id, None)
        if batch is None:
            return False, None
        batch.waiting.discard(request_id)
        batch.answers.append(answer)
        return True, batch.message

    def dropped(self, request_id: str) -> BatchAnswer | None:
        """The answer to the batch, when nothing but this request, which is not answered, was waited for."""
        batch = self._of.pop(request_id, None)
        if batch is None:
            return None
        batch.waiting.discard(request_id)
        return batch.message
