"""The ledger and the audit: which calls ran, who allowed them, and what came of them, in a chain that can be verified.

::

    async with open_ledger() as ledger:
        found = await ledger.reconcile(execution)
        executor = Executor(execution, registry, Services(policy, ledger, redactor), events, reads)
"""

from __future__ import annotations

from .ledger import NullLedger, SqliteLedger, open_ledger
from .noroom import NoRoomLedger, has_no_room
from .place import Head, Place, audit_directory
from .process import Life, ProcessId, this_process
from .reading import AuditCall, Filters, calls, one_call, open_reader, records
from .retention import Retention
from .settings import retention_of
from .settling import Decision, Orphan, Reconciled, orphans_of, resolution
from .store import Unsettled, open_store
from .verifying import Report, verify

__all__ = [
    "AuditCall",
    "Decision",
    "Filters",
    "Head",
    "Life",
    "NoRoomLedger",
    "NullLedger",
    "Orphan",
    "Place",
    "ProcessId",
    "Reconciled",
    "Report",
    "Retention",
    "SqliteLedger",
    "Unsettled",
    "audit_directory",
    "calls",
    "has_no_room",
    "one_call",
    "open_ledger",
    "open_reader",
    "open_store",
    "orphans_of",
    "records",
    "resolution",
    "retention_of",
    "this_process",
    "verify",
]
