"""The audit log: each call and its approval are on disk before it runs, and its outcome afterwards."""

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


# -- The replacement for the audit log while its disk is too full to open it.


NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
"""SQLite's errors if a file, or its shared memory file, cannot grow."""


def is_disk_full(error: HarnessError) -> bool:
    """Return whether the audit log could not be opened because its disk is full. Pure."""
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        return cause.sqlite_errorcode in NO_ROOM
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


class DiskFullAuditLog(AuditLog):
    """Refuses mutating calls and does not record the others.

    Args:
        error: why the audit log could not be opened.
    """

    def __init__(self, error: HarnessError) -> None:
        self._error = error

    async def begin(self, entry: CallEntry) -> None:
        if entry.mutating:
            hint = f"{self._error.hint}; then restart harness"
            raise ToolError(f"nothing was run: {self._error.message}", hint=hint)

    async def end(self, call_id: str, status: CallStatus, summary: str, job_id: str = "") -> None:
        """Do nothing."""

    async def refused(self, entry: CallEntry) -> None:
        """Do nothing."""

    async def reconcile(
        self, execution: ExecutionContext, redact: Callable[[str], str] = lambda text: text
    ) -> ReconcileResult:
        """Return an empty result."""
        return ReconcileResult()


# -- The audit log of this machine: what is about to run, and how it ended, in one hash chain of records.
#
# Mutating calls wait until their records are on disk, before and after; the others do not wait.


logger = logging.getLogger(__name__)


class NullAuditLog(AuditLog):
    """An audit log that records nothing, for programs that need no audit."""

    async def begin(self, entry: CallEntry) -> None:
        """Do nothing."""

    async def end(self, call_id: str, status: CallStatus, summary: str, job_id: str = "") -> None:
        """Do nothing."""

    async def refused(self, entry: CallEntry) -> None:
        """Do nothing."""


class SqliteAuditLog(AuditLog):
    """An audit log in a database that several processes share. Created by :func:`open_audit_log`."""

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
            logger.error(
                "the audit log has no running call %r: its outcome (%s) is not recorded", call_id, status.value
            )
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

    # -- Calls with unknown outcomes.

    async def orphans(self, backend: str | None = None) -> list[UnresolvedCall]:
        """Return calls without a known outcome, oldest first, of one target (``ExecutionContext.identity``) or all."""
        return await self._writer.in_turn(orphans_of, self._store, backend)

    async def reconcile(
        self, execution: ExecutionContext, redact: Callable[[str], str] = lambda text: text
    ) -> ReconcileResult:
        """Ask the target's jobs for the outcomes of calls of exited harness processes, and record the answers.

        Calls of running processes, and of other machines, are left unchanged.

        Args:
            execution: the target.
            redact: the redaction of the calls' arguments.

        Raises:
            HarnessError: the target could not be asked, or the answers could not be recorded.
        """
        return await reconcile(self._writer, self._store, execution, redact)

    async def resolve(self, number: int, decision: Decision, note: str, by: str) -> None:
        """Record an operator's decision about a call with an unknown outcome.

        Args:
            number: ``UnresolvedCall.call.number``.
            decision: ``failed``, ``succeeded`` (the note says how that is known), or ``abort`` to stop asking.
            note: the operator's explanation.
            by: who decided.

        Raises:
            HarnessError: the call does not wait for a decision, or the decision could not be recorded.
            ValueError: the note is missing.
        """
        await self._writer.must(await self._writer.in_turn(resolution, self._store, number, decision, note, by))

    async def calls_of(self, session_id: str, *, since: float | None = None, limit: int = 1000) -> list[AuditCall]:
        """Return the newest calls of a session with their outcomes, newest last; ``since`` is a Unix time."""
        filters = Filters(session=session_id, since=since)
        return await self._writer.in_turn(_calls, self._store, filters, limit)

    async def retain(self, limits: Retention) -> None:
        """Drop records beyond the limits of age and size. Never raises."""
        try:
            through = await self._writer.in_turn(plan, self._store, limits, time.time())
            while through and await self._writer.in_turn(apply_step, self._store, through):
                pass
        except Exception as error:  # must not stop calls
            logger.warning("old audit records could not be dropped: %s", error)

    # -- Finding a call: providers reuse ids, and calls of one task may be nested.

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
    """Open the audit log of this machine, and drop records that are too old.

    Args:
        directory: the default is ``$XDG_STATE_HOME/harness/audit``.
        retention: limits of old records; the default is one year and 1 GiB.

    Raises:
        HarnessError: it cannot be written there.
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
