"""What the jobs on a target say about calls whose outcome was never written. Pure.

A job belongs to a call when both name the same process of harness and the job's id is the one that the call noted, or,
where it noted none, when the job's command is a text of the call's arguments, and no other job and no other call of
that process could be meant as well. Whatever is not certain stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...results import Job, Status
from ..values import CallStatus, JsonObject
from .records import shortened
from .store import Unsettled

__all__ = ["Finding", "Sibling", "find", "verdict_of"]

BEFORE, AFTER = 3600.0, 86400.0
"""Seconds by which a job's start, on the target's clock, may be before and after the call's."""

Sibling = tuple[JsonObject, str]
"""What is known of another call: its record with its ``arguments``, and its job's id, empty when there is none."""
Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about a call. ``status`` is None while its job runs."""

    status: CallStatus | None
    summary: str
    job_id: str = ""


def find(call: Unsettled, jobs: Iterable[Job], siblings: Sequence[Sibling], redact: Redact) -> Finding:
    """What the jobs of the call's target say about it."""
    own = [job for job in jobs if _is_of(job, call)]
    if call.job_id:
        noted = next((job for job in own if job.job_id == call.job_id), None)
        return verdict_of(noted) if noted else _unknown(f"the target keeps no job {call.job_id} of it any more")
    texts = _texts(call.record)
    alike = [record for record, job_id in siblings if not job_id and texts & _texts(record)]
    taken = {job_id for _, job_id in siblings if job_id}
    fitting = [job for job in own if job.job_id not in taken and _kept_form(redact(job.command)) in texts]
    if not fitting:
        return _unknown("the target keeps no job of it")
    if len(fitting) > 1 or alike:
        names = ", ".join(job.job_id for job in fitting)
        return _unknown(f"it cannot be told which job is this call's: {names}")
    return verdict_of(fitting[0])


def verdict_of(job: Job) -> Finding:
    """How a job's end counts for the call that started it."""
    if job.status is Status.RUNNING:
        return Finding(None, "its job still runs", job.job_id)
    if job.status in (Status.COMPLETED, Status.SHELL_EXITED) and job.exit_code is not None:
        status = CallStatus.OK if job.exit_code == 0 else CallStatus.ERROR
        return Finding(status, f"its job ended with exit code {job.exit_code}", job.job_id)
    ends = {Status.TIMED_OUT: CallStatus.TIMEOUT, Status.INTERRUPTED: CallStatus.CANCELLED}
    status = ends.get(job.status, CallStatus.UNKNOWN)
    return Finding(status, f"its job is {job.status.value.replace('_', ' ')}", job.job_id)


def _unknown(summary: str) -> Finding:
    return Finding(CallStatus.UNKNOWN, summary)


def _is_of(job: Job, call: Unsettled) -> bool:
    process, at = call.process, call.record.get("at")
    is_owner = (job.owner or "").endswith(f"@{process.host}:{process.pid}")
    if not is_owner or job.started is None or not isinstance(at, int | float):
        return False
    return at - BEFORE <= job.started <= at + AFTER


def _texts(record: JsonObject) -> set[str]:
    arguments = record.get("arguments")
    return {text for text in arguments.values() if isinstance(text, str)} if isinstance(arguments, dict) else set()


def _kept_form(text: str) -> str:
    """A text as the record of a call keeps it: a long one is cut."""
    kept = shortened({"text": text})["text"]
    assert isinstance(kept, str)
    return kept
