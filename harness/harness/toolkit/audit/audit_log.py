"""The audit log: what is asked and decided about each call is on disk before it runs, and what came of it after."""

from __future__ import annotations

import errno
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from ...context import ExecutionContext
from ...errors import HarnessError, ToolError
from ...system.background_tasks import open_background_tasks
from ...system.process_identity import this_process
from ..interfaces import AuditLog, CallEntry
from ..values import CallStatus
from .directory import AuditPaths, audit_directory
from .reading import AuditCall, Filters
from .reading import calls as calls_in
from .records import intent_fields, job_fields, outcome_fields, refusal_fields
from .retention import Retention, apply_step, plan
from .settlement import Decision, ReconcileResult, UnresolvedCall, orphans_of, reconcile, resolution
from .store import AuditDatabase, PendingRecord, open_store
from .writer import CLOSE_TIMEOUT, Writer

__all__ = [
    "DiskFullAuditLog",
    "NullAuditLog",
    "SqliteAuditLog",
    "is_disk_full",
    "open_audit_log",
]


# -- What stands in for the ledger while its disk has no room to open it.


NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
"""What SQLite says when a file, or the one that its processes share, cannot grow."""


def is_disk_full(error: HarnessError) -> bool:
    """Whether the ledger could not be opened because its disk is full. Pure."""
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        return cause.sqlite_errorcode in NO_ROOM
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


class DiskFullAuditLog(AuditLog):
    """Refuses what changes something, and keeps nothing of the rest.

    Args:
        error: why the ledger could not be opened.
    """

    def __init__(self, error: HarnessError) -> None:
        self._error = error

    async def begin(self, entry: CallEntry) -> None:
        if entry.mutating:
            hint = f"{self._error.hint}; then start harness again"
            raise ToolError(f"nothing was run: {self._error.message}", hint=hint)

    async def end(self, call_id: str, status: CallStatus, summary: str, job_id: str = "") -> None:
        """Keep nothing."""

    async def refused(self, entry: CallEntry) -> None:
        """Keep nothing."""

    async def reconcile(
        self, execution: ExecutionContext, redact: Callable[[str], str] = lambda text: text
    ) -> ReconcileResult:
        """Nothing is found out."""
        return ReconcileResult()


# -- The ledger of this machine: what is about to run, and what came of it, in one chain of records.
#
# Calls that change something wait until they are on the disk, before and after; the others do not wait.


logger = logging.getLogger(__name__)


class NullAuditLog(AuditLog):
    """A ledger that keeps nothing, for programs whose calls nobody has to answer for."""

    async def begin(self, entry: CallEntry) -> None:
        """Keep nothing."""

    async def end(self, call_id: str, status: CallStatus, summary: str, job_id: str = "") -> None:
        """Keep nothing."""

    async def refused(self, entry: CallEntry) -> None:
        """Keep nothing."""


