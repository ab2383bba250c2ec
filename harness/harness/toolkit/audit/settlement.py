"""Determines the outcomes of unfinished calls from their jobs on the target."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...context import ExecutionContext
from ...errors import HarnessError
from ...results import Job, Status
from ...system.process_identity import ProcessState, process_state
from ..values import CallStatus, JsonObject
from .records import job_fields, outcome_fields, resolution_fields, shortened
from .store import AuditDatabase, PendingRecord, UnresolvedRow
from .writer import Writer

__all__ = [
    "DECISIONS",
    "Decision",
    "JobVerdict",
    "ReconcileResult",
    "Sibling",
    "UnresolvedCall",
    "find",
    "orphans_of",
    "reconcile",
    "resolution",
    "verdict_of",
]


# -- What the jobs on a target show about calls without a recorded outcome. Pure.
#
# A job belongs to a call if both name the same harness process and the job's id is the one that the call recorded. If
# it recorded none, the job's command must be a text of the call's arguments, and no other job and no other call of
# that process may match as well. Everything uncertain stays unknown.


BEFORE, AFTER = 3600.0, 86400.0
"""Seconds by which a job's start, on the target's clock, may be before and after the call's."""

Sibling = tuple[JsonObject, str]
"""Another call: its record with its ``arguments``, and its job's id, empty if unknown."""
Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """The outcome of a call from its job. ``status`` is None while the job is running."""

    status: CallStatus | None
    summary: str
    job_id: str = ""


def find(call: UnresolvedRow, jobs: Iterable[Job], siblings: Sequence[Sibling], redact: Redact) -> JobVerdict:
    """Return what the jobs of the call's target show about it."""
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


def verdict_of(job: Job) -> JobVerdict:
    """Return the outcome of a call from its job's state."""
    if job.status is Status.RUNNING:
        return JobVerdict(None, "its job still runs", job.job_id)
    if job.status in (Status.COMPLETED, Status.SHELL_EXITED) and job.exit_code is not None:
        status = CallStatus.OK if job.exit_code == 0 else CallStatus.ERROR
        return JobVerdict(status, f"its job ended with exit code {job.exit_code}", job.job_id)
    ends = {Status.TIMED_OUT: CallStatus.TIMEOUT, Status.INTERRUPTED: CallStatus.CANCELLED}
    status = ends.get(job.status, CallStatus.UNKNOWN)
    return JobVerdict(status, f"its job is {job.status.value.replace('_', ' ')}", job.job_id)


def _unknown(summary: str) -> JobVerdict:
    return JobVerdict(CallStatus.UNKNOWN, summary)


def _is_of(job: Job, call: UnresolvedRow) -> bool:
    process, at = call.process, call.record.get("at")
    is_owner = (job.owner or "").endswith(f"@{process.host}:{process.pid}")
    if not is_owner or job.started is None or not isinstance(at, int | float):
        return False
    return at - BEFORE <= job.started <= at + AFTER


def _texts(record: JsonObject) -> set[str]:
    arguments = record.get("arguments")
    return {text for text in arguments.values() if isinstance(text, str)} if isinstance(arguments, dict) else set()


def _kept_form(text: str) -> str:
    """Return a text as a record stores it: a long one is truncated."""
    kept = shortened({"text": text})["text"]
    assert isinstance(kept, str)
    return kept


# -- Calls without a recorded outcome: listing, reconciliation with the target, and the operator's decision.


Decision = Literal["failed", "succeeded", "abort"]
DECISIONS: dict[Decision, CallStatus] = {
    "failed": CallStatus.ERROR,
    "succeeded": CallStatus.OK,
    "abort": CallStatus.CANCELLED,
}
AGAIN = JobVerdict(CallStatus.UNKNOWN, "it changes nothing, and may be run again")


