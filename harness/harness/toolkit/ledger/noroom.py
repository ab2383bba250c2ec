"""What stands in for the ledger while its disk has no room to open it."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable

from ...context import ExecutionContext
from ...errors import HarnessError, ToolError
from ..seams import CallEntry, Ledger
from ..values import CallStatus
from .settling import Reconciled

__all__ = ["NoRoomLedger", "has_no_room"]

NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
"""What SQLite says when a file, or the one that its processes share, cannot grow."""


def has_no_room(error: HarnessError) -> bool:
    """Whether the ledger could not be opened because its disk is full. Pure."""
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        return cause.sqlite_errorcode in NO_ROOM
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


class NoRoomLedger(Ledger):
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
    ) -> Reconciled:
        """Nothing is found out."""
        return Reconciled()
