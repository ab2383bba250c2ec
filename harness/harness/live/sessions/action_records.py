"""What dashboards do in a session, in its audit log: who did what, when, and how it ended.

Answers are recorded with the calls that they decide, and what is typed into a pane by who took it over.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from ...toolkit.executor import Executor
from ...toolkit.interfaces import CallEntry, Verdict
from ...toolkit.values import CallStatus, Json, ToolCall

__all__ = ["recorded_action"]

CHANGING: Final = frozenset({"interrupt_job", "kill_job"})
"""Actions that change something on the target, so that they are on disk before they start."""


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
