"""Calls whose outcome nobody wrote: which they are, what the target says about them, and what a person decides."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ...context import ExecutionContext
from ...errors import HarnessError
from ..values import CallStatus
from .matching import Finding, Redact, find
from .process import Life, life_of
from .records import job_fields, outcome_fields, resolution_fields
from .store import Item, Store, Unsettled
from .writer import Writer

__all__ = ["DECISIONS", "Decision", "Orphan", "Reconciled", "orphans_of", "reconcile", "resolution"]

Decision = Literal["failed", "succeeded", "abort"]
DECISIONS: dict[Decision, CallStatus] = {
    "failed": CallStatus.ERROR,
    "succeeded": CallStatus.OK,
    "abort": CallStatus.CANCELLED,
}
AGAIN = Finding(CallStatus.UNKNOWN, "it changes nothing, and may be run again")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A call without a known outcome, and whether the harness that made it still runs."""

    call: Unsettled
    life: Life

    @property
    def is_over(self) -> bool:
        """Nobody will write its outcome any more: its harness is gone, or has itself lost sight of it."""
        return self.life is Life.DEAD or self.call.state == "unknown"

    @property
    def is_running(self) -> bool:
        """It runs, as far as is known: its harness does, and has not lost sight of it."""
        return self.life is Life.ALIVE and self.call.state == "running"


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What was found out about the calls of harnesses that are gone."""

    settled: tuple[Unsettled, ...] = ()
    """Their jobs on the target have ended, and the outcome is kept now."""
    running: tuple[Unsettled, ...] = ()
    """Their jobs still run."""
    unclear: tuple[Unsettled, ...] = ()
    """Only a person can say: ``harness audit orphans``, ``harness audit resolve``."""
    retryable: tuple[Unsettled, ...] = ()
    """They change nothing and may be run again."""


def orphans_of(store: Store, backend: str | None = None) -> list[Orphan]:
    """Calls without a known outcome, oldest first; of one target, or of all."""
    return [Orphan(call, life_of(call.process, store.process)) for call in store.unsettled(backend)]


async def reconcile(writer: Writer, store: Store, execution: ExecutionContext, redact: Redact) -> Reconciled:
    """As :meth:`.SqliteLedger.reconcile`."""
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
    return Reconciled(
        settled=_those(findings, lambda finding: finding.status not in (None, CallStatus.UNKNOWN)),
        running=_those(findings, lambda finding: finding.status is None),
        unclear=_those(findings, lambda finding: finding.status is CallStatus.UNKNOWN and finding is not AGAIN),
        retryable=_those(findings, lambda finding: finding is AGAIN),
    )


def _news(call: Unsettled, finding: Finding) -> Item | None:
    """The record of what was found out; None when it is not new."""
    if finding.status is None:
        is_known = finding.job_id == call.job_id
        return None if is_known else Item(job_fields(time.time(), finding.job_id), number=call.number)
    if finding.status is CallStatus.UNKNOWN and call.state == "unknown":
        return None
    fields = outcome_fields(time.time(), finding.status, finding.summary, finding.job_id, by="reconciliation")
    return Item(fields, durable=call.mutating, number=call.number)


def _those(findings: list[tuple[Unsettled, Finding]], chosen: Callable[[Finding], bool]) -> tuple[Unsettled, ...]:
    return tuple(call for call, finding in findings if chosen(finding))


def resolution(store: Store, number: int, decision: Decision, note: str, by: str) -> Item:
    """The record of an operator's decision, still to be written.

    Raises:
        HarnessError: there is no such call without a known outcome, or it still runs.
        ValueError: a call that succeeded needs a note.
    """
    if decision == "succeeded" and not note.strip():
        raise ValueError("say in a note how you know that it succeeded")
    orphan = next((one for one in orphans_of(store) if one.call.number == number), None)
    if orphan is None:
        raise HarnessError(f"no call {number} waits for a decision", hint="harness audit orphans lists those that do")
    if orphan.is_running:
        raise HarnessError(f"call {number} still runs, in process {orphan.call.process.pid}", hint="wait, or end it")
    fields = resolution_fields(time.time(), DECISIONS[decision], decision, note, by)
    return Item(fields, durable=True, number=number)
