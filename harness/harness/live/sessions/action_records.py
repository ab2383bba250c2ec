"""What dashboards do in a session, in its audit log: who did what, when, and how it ended.

Answers are recorded with the calls that they decide, and what is typed into a pane by who took it over.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from ...toolkit.audit import Retention, open_audit_log
from ...toolkit.executor import Executor
from ...toolkit.interfaces import CallEntry, Verdict
from ...toolkit.values import CallStatus, Json, ToolCall

__all__ = ["record_cancel", "recorded_action"]

CHANGING: Final = frozenset({"interrupt_job", "kill_job"})
"""Actions that change something on the target, so that they are on disk before they start."""
KEEP_ALL: Final = Retention(max_age=1e10, max_bytes=1 << 60)
"""Drops no records: the limits are settings, which only sessions with tools have read."""
log = logging.getLogger(__name__)


@asynccontextmanager
async def recorded_action(
    executor: Executor, action: str, arguments: Mapping[str, Any], by: str
) -> AsyncIterator[None]:
    """Record an action of a dashboard around the code inside.

    Args:
        executor: That of the session.
        action: The action.
        arguments: Its arguments.
        by: Who asks for it.

    Raises:
        ToolError: It would change something, and cannot be recorded; it must not be done.
    """
    services, call_id = executor.services, uuid.uuid4().hex
    known: dict[str, Json] = {name: str(value) for name, value in arguments.items()}
    call = ToolCall(f"dashboard_{action}", services.redactor.json(known), call_id)
    verdict = Verdict(True, "asked for in a dashboard", by)
    changes = action in CHANGING
    await services.ledger.begin(
        CallEntry(call, executor.session_id, executor.execution.identity, changes, time.time(), verdict)
    )
    status, summary = CallStatus.ERROR, ""
    try:
        yield
        status = CallStatus.OK
    except Exception as error:
        summary = services.redactor.text(str(error))
        raise
    finally:
        await services.ledger.end(call_id, status, summary)


async def record_cancel(session_id: str, target: str, command: str, by: str) -> None:
    """Record that a dashboard is about to cancel what a process without tools does, and report it there.

    Args:
        session_id: The session.
        target: Its target, redacted.
        command: What it does, redacted.
        by: Who asks for it.

    Raises:
        HarnessError: It cannot be recorded; it must not be done.
    """
    call = ToolCall("dashboard_cancel", {"command": command}, uuid.uuid4().hex)
    verdict = Verdict(True, "asked for in a dashboard", by)
    async with open_audit_log(retention=KEEP_ALL) as ledger:
        await ledger.begin(CallEntry(call, session_id, target, True, time.time(), verdict))
        await ledger.end(call.call_id, CallStatus.OK, "")
    log.warning("cancelled by %s", by)
