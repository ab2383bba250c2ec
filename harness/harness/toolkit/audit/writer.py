"""Writes queued audit records in order: one task, one transaction per batch, in a worker thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import anyio
from anyio import to_thread

from ...errors import ToolError
from ..values import CallStatus
from .directory import AuditPaths
from .records import Kind, outcome_fields
from .store import AuditDatabase, PendingRecord

__all__ = ["BEGIN_TIMEOUT", "WAITING_LIMIT", "Writer"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

WAITING_LIMIT = 10_000
"""Maximum queued records while the disk cannot be written; then no call may run."""
BATCH = 500
BEGIN_TIMEOUT = 15.0
"""Seconds that an intent record may take before the call is refused."""
END_LIMIT = 10.0
RETRY = 1.0
"""Seconds between attempts while the disk cannot be written."""
CLOSE_TIMEOUT = 10.0


@dataclass(eq=False, slots=True)
class _QueuedWrite:
    item: PendingRecord
    must: bool = False
    """It is cancelled if it cannot be written at once."""
    tried: anyio.Event = field(default_factory=anyio.Event)
    """It was written, or writing it failed."""
    error: Exception | None = None


class Writer:
    """The owner of the database while the audit log is open."""

    def __init__(self, store: AuditDatabase, place: AuditPaths) -> None:
        self._store = store
        self._place = place
        self._waiting: list[_QueuedWrite] = []
        self._more = anyio.Event()
        self._turn = anyio.Lock(fast_acquire=True)
        self._in_trouble = False

    def put(self, item: PendingRecord) -> None:
        """Queue a record."""
        self._put(_QueuedWrite(item))

    async def keep(self, item: PendingRecord) -> None:
        """Queue a record and wait for the first attempt; a failed one is retried later. Never raises."""
        waiting = _QueuedWrite(item)
        self._put(waiting)
        with anyio.move_on_after(END_LIMIT):
            await waiting.tried.wait()

    async def must(self, item: PendingRecord) -> None:
        """Write a record now.

        Raises:
            ToolError: it was not written, and will not be.
        """
        waiting = _QueuedWrite(item, must=True)
        self._put(waiting)
        try:
            with anyio.fail_after(BEGIN_TIMEOUT):
                await waiting.tried.wait()
        except TimeoutError:
            self._withdraw(waiting)
            raise self.refusal(f"the disk did not respond for {BEGIN_TIMEOUT:g} s") from None
        except anyio.get_cancelled_exc_class():
            self._withdraw(waiting)
            raise
        if waiting.error is not None:
            raise self.refusal(str(waiting.error)) from waiting.error

    def check_room(self) -> None:
        """Refuse a call if too many records are queued.

        Raises:
            ToolError: the queue is full.
        """
        if len(self._waiting) >= WAITING_LIMIT:
            raise self.refusal(f"{len(self._waiting)} records are waiting to be written")

    def refusal(self, what: str) -> ToolError:
        """Return the error for a call that may not run because it cannot be recorded."""
        return ToolError(
            f"the audit log could not be written, so nothing was run: {what}",
            hint=f"free some space for {self._place.directory}, or find out why it cannot be written",
        )

    async def in_turn(self, work: Callable[..., T], *args: object) -> T:
        """Run other work on the database in the worker thread, between two writes."""
        async with self._turn:
            with anyio.CancelScope(shield=True):  # a connection must not be used by two threads at once
                result = await to_thread.run_sync(partial(work, *args))
        return result

    async def run(self) -> None:
        """Write queued records as they arrive; runs in the owner's task until it is cancelled."""
        while True:
            with anyio.move_on_after(RETRY if self._waiting else None):
                await self._more.wait()
            self._more = anyio.Event()
            while self._waiting and await self._write_some():
                pass

    async def close(self) -> None:
        """Write the queued records, within a timeout."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
            while (self._waiting or self._turn.locked()) and await self._write_some():
                pass
            try:
                await to_thread.run_sync(self._store.finish, abandon_on_cancel=True)
            except Exception as error:  # the records are written, but may be lost if the machine crashes
                logger.warning(
                    "the last records of the audit log in %s may not be on disk: %s", self._place.directory, error
                )
        if lost := len(self._waiting):
            logger.error("%d records of the audit log in %s could not be written", lost, self._place.directory)

    def _put(self, waiting: _QueuedWrite) -> None:
        self._waiting.append(waiting)
        self._more.set()

    def _withdraw(self, waiting: _QueuedWrite) -> None:
        """Withdraw the record of a call that will not run; if it may be on disk already, record its cancellation."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            waiting.item.void = True
        elif waiting.item.fields["kind"] == Kind.INTENT:
            fields = outcome_fields(time.time(), CallStatus.CANCELLED, "it was given up before it ran", "")
            self.put(PendingRecord(fields, about=waiting.item))

    async def _write_some(self) -> bool:
        async with self._turn:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            if not batch:
                return True
            try:
                await to_thread.run_sync(self._store.write, [one.item for one in batch], abandon_on_cancel=True)
            except Exception as error:  # whatever failed, a mutating call must not run
                self._failed(batch, error)
                return False
            finally:
                for one in batch:
                    one.tried.set()
        if self._in_trouble:
            self._in_trouble = False
            logger.warning("the audit log in %s is writable again", self._place.directory)
        return True

    def _failed(self, batch: list[_QueuedWrite], error: Exception) -> None:
        kept = [one for one in batch if not one.must]
        for one in batch:
            if one.must:
                one.error, one.item.void = error, True
        self._waiting[:0] = kept
        if not self._in_trouble:
            self._in_trouble = True
            what = "the audit log in %s cannot be written: %s; mutating calls are refused until it can"
            logger.warning(what, self._place.directory, error)
