"""The output of ``harness exec``: progress on stderr, events with ``--json``, the result and the exit code."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from anyio import to_thread

from ...agent.events import AgentPaused, AgentResumed, BudgetNearlyUsed, ConversationCompacted, ModelRetry, Notice
from ...agent.models import ModelFailure
from ...agent.storage.values import is_session_id
from ...toolkit.events import Event, InternalFailure, SubagentStarted, ToolCallCompleted, ToolCallRequested
from ...toolkit.values import CallOutcome, CallStatus, ToolCall
from ..exits import FAILED, HARNESS_FAILED, INTERRUPTED, REFUSED, SIGNALLED, TIMED_OUT
from ..named_commands import complete_commands
from ..output import as_json
from ..streams import Interruption

if TYPE_CHECKING:
    from ...agent.turn import TurnResult
    from ...agent.usage import Usage
    from ...toolkit.events import PermissionAsked

__all__ = [
    "BUDGET",
    "LIMIT",
    "VERSION",
    "ExecResult",
    "JsonStream",
    "RunningJob",
    "exit_code",
    "news_line",
    "outcome_lines",
    "progress_line",
    "result_json",
    "spent_since",
]


# -- The events of ``harness exec --json``: one JSON object each, as documented in docs/exec.md. Pure.


VERSION = 1
"""Version of the documented format; new types and fields do not change it."""


# -- The lines on stderr while the agent works. Pure.


SUBJECTS = ("command", "path", "file_path", "url", "pattern", "query", "prompt", "literal_text", "job_id")
"""Arguments that describe a call, in order of preference."""
SHOWN = 160


def news_line(event: Event) -> str:
    """Return the line of an event that is always printed; empty for other events."""
    text = ""
    match event:
        case ModelRetry():
            text = f"retrying the model request in {event.seconds:.0f} s: {event.reason}"
        case Notice() | BudgetNearlyUsed():
            text = event.text
        case InternalFailure():
            text = event.message
        case AgentPaused():
            text = f"paused by {event.by}{f': {event.reason}' if event.reason else ''}"
        case AgentResumed():
            text = f"resumed by {event.by}"
        case ConversationCompacted():
            text = f"compacted {event.before} messages into {event.after}"
    return text


def progress_line(event: Event) -> str:
    """Return the line of an event that is printed on a terminal; empty for other events."""
    match event:
        case ToolCallRequested():
            return f"{_who(event.call)}{event.call.name} {_subject(event.call)}".rstrip()
        case ToolCallCompleted() if event.outcome.status is not CallStatus.OK:
            return f"{_who(event.outcome.call)}{event.outcome.call.name}: {_ending(event.outcome)}"
        case SubagentStarted():
            return f"agent {event.agent_id} starts: {_cut(event.title or event.prompt)}"
    return ""


def _who(call: ToolCall) -> str:
    return f"[{call.agent_id}] " if call.agent_id not in ("", "agent") else ""


def _subject(call: ToolCall) -> str:
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    texts = [value for name in SUBJECTS if isinstance(value := arguments.get(name), str) and value]
    return _cut(texts[0]) if texts else ""


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."


def _ending(outcome: CallOutcome) -> str:
    first = outcome.result.text.strip().partition("\n")[0]
    return _cut(f"{outcome.status.value}: {first}" if first else outcome.status.value)


# -- The lines of ``harness exec --json`` on standard output: complete and in order, even if a signal ends the run.


POLL = 0.1
"""Seconds after which a write to a slow reader notices an interruption."""
WRITE_TIMEOUT = 2.0
"""Total seconds to wait for a slow reader after an interruption."""
CHUNK = select.PIPE_BUF  # poll() guarantees that this much can be written at once


class JsonStream:
    """Writer of JSON objects, one per line; a closed reader trips the interruption."""

    def __init__(self, interruption: Interruption, descriptor: int = 1) -> None:
        self._interruption = interruption
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._one = threading.Lock()
        self._waited = 0.0
        self._lost = False

    async def put(self, document: Mapping[str, object]) -> None:
        """Write one object in a thread, so that a slow reader blocks nothing else."""
        await to_thread.run_sync(self.last, document, abandon_on_cancel=True)

    def last(self, document: Mapping[str, object]) -> None:
        """Write one object; blocks."""
        with self._one:
            self._write(memoryview(f"{as_json(document)}\n".encode()))

    def _write(self, view: memoryview) -> None:
        try:
            while view and not self._lost:
                if self._is_ready():
                    view = view[os.write(self._descriptor, view[:CHUNK]) :]
        except BlockingIOError:
            self._write(view)
        except OSError as error:
            self._lost = True
            self._interruption.trip(signal.SIGPIPE, None if isinstance(error, BrokenPipeError) else error)

    def _is_ready(self) -> bool:
        """Return whether the output is writable now; after an interruption, give up on a reader that does not read."""
        started = time.monotonic()
        ready = bool(self._poll.poll(POLL * 1000))
        if not ready and self._interruption.tripped:
            self._waited += time.monotonic() - started
            self._lost = self._waited >= WRITE_TIMEOUT
        return ready


# -- The end of ``harness exec``: its exit code, and its result as JSON and as text. Pure.


LIMIT = 3
"""Exit code: ``--max-steps`` was reached. (Shells use 2 for usage errors.)"""
BUDGET = 4
"""Exit code: the budget of the turn or of the conversation is spent."""

SIGNALS: Final[Mapping[int, str]] = {
    signal.SIGPIPE: "cancelled: the reader of the output closed it",
    signal.SIGTERM: "cancelled by SIGTERM",
    signal.SIGHUP: "cancelled by SIGHUP",
}
"""The failure of a turn that was cancelled by a signal other than SIGINT."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that is still running; ``host`` is its host in a session on many, and ``options`` reach it."""

    job_id: str
    host: str = ""
    options: str = ""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The result of one completed turn, with the facts for the report."""

    result: TurnResult
    session_id: str
    max_steps: int
    seconds: float
    spent: Usage
    """The usage of the turn, including its sub-agents."""
    timed_out: bool = False
    """Whether its timeout expired."""
    refused: tuple[PermissionAsked, ...] = ()
    """Calls that were denied because no operator answered."""
    attended: bool = False
    """Whether an operator could be asked."""
    signal: int = 0
    """The number of the signal that cancelled it; 0 for none."""
    jobs: tuple[RunningJob, ...] = ()
    """The jobs that are still running."""
    any_host: str = ""
    """The options that reach one of several hosts, with ``HOST`` for its name."""


def spent_since(before: Usage, now: Usage) -> Usage:
    """Return the usage between two points of a conversation."""
    return replace(now, **{one.name: getattr(now, one.name) - getattr(before, one.name) for one in fields(now)})


def exit_code(ended: ExecResult) -> int:
    """Return the exit code for the turn's status, or 126 if it completed and calls were denied."""
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


