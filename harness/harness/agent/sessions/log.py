"""Where an agent writes its conversation down as it happens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from time import time

from ...toolkit.values import JsonObject
from ..events import Origin, TurnStatus
from .values import SessionNote, StoredTurn

__all__ = ["ConversationLog", "MemoryLog"]


class ConversationLog(ABC):
    """The log of one conversation, for one agent. What was handed over is kept when a method returns.

    Texts are redacted by whoever hands them over. Every method raises :class:`~harness.errors.HarnessError` when it
    could not be kept; what a failed method was to keep, :meth:`replaced` excepted, is kept as soon as that is possible:
    it is not handed over again.
    """

    @abstractmethod
    async def turn_started(self, turn_id: str, prompt: str, origin: Origin = "operator") -> None:
        """A turn begins. One that has no end yet gets none any more."""

    @abstractmethod
    async def append(self, messages: Sequence[str]) -> None:
        """Add messages, as JSON texts: all of them or none."""

    @abstractmethod
    async def replaced(self, messages: Sequence[str], summary: str) -> None:
        """Put other messages in the place of all there are; those stay on the disk, and count no more.

        Raises:
            HarnessError: nothing is changed.
        """

    @abstractmethod
    async def turn_ended(self, turn_id: str, status: TurnStatus, usage: JsonObject | None = None) -> None:
        """A turn has ended; ``usage`` is what it took."""

    @abstractmethod
    async def noted(self, kind: str, text: str) -> None:
        """Keep something else that happened."""


class MemoryLog(ConversationLog):
    """A log that is gone with its process: for tests, and where nothing is to be kept."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.turns: list[StoredTurn] = []
        self.notes: list[SessionNote] = []

    async def turn_started(self, turn_id: str, prompt: str, origin: Origin = "operator") -> None:
        self.turns.append(StoredTurn(turn_id=turn_id, prompt=prompt, origin=origin, started=time()))

    async def append(self, messages: Sequence[str]) -> None:
        self.messages += messages

    async def replaced(self, messages: Sequence[str], summary: str) -> None:
        self.messages = list(messages)
        await self.noted("compacted", summary)

    async def turn_ended(self, turn_id: str, status: TurnStatus, usage: JsonObject | None = None) -> None:
        self.turns = [
            replace(turn, status=status, usage=usage or {}, ended=time()) if turn.turn_id == turn_id else turn
            for turn in self.turns
        ]

    async def noted(self, kind: str, text: str) -> None:
        self.notes.append(SessionNote(at=time(), kind=kind, text=text))
