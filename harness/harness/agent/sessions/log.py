"""Where an agent writes its conversation down as it happens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from time import time

from ...toolkit.events import Event, JobExited, JobStarted
from ...toolkit.values import JsonObject
from ..events import Origin, TurnStatus
from .values import SessionNote, StoredTurn

__all__ = ["JOB_ENDED", "JOB_LEFT", "ConversationLog", "JobNotes", "MemoryLog"]

JOB_LEFT, JOB_ENDED = "job_left", "job_ended"
"""Kinds of notes: a command was left running on the target, and it has ended. Their text is its id."""


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

    @abstractmethod
    def note(self, kind: str, text: str) -> None:
        """As :meth:`noted`, kept with whatever is written next. Never waits or raises."""


class JobNotes:
    """Keeps in a log which commands are left running, as a listener of the session's events."""

    def __init__(self, log: ConversationLog) -> None:
        self._log = log

    def heard(self, event: Event) -> None:
        """Take note of a command that was left running, or that has ended."""
        if isinstance(event, JobStarted):
            self._log.note(JOB_LEFT, event.job_id)
        elif isinstance(event, JobExited):
            self._log.note(JOB_ENDED, event.job_id)


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
        self.note("compacted", summary)

    async def turn_ended(self, turn_id: str, status: TurnStatus, usage: JsonObject | None = None) -> None:
        self.turns = [
            replace(turn, status=status, usage=usage or {}, ended=time()) if turn.turn_id == turn_id else turn
            for turn in self.turns
        ]

    async def noted(self, kind: str, text: str) -> None:
        self.note(kind, text)

    def note(self, kind: str, text: str) -> None:
        self.notes.append(SessionNote(at=time(), kind=kind, text=text))