@dataclass(frozen=True, slots=True)
class UnresolvedCall:
    """A call without a known outcome, and the state of the harness process that made it."""

    call: UnresolvedRow
    life: ProcessState

    @property
    def is_over(self) -> bool:
        """Whether no process will record its outcome: its process has exited or no longer knows it."""
        return self.life is ProcessState.DEAD or self.call.state == "unknown"

    @property
    def is_running(self) -> bool:
        """Whether its process is running and still waits for its outcome."""
        return self.life is ProcessState.ALIVE and self.call.state == "running"


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """The outcomes of calls whose harness processes have exited."""

    settled: tuple[UnresolvedRow, ...] = ()
    """Their jobs have exited, and the outcome is now recorded."""
    running: tuple[UnresolvedRow, ...] = ()
    """Their jobs are still running."""
    unclear: tuple[UnresolvedRow, ...] = ()
    """Only the operator can decide: ``harness audit orphans``, ``harness audit resolve``."""
    retryable: tuple[UnresolvedRow, ...] = ()
    """They change nothing and may be run again."""


def orphans_of(store: AuditDatabase, backend: str | None = None) -> list[UnresolvedCall]:
    """Return calls without a known outcome, oldest first; of one target or all."""
    return [UnresolvedCall(call, process_state(call.process, store.process)) for call in store.unsettled(backend)]


async def reconcile(
    writer: Writer, store: AuditDatabase, execution: ExecutionContext, redact: Redact
) -> ReconcileResult:
    """Reconcile as :meth:`.SqliteAuditLog.reconcile`."""
    calls = [one.call for one in await writer.in_turn(orphans_of, store, execution.identity) if one.is_over]
    jobs = await execution.jobs() if calls else []
    findings = []
    for call in calls:
        siblings = [] if call.job_id else await writer.in_turn(store.siblings, call)
        finding = find(call, jobs, siblings, redact)
        if not call.mutating and finding.status is CallStatus.UNKNOWN:
            finding = AGAIN
        findings.append((call, finding))
    for call, finding in findings:
        item = _news(call, finding)
        if item is not None:
            await writer.must(item)
    return ReconcileResult(
        settled=_those(findings, lambda finding: finding.status not in (None, CallStatus.UNKNOWN)),
        running=_those(findings, lambda finding: finding.status is None),
        unclear=_those(findings, lambda finding: finding.status is CallStatus.UNKNOWN and finding is not AGAIN),
        retryable=_those(findings, lambda finding: finding is AGAIN),
    )


def _news(call: UnresolvedRow, finding: JobVerdict) -> PendingRecord | None:
    """Return the record of an outcome; None if it is not new."""
    if finding.status is None:
        is_known = finding.job_id == call.job_id
        return None if is_known else PendingRecord(job_fields(time.time(), finding.job_id), number=call.number)
    if finding.status is CallStatus.UNKNOWN and call.state == "unknown":
        return None
    fields = outcome_fields(time.time(), finding.status, finding.summary, finding.job_id, by="reconciliation")
    return PendingRecord(fields, durable=call.mutating, number=call.number)


def _those(
    findings: list[tuple[UnresolvedRow, JobVerdict]], chosen: Callable[[JobVerdict], bool]
) -> tuple[UnresolvedRow, ...]:
    return tuple(call for call, finding in findings if chosen(finding))


def resolution(store: AuditDatabase, number: int, decision: Decision, note: str, by: str) -> PendingRecord:
    """Return the unwritten record of an operator's decision.

    Raises:
        HarnessError: there is no such call without a known outcome, or it is still running.
        ValueError: a call that succeeded requires a note.
    """
    if decision == "succeeded" and not note.strip():
        raise ValueError("a note must say how you know that it succeeded")
    orphan = next((one for one in orphans_of(store) if one.call.number == number), None)
    if orphan is None:
        raise HarnessError(
            f"call {number} does not wait for a decision", hint="harness audit orphans lists the calls that do"
        )
    if orphan.is_running:
        raise HarnessError(
            f"call {number} is still running, in process {orphan.call.process.pid}", hint="wait, or stop it"
        )
    fields = resolution_fields(time.time(), DECISIONS[decision], decision, note, by)
    return PendingRecord(fields, durable=True, number=number)