class SqliteAuditLog(AuditLog):
    """A ledger in a database that several processes share. Obtained from :func:`open_audit_log`."""

    def __init__(self, store: AuditDatabase, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._owner = store.process.owner
        self._calls: dict[tuple[int, str], list[PendingRecord]] = {}

    async def begin(self, entry: CallEntry) -> None:
        self._writer.check_room()
        item = PendingRecord(intent_fields(entry, self._owner), durable=entry.mutating)
        if entry.mutating:
            await self._writer.must(item)
        else:
            self._writer.put(item)
        self._calls.setdefault(_key(entry.call.call_id), []).append(item)

    async def end(self, call_id: str, status: CallStatus, summary: str, job_id: str = "") -> None:
        call = self._take(call_id)
        if call is None:
            logger.error("the audit knows no running call %r: its outcome (%s) is not kept", call_id, status.value)
            return
        item = PendingRecord(outcome_fields(time.time(), status, summary, job_id), call.durable, call)
        if call.durable:
            await self._writer.keep(item)
        else:
            self._writer.put(item)

    async def refused(self, entry: CallEntry) -> None:
        await self._writer.keep(PendingRecord(refusal_fields(entry, self._owner)))

    def started(self, call_id: str, job_id: str) -> None:
        call = self._find(call_id)
        if call is not None and call.durable:
            self._writer.put(PendingRecord(job_fields(time.time(), job_id), about=call))

    # -- what is not settled

    async def orphans(self, backend: str | None = None) -> list[UnresolvedCall]:
        """Calls without a known outcome, oldest first; of one target (``ExecutionContext.identity``), or of all."""
        return await self._writer.in_turn(orphans_of, self._store, backend)

    async def reconcile(
        self, execution: ExecutionContext, redact: Callable[[str], str] = lambda text: text
    ) -> ReconcileResult:
        """Ask the target's jobs what came of the calls of harnesses that are gone, and keep the answers.

        Calls of a harness that still runs, or that runs on another machine, are not touched.

        Args:
            redact: what the calls' arguments went through before they were kept.

        Raises:
            HarnessError: the target could not be asked, or the answers could not be kept.
        """
        return await reconcile(self._writer, self._store, execution, redact)

    async def resolve(self, number: int, decision: Decision, note: str, by: str) -> None:
        """Keep an operator's decision about a call whose outcome nobody knows.

        Args:
            number: ``UnresolvedCall.call.number``.
            decision: ``failed``, ``succeeded`` (the note says how that is known), or ``abort``: it is given up.
            by: who decided.

        Raises:
            HarnessError: no such call waits for a decision, or the decision could not be kept.
            ValueError: the note is missing.
        """
        await self._writer.must(await self._writer.in_turn(resolution, self._store, number, decision, note, by))

    async def calls_of(self, session_id: str, *, since: float | None = None, limit: int = 1000) -> list[AuditCall]:
        """The newest calls of a session, newest last, with what came of each; ``since`` is seconds since the epoch."""
        filters = Filters(session=session_id, since=since)
        return await self._writer.in_turn(_calls, self._store, filters, limit)

    async def retain(self, limits: Retention) -> None:
        """Drop what is too old or too much. Never raises."""
        try:
            through = await self._writer.in_turn(plan, self._store, limits, time.time())
            while through and await self._writer.in_turn(apply_step, self._store, through):
                pass
        except Exception as error:  # calls may run all the same
            logger.warning("old records of the audit could not be dropped: %s", error)

    # -- which call is meant: providers use one id more than once, and calls of one task are nested

    def _find(self, call_id: str) -> PendingRecord | None:
        calls = self._calls.get(_key(call_id)) or next(
            (calls for (_, name), calls in self._calls.items() if name == call_id), None
        )
        return calls[-1] if calls else None

    def _take(self, call_id: str) -> PendingRecord | None:
        found = self._find(call_id)
        for key, calls in self._calls.items():
            if found in calls:
                calls.remove(found)
                if not calls:
                    del self._calls[key]
                break
        return found


def _calls(store: AuditDatabase, filters: Filters, limit: int) -> list[AuditCall]:
    return calls_in(store.connection, filters, store.process, limit)


def _key(call_id: str) -> tuple[int, str]:
    return anyio.get_current_task().id, call_id


@asynccontextmanager
async def open_audit_log(
    directory: Path | None = None, *, retention: Retention | None = None
) -> AsyncIterator[SqliteAuditLog]:
    """Open the ledger of this machine, and drop what is too old in it.

    Args:
        directory: where it is kept; the default is ``$XDG_STATE_HOME/harness/audit``.
        retention: what is kept of the past; the default is a year, and 1 GiB.

    Raises:
        HarnessError: it cannot be kept there.
    """
    place = AuditPaths(directory or audit_directory())
    async with AsyncExitStack() as stack:
        files = ExitStack()
        stack.push_async_callback(_close, files)
        process = await to_thread.run_sync(this_process)
        store = await to_thread.run_sync(files.enter_context, open_store(place, process))
        writer = Writer(store, place)
        ledger = SqliteAuditLog(store, writer)
        async with open_background_tasks() as tasks:
            tasks.start_soon(writer.run)
            tasks.start_soon(ledger.retain, retention or Retention())
            try:
                yield ledger
            finally:
                await writer.close()


async def _close(files: ExitStack) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
        await to_thread.run_sync(files.close, abandon_on_cancel=True)
