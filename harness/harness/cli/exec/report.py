"""What ``harness exec`` writes: progress on stderr, events with ``--json``, the result and the exit code."""

from __future__ import annotations

import os
import re
import select
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread

from ...agent.events import AgentPaused, AgentResumed, ConversationCompacted, ModelRetry, Notice
from ...agent.models import ModelFailure
from ...agent.storage.values import is_session_id
from ...toolkit.events import Event, InternalFailure, SubagentStarted, ToolCallCompleted, ToolCallRequested
from ...toolkit.values import CallOutcome, CallStatus, Image, Text, ToolCall
from ..exits import FAILED, HARNESS_FAILED, INTERRUPTED, REFUSED, SIGNALLED, TIMED_OUT
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
    "event_json",
    "event_type",
    "exit_code",
    "news_line",
    "outcome_lines",
    "progress_line",
    "result_json",
    "spent_since",
]


# -- The events of ``harness exec --json``: one JSON object for each, as docs/exec.md promises. Pure.


VERSION = 1
"""Grows when something that was promised changes; further types and fields may come at any time."""
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def event_type(kind: type[Event]) -> str:
    """``ToolCallRequested`` is ``tool_call_requested``."""
    return _WORD.sub("_", kind.__name__).lower()


def event_json(event: Event) -> dict[str, object]:
    """An event as a JSON object; what is empty of ``parent_call`` is left out, for it is so of most."""
    found = {field.name: _value(getattr(event, field.name)) for field in fields(event)}
    if not found["parent_call"]:
        del found["parent_call"]
    return {"type": event_type(type(event)), **found}


def _value(value: Any) -> object:
    if isinstance(value, CallOutcome):
        return _outcome(value)
    if isinstance(value, ToolCall):
        return _call(value)
    return value


def _call(call: ToolCall) -> dict[str, object]:
    return {
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
        "agent_id": call.agent_id,
    }


def _outcome(outcome: CallOutcome) -> dict[str, object]:
    result = outcome.result
    return {
        "call": _call(outcome.call),
        "status": outcome.status.value,
        "is_error": result.is_error,
        "error_code": result.error_code,
        "text": "\n".join(_block(block) for block in result.content),
        "data": result.data,
        "seconds": round(outcome.seconds, 6),
        "cached": outcome.cached,
    }


def _block(block: Text | Image) -> str:
    return block.text if isinstance(block, Text) else f"[{block.media_type}, {len(block.data)} bytes]"


# -- What ``harness exec`` says on stderr while the agent works: one line for what happens. Pure.


SUBJECTS = ("command", "path", "file_path", "url", "pattern", "query", "prompt", "literal_text", "job_id")
"""The arguments that say what a call is about, the first one that there is."""
SHOWN = 160


def news_line(event: Event) -> str:
    """What whoever reads the log of a run should know, watched or not; empty for the usual."""
    text = ""
    match event:
        case ModelRetry():
            text = f"the model is asked again in {event.seconds:.0f} s: {event.reason}"
        case Notice():
            text = event.text
        case InternalFailure():
            text = event.message
        case AgentPaused():
            text = f"paused by {event.by}{f': {event.reason}' if event.reason else ''}"
        case AgentResumed():
            text = f"resumed by {event.by}"
        case ConversationCompacted():
            text = f"the conversation was put together: {event.before} messages are {event.after} now"
    return text


def progress_line(event: Event) -> str:
    """What happens, for people who watch; empty for what nobody needs to see."""
    match event:
        case ToolCallRequested():
            return f"{_who(event.call)}{event.call.name} {_subject(event.call)}".rstrip()
        case ToolCallCompleted() if event.outcome.status is not CallStatus.OK:
            return f"{_who(event.outcome.call)}{event.outcome.call.name}: {_ending(event.outcome)}"
        case SubagentStarted():
            return f"agent {event.agent_id} begins: {_cut(event.title or event.prompt)}"
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


# -- The lines of ``harness exec --json`` on standard output: whole ones and in order, also when a signal ends the
# run.


POLL = 0.1
"""How soon a write that waits for a slow reader notices that we are to stop, in seconds."""
WRITE_TIMEOUT = 2.0
"""Seconds for which a slow reader is waited for, all in all, from when we are to stop."""
CHUNK = select.PIPE_BUF  # poll() promises that this much can be written at once


class JsonStream:
    """Writes JSON objects, one in each line. A reader that went away trips the interruption."""

    def __init__(self, interruption: Interruption, descriptor: int = 1) -> None:
        self._interruption = interruption
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._one = threading.Lock()
        self._waited = 0.0
        self._lost = False

    async def put(self, document: Mapping[str, object]) -> None:
        """Write one, in a thread: a slow reader holds up nothing else."""
        await to_thread.run_sync(self.last, document, abandon_on_cancel=True)

    def last(self, document: Mapping[str, object]) -> None:
        """Write one; it blocks."""
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
        """Whether it can be written to now; gives up for good when we are to stop and nobody reads."""
        started = time.monotonic()
        ready = bool(self._poll.poll(POLL * 1000))
        if not ready and self._interruption.tripped:
            self._waited += time.monotonic() - started
            self._lost = self._waited >= WRITE_TIMEOUT
        return ready


# -- How ``harness exec`` ends: its exit code, and its result as JSON and in words. Pure.


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
class ExecResult:
    """One turn that has ended, and what else is to be said of it."""

    result: TurnResult
    session_id: str
    max_steps: int
    seconds: float
    spent: Usage
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


def spent_since(before: Usage, now: Usage) -> Usage:
    """What was used between two moments of a conversation."""
    return replace(now, **{one.name: getattr(now, one.name) - getattr(before, one.name) for one in fields(now)})


def exit_code(ended: ExecResult) -> int:
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


def result_json(ended: ExecResult, text: str, failure: str) -> dict[str, object]:
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


def _failure(ended: ExecResult, failure: str) -> str:
    by_signal = ended.result.status == "cancelled" and not ended.timed_out
    return SIGNALS.get(ended.signal, failure) if by_signal else failure


def outcome_lines(ended: ExecResult, failure: str) -> list[str]:
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
