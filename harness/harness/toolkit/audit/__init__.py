"""The ledger and the audit: which calls ran, who allowed them, and what came of them, in a chain that can be verified.

::

    async with open_ledger() as ledger:
        found = await ledger.reconcile(execution)
        executor = Executor(execution, registry, Services(policy, ledger, redactor), events, reads)
"""

from __future__ import annotations

from ...system.process_identity import Life, ProcessId, this_process
from .audit_log import NoRoomLedger, NullLedger, SqliteLedger, has_no_room, open_ledger
from .directory import Head, Place, audit_directory
from .reading import AuditCall, Filters, Report, calls, one_call, open_reader, records, verify
from .retention import Retention, retention_of
from .settlement import Decision, Orphan, Reconciled, orphans_of, resolution
from .store import Unsettled, open_store

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