def result_json(ended: ExecResult, text: str, failure: str) -> dict[str, object]:
    """Return the last line of ``--json``; ``text`` and ``failure`` must be redacted already."""
    result = ended.result
    document: dict[str, object] = {
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
        "jobs": [job.job_id for job in ended.jobs if not job.host],
    }
    on_hosts = [{"host": job.host, "job_id": job.job_id} for job in ended.jobs if job.host]
    return document | ({"jobs_on_hosts": on_hosts} if on_hosts else {})


def _failure(ended: ExecResult, failure: str) -> str:
    by_signal = ended.result.status == "cancelled" and not ended.timed_out
    return SIGNALS.get(ended.signal, failure) if by_signal else failure


def outcome_lines(ended: ExecResult, failure: str) -> list[str]:
    """Return the lines on stderr at the end of the run."""
    lines = []
    if ended.timed_out and ended.result.status == "cancelled":
        lines.append("the turn was cancelled: --timeout expired")
    elif ended.result.status != "completed":
        lines.append(_failure(ended, failure) or f"the turn was {ended.result.status}")
    for one in ended.refused:
        why = "no answer from the operator" if ended.attended else "no approver available"
        lines.append(f"denied, {why}: {one.call.name} {one.what}")
    if ended.refused:
        lines.append("--approve allows such calls; see docs/exec.md")
    lines += _job_lines(ended.jobs, ended.any_host)
    if ended.result.status != "completed" and is_session_id(ended.session_id):  # else it could not be stored
        lines.append(f"to resume: harness exec --conversation {ended.session_id} 'continue'")
    return lines


def _job_lines(jobs: Sequence[RunningJob], any_host: str) -> list[str]:
    on_hosts = [job for job in jobs if job.host]
    lines = [
        f"job {job.job_id} is still running on the target (harness jobs wait {job.job_id})"
        for job in jobs
        if not job.host
    ]
    if len(on_hosts) == 1:
        job = on_hosts[0]
        command = complete_commands(f"harness jobs wait {job.job_id}", job.options)
        lines.append(f"job {job.job_id} is still running on {job.host} ({command})")
    elif on_hosts:
        from ...toolkit.hosts.merging import jobs_on_hosts

        named = jobs_on_hosts((job.job_id, job.host) for job in on_hosts)
        command = complete_commands("harness jobs wait JOB", any_host)
        lines.append(f"{len(on_hosts)} jobs are still running: {named} ({command})")
    return lines
