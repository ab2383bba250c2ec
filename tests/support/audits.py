"""Calls for a ledger, audits of dead processes, and hands that change a database behind its back."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from harness.system.process_identity import ProcessId
from harness.toolkit import CallStatus, ToolCall
from harness.toolkit.audit import AuditPaths, Report, open_store, this_process, verify_audit
from harness.toolkit.audit.records import intent_fields, outcome_fields
from harness.toolkit.audit.store import PendingRecord
from harness.toolkit.interfaces import CallEntry, Verdict
from harness.toolkit.values import JsonObject

STARTED = float(int(time.time()))


def entry(
    call_id: str,
    *,
    mutating: bool = True,
    arguments: JsonObject | None = None,
    backend: str = "memory://here",
    tool: str = "run_shell",
    started: float = STARTED,
    session: str = "s1",
) -> CallEntry:
    """A call that was allowed."""
    call = ToolCall(tool, arguments or {"command": f"echo {call_id}"}, call_id)
    return CallEntry(call, session, backend, mutating, started, Verdict(True, "it is harmless", "rule 3"))


def ended_process() -> ProcessId:
    """A process of this machine that has run and is gone."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(20)
    return replace(this_process(), pid=ended.pid, started="1")


def write_as(place: AuditPaths, process: ProcessId, *entries: CallEntry, outcome: CallStatus | None = None) -> None:
    """What a process wrote before it was killed: intents, with outcomes or without."""
    with open_store(place, process) as store:
        for one in entries:
            item = PendingRecord(intent_fields(one, process.owner), durable=True)
            store.write([item])
            if outcome is not None:
                store.write([PendingRecord(outcome_fields(one.started + 1, outcome, "done", ""), True, item)])


def tamper(place: AuditPaths, *statements: str) -> None:
    """Change the database as somebody with a SQLite shell could, who first drops what stands in the way."""
    with closing(sqlite3.connect(place.database)) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            assert db.execute(statement).rowcount != 0, statement
        db.commit()


def checked(directory: Path) -> Report:
    """What a check of the audit there says."""
    return verify_audit(AuditPaths(directory))
