"""How ``harness exec`` ends: its exit code, and its result as JSON and in words. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from ..agent.models import ModelFailure
from ..agent.storage.values import is_session_id
from .exits import FAILED, HARNESS_FAILED, INTERRUPTED, REFUSED, SIGNALLED, TIMED_OUT

if TYPE_CHECKING:
    from ..agent.turn import TurnResult
    from ..agent.usage import Spent
    from ..toolkit.events import PermissionAsked

__all__ = ["BUDGET", "LIMIT", "Ended", "exit_code", "outcome_lines", "result_json", "spent_since"]

LIMIT = 3
"""The model had as many answers as it may have. (2 is what shells say for wrong usage.)"""
BUDGET = 4
"""What the turn, or the conversation, may cost is spent."""

SIGNALS: Final[Mapping[int, str]] = {
    signal.SIGPIPE: "cancelled, as whoever read the output has gone",
    signal.SIGTERM: "cancelled by SIGTERM",
    signal.SIGHUP: "cancelled by SIGHUP",
}
"""What is said of a turn that a signal ended, and not the operator."""


@dataclass(frozen=True, slots=True)
class Ended:
    """One turn that has ended, and what else is to be said of it."""

    result: TurnResult
    session_id: str
    max_steps: int
    seconds: float
    spent: Spent
    """With what its sub-agents have used."""
    timed_out: bool = False
    """Its time was over."""
    refused: tuple[PermissionAsked, ...] = ()
    """What was denied because no operator answered."""
    attended: bool = False
    """There was an operator to ask."""
    signal: int = 0
    """The number of the signal that ended it."""
    jobs: tuple[str, ...] = ()
    """Commands that it has left running."""


def spent_since(before: Spent, now: Spent) -> Spent:
    """What was used between two moments of a conversation."""
    return replace(now, **{one.name: getattr(now, one.name) - getattr(before, one.name) for one in fields(now)})


def exit_code(ended: Ended) -> int:
    """The exit code: how the turn ended; and if it did what it could, whether something was refused."""
    match ended.result.status:
        case "completed":
            return REFUSED if ended.refused else 0
        case "limit":
            return LIMIT if ended.result.steps >= ended.max_steps else BUDGET
        case "cancelled":
            signalled = SIGNALLED + ended.signal if ended.signal else INTERRUPTED
            return TIMED_OUT if ended.timed_out else signalled
        case _:
            return FAILED if isinstance(ended.result.error, ModelFailure | None) else HARNESS_FAILED


def result_json(ended: Ended, text: str, failure: str) -> dict[str, object]:
    """The last line of ``--json``. ``text`` and ``failure`` are redacted."""
    result = ended.result
    return {
        "type": "result",
        "session_id": ended.session_id,
        "status": "timed_out" if ended.timed_out and result.status == "cancelled" else result.status,
        "exit_code": exit_code(ended),
        "text": text,
        "failure": _failure(ended, failure),
        "answers": result.steps,
        "seconds": round(ended.seconds, 3),
        "usage": dict(ended.spent.json()),
        "refused": [{"tool": one.call.name, "what": one.what, "reason": one.reason} for one in ended.refused],
        "jobs": list(ended.jobs),
    }


def _failure(ended: Ended, failure: str) -> str:
    by_signal = ended.result.status == "cancelled" and not ended.timed_out
    return SIGNALS.get(ended.signal, failure) if by_signal else failure


def outcome_lines(ended: Ended, failure: str) -> list[str]:
    """What is said on stderr at the end."""
    lines = []
    if ended.timed_out and ended.result.status == "cancelled":
        lines.append("the time was over (--timeout), so the turn was cancelled")
    elif ended.result.status != "completed":
        lines.append(_failure(ended, failure) or f"the turn was {ended.result.status}")
    for one in ended.refused:
        why = "nobody answered" if ended.attended else "nobody is there to ask"
        lines.append(f"refused, because {why}: {one.call.name} {one.what}")
    if ended.refused:
        lines.append("--approve allows such calls; docs/exec.md says how")
    for job_id in ended.jobs:
        lines.append(f"job {job_id} goes on on the target (harness jobs wait {job_id})")
    if ended.result.status != "completed" and is_session_id(ended.session_id):  # else it could not be stored
        lines.append(f"to go on: harness exec --session {ended.session_id} 'go on'")
    return lines
