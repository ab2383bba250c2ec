"""The log of a conversation, which stores every message before it is used."""

from __future__ import annotations

import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import time

import anyio
from anyio import to_thread

from ...errors import HarnessError
from ...system.private_database import PrivateDatabase, transaction
from ...toolkit.events import Event, JobExited, JobStarted
from ...toolkit.values import JsonObject
from ..events import Origin, TurnStatus
from .rows import add_messages, add_note, end_turn, replace_messages, start_turn
from .values import ConversationNote, StoredTurn

__all__ = [
    "CLOSE_LIMIT",
    "JOB_ENDED",
    "JOB_LEFT",
    "ConversationLog",
    "JobNotes",
    "MemoryLog",
    "StoredLog",
    "job_note",
    "parse_job_note",
]


# -- The interface of a log


JOB_LEFT, JOB_ENDED = "job_left", "job_ended"
"""Kinds of notes: a job was left running on the target, or has ended. Their text is that of :func:`job_note`."""


class ConversationLog(ABC):
    """The log of one conversation, for one agent. Data is stored when a method returns.

    Callers redact the texts. Every method raises :class:`~harness.errors.HarnessError` if the data could not be stored;
    the data of a failed method, except :meth:`replaced`, is stored as soon as possible and must not be passed again.
    """

    @abstractmethod
    async def turn_started(self, turn_id: str, prompt: str, origin: Origin = "operator") -> None:
        """Record the start of a turn; an earlier turn without an end stays without one."""

    @abstractmethod
    async def append(self, messages: Sequence[str]) -> None:
        """Add messages, as JSON texts: all of them or none."""

    @abstractmethod
    async def replaced(self, messages: Sequence[str], summary: str) -> None:
        """Replace all messages; the old ones stay on disk and are no longer used.

        Raises:
            HarnessError: nothing is changed.
        """

    @abstractmethod
    async def turn_ended(self, turn_id: str, status: TurnStatus, usage: JsonObject | None = None) -> None:
        """Record the end of a turn with its ``usage``."""

    @abstractmethod
    async def noted(self, kind: str, text: str) -> None:
        """Store a note about another event."""

    @abstractmethod
    def note(self, kind: str, text: str) -> None:
        """Store a note with the next write. Never waits or raises."""


def job_note(host: str, job_id: str) -> str:
    """Return the text of a note about a job: its ID, then its host if the conversation works on many."""
    return f"{job_id} {host}" if host else job_id


def parse_job_note(text: str) -> tuple[str, str]:
    """Return the host and the job ID of a note's text."""
    job_id, _, host = text.partition(" ")
    return host, job_id


class JobNotes:
    """Records in a log which jobs are left running; listens to the session's events."""

    def __init__(self, log: ConversationLog) -> None:
        self._log = log

    def heard(self, event: Event) -> None:
        """Record a job that was left running, or that has ended."""
        if isinstance(event, JobStarted):
            self._log.note(JOB_LEFT, job_note(event.host, event.job_id))
        elif isinstance(event, JobExited):
            self._log.note(JOB_ENDED, job_note(event.host, event.job_id))


class MemoryLog(ConversationLog):
    """A log in memory, for tests and for conversations that are not stored."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.turns: list[StoredTurn] = []
        self.notes: list[ConversationNote] = []

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
        self.notes.append(ConversationNote(at=time(), kind=kind, text=text))


# -- The log of a stored conversation: data is on disk when a method returns.


WRITE_LIMIT = 15.0
"""Maximum seconds that a caller waits for a write; the write may still succeed later."""
CLOSE_LIMIT = 5.0

Work = Callable[[sqlite3.Connection, int], None]


@dataclass(slots=True, eq=False)
class _Item:
    work: Work
    kept: bool = True
    """Whether a failed write is repeated with the next one."""


class StoredLog(ConversationLog):
    """The log of a stored conversation, from :meth:`.ConversationStore.writing`."""

    def __init__(self, session_id: str, database: PrivateDatabase, db: sqlite3.Connection, number: int) -> None:
        self.session_id = session_id
        self._database = database
        self._db = db
        self._number = number
        self._waiting: deque[_Item] = deque()
        self._turn = threading.Lock()

    async def turn_started(self, turn_id: str, prompt: str, origin: Origin = "operator") -> None:
        turn = StoredTurn(turn_id=turn_id, prompt=prompt, origin=origin, started=time())
        await self._write(lambda db, number: start_turn(db, number, turn))

    async def append(self, messages: Sequence[str]) -> None:
        given, at = tuple(messages), time()
        await self._write(lambda db, number: add_messages(db, number, given, at))

    async def replaced(self, messages: Sequence[str], summary: str) -> None:
        given, at = tuple(messages), time()
        await self._write(lambda db, number: replace_messages(db, number, given, summary, at), kept=False)

    async def turn_ended(self, turn_id: str, status: TurnStatus, usage: JsonObject | None = None) -> None:
        took, at = usage or {}, time()
        await self._write(lambda db, number: end_turn(db, number, turn_id, status, took, at))

    async def noted(self, kind: str, text: str) -> None:
        at = time()
        await self._write(lambda db, number: add_note(db, number, kind, text, at))

    def note(self, kind: str, text: str) -> None:
        at = time()
        self._waiting.append(_Item(lambda db, number: add_note(db, number, kind, text, at)))

    async def finish(self) -> None:
        """Write what could not be written before.

        Raises:
            HarnessError: it could not be written, and is dropped.
        """
        if self._waiting:
            await to_thread.run_sync(self._flush, abandon_on_cancel=True)

    async def _write(self, work: Work, *, kept: bool = True) -> None:
        """Write an item with all pending ones; cancellation of the caller does not stop it."""
        item = _Item(work, kept)
        self._waiting.append(item)
        with anyio.CancelScope(shield=True):
            try:
                with anyio.fail_after(WRITE_LIMIT):
                    await to_thread.run_sync(self._flush, abandon_on_cancel=True)
            except TimeoutError:
                self._withdraw(item)
                raise self._database.failure(f"the disk did not respond for {WRITE_LIMIT:g} s") from None

    def _withdraw(self, item: _Item) -> None:
        if not item.kept and item in self._waiting:
            self._waiting.remove(item)

    def _flush(self) -> None:
        """Write all pending items in order, or none."""
        with self._turn:
            items = tuple(self._waiting)
            if not items:
                return
            item = items[0]
            try:
                with transaction(self._db):
                    for item in items:
                        item.work(self._db, self._number)
            except BaseException as error:
                item.kept = item.kept and _may_be_tried_again(error)
                for item in items:
                    self._withdraw(item)
                if isinstance(error, sqlite3.Error | UnicodeDecodeError):
                    raise self._failure(error) from error
                raise
            for item in items:
                self._waiting.remove(item)

    def _failure(self, error: sqlite3.Error | UnicodeDecodeError) -> HarnessError:
        if isinstance(error, sqlite3.IntegrityError):
            return HarnessError(f"the conversation {self.session_id} is no longer stored: it was deleted")
        return self._database.unusable(error)


def _may_be_tried_again(error: BaseException) -> bool:
    """Return whether the error may be temporary, and is not caused by the data itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and code not in (sqlite3.SQLITE_TOOBIG, None)
