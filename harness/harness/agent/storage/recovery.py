"""Finds out what an interrupted conversation was doing when its harness exited, and prepares its resumption."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ...context import ExecutionContext
from ...results import Job, Status
from ...toolkit.audit import AuditCall, DiskFullAuditLog, SqliteAuditLog
from ...toolkit.events import EventBus, JobStarted
from ...toolkit.values import Json, JsonObject
from .conversation_log import JOB_ENDED, JOB_LEFT, ConversationLog, parse_job_note
from .rows import title_of
from .values import IMPORTED, ConversationNote, StoredConversation

__all__ = [
    "CallOutcomeGuess",
    "InterruptedWork",
    "calls_not_started",
    "in_flight",
    "jobs_left",
    "of_the_kill",
    "pending_calls",
    "resume_messages",
]


# -- Calls of the last response without a result: which of them never ran, according to the audit log. Pure.


OPEN = frozenset({"", "running", "unknown"})
"""Statuses in the audit log of calls without a recorded end."""


def pending_calls(messages: Sequence[str]) -> tuple[JsonObject, ...]:
    """Return the calls of the last message, as ``tool`` and ``arguments``; none if it is a request or unreadable."""
    try:
        message = json.loads(messages[-1]) if messages else None
    except ValueError:
        return ()
    parts = message.get("parts") if isinstance(message, dict) and message.get("kind") == "response" else None
    calls = [part for part in _objects(parts) if part.get("part_kind") == "tool-call"]
    return tuple({"tool": str(call.get("tool_name")), "arguments": _arguments(call.get("args"))} for call in calls)


def of_the_kill(calls: Iterable[AuditCall], turn_id: str, changed: float) -> list[AuditCall]:
    """Return the calls since the conversation was last written, and those of the turn without a recorded end.

    The latter are a subset of the former, unless the clock was set back in the meantime.
    """
    return [call for call in calls if _at(call) >= changed or (_is_of(call, turn_id) and call.status in OPEN)]


def calls_not_started(pending: Sequence[JsonObject], calls: Iterable[AuditCall]) -> list[JsonObject]:
    """Return the pending calls that the audit log would contain if they had started.

    A mutating call is in the audit log before it runs. If the audit log contains a call that matches none of the
    pending ones, it may be any of them in another form, and nothing is returned.
    """
    known = [(call.call.get("tool"), call.call.get("arguments")) for call in calls]
    left = []
    for call in pending:
        one = (call["tool"], call["arguments"])
        if one in known:
            known.remove(one)
        else:
            left.append(call)
    return [] if known else left


def _at(call: AuditCall) -> float:
    at = call.call.get("at")
    return at if isinstance(at, int | float) else 0.0


def _is_of(call: AuditCall, turn_id: str) -> bool:
    return call.call.get("message_id") == turn_id


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _arguments(value: Any) -> dict[str, Json]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = {"text": value}
    return value if isinstance(value, dict) else {}


# -- What was running when harness exited, and its outcome, for the operator and the model.


TELLING = ("command", "cmd", "path", "file_path", "file", "url", "literal_text")
"""Arguments that describe a call best."""
SHOWN = 120
"""Maximum characters of a call."""
LISTED = 20
"""Maximum number of listed calls, and of listed jobs."""
READ = 200
"""The number of newest calls in the audit log that are examined."""
QUESTION = "ask_user_question"
NO_AGENTS: Mapping[str, str] = MappingProxyType({})
NEVER = "it never ran: harness exited before it started"
ADVICE = "Do not rerun completed calls. Before repeating a call with an unknown outcome, check the state of the target."


@dataclass(frozen=True, slots=True)
class CallOutcomeGuess:
    """A call and the known facts about its outcome."""

    what: str
    became: str


@dataclass(frozen=True, slots=True)
class InterruptedWork:
    """What was found out; the texts are empty if nothing was running."""

    operator: str = ""
    """Lines for the operator at the prompt."""
    model: str = ""
    """The same for the model, sent before the next prompt."""
    running: tuple[Job, ...] = ()
    """Jobs of the conversation that are still running."""
    ended: tuple[str, ...] = ()
    """The ids of jobs that were left running and have ended."""
    unknown: tuple[tuple[str, str], ...] = ()
    """The hosts and the ids of jobs that were left running on hosts of a fleet, which were not asked."""


async def in_flight(
    stored: StoredConversation,
    ledger: SqliteAuditLog | DiskFullAuditLog,
    execution: ExecutionContext,
    agents: Mapping[str, str] = NO_AGENTS,
    *,
    redact: Callable[[str], str],
) -> InterruptedWork:
    """Return what was running in a conversation when its harness exited, and what is known of it now.

    Call it after the executor of the session was opened, which asks the target for the outcomes of interrupted calls.
    On another target, only the interrupted turn is known.

    Args:
        stored: the conversation.
        ledger: the audit log.
        execution: the execution context of the target.
        agents: the turns of running sub-agents, by session.
        redact: redacts commands, which the target returns as they were given.

    Raises:
        HarnessError: the audit log or the target could not be read.
    """
    notes = stored.notes[_imported(stored, "notes") :]
    if stored.session.identity != execution.identity:  # ids of jobs are not valid on another target
        return replace(_told(stored, None, ()), ended=tuple(sorted(jobs_left(stored.notes))))
    calls = await _calls(stored, ledger)
    theirs = [] if calls is None else await _calls_of_agents(stored, ledger, agents)
    here = [call for call in theirs if call.call.get("backend") == execution.identity]
    on_hosts = frozenset(text for text in jobs_left(notes) if parse_job_note(text)[0])
    left, begun = jobs_left(notes) - on_hosts, {_job_of(call) for call in (*(calls or ()), *here)} - {""}
    jobs = [job for job in await execution.jobs() if job.job_id in left | begun] if left | begun else []
    jobs = [replace(job, command=redact(job.command)) for job in jobs]
    running = tuple(job for job in jobs if job.status is Status.RUNNING)
    listed = [job for job in jobs if job.job_id in left - begun]
    fates = (
        None
        if calls is None
        else [*_fates(stored, calls, execution.identity), *_fates_of_agents(theirs, execution.identity)]
    )
    told = _told(stored, fates, listed)
    ended = left - {job.job_id for job in running}
    unknown = tuple(sorted(parse_job_note(text) for text in on_hosts))
    return replace(told, running=running, ended=tuple(sorted(ended)), unknown=unknown)


async def _calls(stored: StoredConversation, ledger: SqliteAuditLog | DiskFullAuditLog) -> list[AuditCall] | None:
    """Return the calls that were running; None if the audit log of this machine cannot know them."""
    turn = stored.unfinished
    if turn is None:
        return []
    if not isinstance(ledger, SqliteAuditLog) or len(stored.turns) <= _imported(stored, "turns"):
        return None
    session = stored.session
    return of_the_kill(await ledger.calls_of(session.session_id, limit=READ), turn.turn_id, session.changed)


async def _calls_of_agents(
    stored: StoredConversation, ledger: SqliteAuditLog | DiskFullAuditLog, agents: Mapping[str, str]
) -> list[AuditCall]:
    found: list[AuditCall] = []
    if not isinstance(ledger, SqliteAuditLog):
        return found
    for session_id, turn_id in agents.items():
        calls = await ledger.calls_of(session_id, limit=READ)
        found += of_the_kill(calls, turn_id, stored.session.changed)
    return found


def resume_messages(found: InterruptedWork, log: ConversationLog, events: EventBus) -> None:
    """Resume with these findings: store the ended jobs, and watch the others; hosts are asked for theirs then."""
    for job_id in found.ended:
        log.note(JOB_ENDED, job_id)
    for job in found.running:
        events.publish(JobStarted(job_id=job.job_id, command=job.command))
    for host, job_id in found.unknown:
        events.publish(JobStarted(job_id=job_id, command="", host=host))


# -- evaluation of the records. Pure


def _imported(stored: StoredConversation, what: str) -> int:
    """Return how many turns or notes were imported: the audit log and jobs of this machine do not know them."""
    counts = stored.session.options.get(IMPORTED)
    count = counts.get(what) if isinstance(counts, dict) else 0
    return count if isinstance(count, int) else 0


def _fates(stored: StoredConversation, calls: Sequence[AuditCall], identity: str) -> list[CallOutcomeGuess]:
    waited = calls_not_started(pending_calls(stored.messages), calls)
    return [
        *(CallOutcomeGuess(_what(one.call) + _where(one, identity), _became_there(one, identity)) for one in calls),
        *(CallOutcomeGuess(_what(one), NEVER) for one in waited),
    ]


def _fates_of_agents(calls: Sequence[AuditCall], identity: str) -> list[CallOutcomeGuess]:
    return [CallOutcomeGuess(f"{_what(one.call)} (of {_agent(one)})", _became_there(one, identity)) for one in calls]


def _where(call: AuditCall, identity: str) -> str:
    """Return the host of a call in a session on many hosts, for its text."""
    there = call.call.get("backend") or identity
    return "" if there == identity else f" on {there}"


def _agent(call: AuditCall) -> str:
    return str(call.call.get("agent_id") or "a sub-agent")


def _became_there(call: AuditCall, identity: str) -> str:
    """Return the outcome of a call; on another target, which was not asked, it is unknown, and job ids differ."""
    there = call.call.get("backend") or identity
    if there == identity or call.outcome or call.call.get("kind") == "refused":
        return _outcome_text(call)
    return f"outcome on {there} not yet known"


def jobs_left(notes: Iterable[ConversationNote]) -> frozenset[str]:
    """Return the ids of jobs that were left running without a note of their end."""
    left: set[str] = set()
    for note in notes:
        if note.kind == JOB_LEFT:
            left.add(note.text)
        elif note.kind == JOB_ENDED:
            left.discard(note.text)
    return frozenset(left)


def _job_of(call: AuditCall) -> str:
    ids = [str(record.get("job_id") or "") for record in call.later]
    return next((job_id for job_id in reversed(ids) if job_id), "")


def _outcome_text(call: AuditCall) -> str:
    job_id, summary = _job_of(call), str(call.outcome.get("summary") or "")
    job = f", job {job_id}" if job_id else ""
    if call.call.get("kind") == "refused":
        return "it was denied, and did not run"
    if call.call.get("tool") == QUESTION and call.status in ("unknown", "running", ""):
        return "its question was not answered, and it changed nothing"
    if not call.outcome:
        return f"its command is still running{job}" if job_id else "outcome not yet known"
    if call.status != "unknown":
        return f"it ended: {call.status}{job}" + (f"; {summary}" if summary else "")
    if not call.call.get("mutating"):
        return "it only read, and changed nothing"
    return f"outcome unknown{job} (harness audit show {call.number})"


def _what(record: JsonObject) -> str:
    arguments = record.get("arguments")
    given = arguments if isinstance(arguments, dict) else {}
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    name = next((name for name in (*TELLING, *texts) if name in texts), "")
    return f"{record.get('tool')} {_cut(texts.get(name, ''))}".rstrip()


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."


def _told(stored: StoredConversation, fates: Sequence[CallOutcomeGuess] | None, jobs: Sequence[Job]) -> InterruptedWork:
    lines = [*_turn_lines(stored, fates), *_job_lines(jobs)]
    if not lines:
        return InterruptedWork()
    said = "\n".join(lines)
    return InterruptedWork(said, f"[harness: harness was restarted. {said}\n{ADVICE}]")


def _turn_lines(stored: StoredConversation, fates: Sequence[CallOutcomeGuess] | None) -> list[str]:
    turn = stored.unfinished
    if turn is None:
        return []
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(turn.started))
    first = f"The turn that started at {when} ({_cut(title_of(turn.prompt))!r}) was interrupted when harness exited."
    if not fates:
        return [first] if fates is None else [first, "No call was running."]
    return [f"{first} Its calls:", *_listed([f"- {fate.what}: {fate.became}" for fate in fates])]


def _job_lines(jobs: Sequence[Job]) -> list[str]:
    lines = [f"- job {job.job_id} {_ended(job)}: {_cut(job.command)}" for job in jobs]
    return ["Jobs that were left running:", *_listed(lines)] if lines else []


def _ended(job: Job) -> str:
    if job.status is Status.RUNNING:
        return "is still running"
    code = f"with exit code {job.exit_code}" if job.exit_code is not None else f"({job.status.value})"
    return f"has ended {code}"


def _listed(lines: list[str]) -> list[str]:
    more = len(lines) - LISTED
    return lines if more <= 0 else [*lines[-LISTED:], f"- and {more} more, before these"]
