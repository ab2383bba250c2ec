"""The audit log: which calls ran, who allowed them, and how they ended, in a hash chain that can be verified.

::

    async with open_audit_log() as ledger:
        found = await ledger.reconcile(execution)
        executor = Executor(execution, registry, Services(policy, ledger, redactor), events, reads)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...deprecated_names import renamed_names
from ...system.process_identity import ProcessId, ProcessState, this_process
from .audit_log import DiskFullAuditLog, NullAuditLog, SqliteAuditLog, is_disk_full, open_audit_log
from .directory import AuditPaths, ChainHead, audit_directory
from .reading import AuditCall, Filters, Report, calls, one_call, open_reader, records, verify_audit
from .retention import Retention, retention_of
from .settlement import Decision, ReconcileResult, UnresolvedCall, orphans_of, resolution
from .store import UnresolvedRow, open_store

__all__ = [
    "AuditCall",
    "AuditPaths",
    "ChainHead",
    "Decision",
    "DiskFullAuditLog",
    "Filters",
    "NullAuditLog",
    "ProcessId",
    "ProcessState",
    "ReconcileResult",
    "Report",
    "Retention",
    "SqliteAuditLog",
    "UnresolvedCall",
    "UnresolvedRow",
    "audit_directory",
    "calls",
    "is_disk_full",
    "one_call",
    "open_audit_log",
    "open_reader",
    "open_store",
    "orphans_of",
    "records",
    "resolution",
    "retention_of",
    "this_process",
    "verify_audit",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__,
        Head="ChainHead",
        Orphan="UnresolvedCall",
        Unsettled="UnresolvedRow",
        NoRoomLedger="DiskFullAuditLog",
        Life="ProcessState",
        Place="AuditPaths",
        has_no_room="is_disk_full",
        SqliteLedger="SqliteAuditLog",
        NullLedger="NullAuditLog",
        Reconciled="ReconcileResult",
        open_ledger="open_audit_log",
        verify="verify_audit",
    )
