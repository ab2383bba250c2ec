"""Reads traces: their lines, the replay of a conversation, and statistics."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from ...errors import HarnessError
from ...toolkit.values import Json, JsonObject
from ...wording import counted
from .observer import VERSION

__all__ = [
    "ContextStep",
    "ToolFigures",
    "TraceLine",
    "TraceSummary",
    "TracedTurn",
    "context_of",
    "context_steps",
    "lines_of",
    "number",
    "read_trace",
    "replayed",
    "summary_of",
    "text",
    "turns_of",
]


# -- Lines, turns and requests of a trace. Invalid and cut-off lines are counted.


FIRST_LINE = 64 << 10
"""Maximum characters of the first line."""
TOO_LARGE = 1e15


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One line of a trace. ``kind`` is empty for an invalid line."""

    kind: str
    at: float
    values: JsonObject


@dataclass(slots=True)
class TracedTurn:
    """The lines of one turn, from its start to its end. ``place`` is its number in the trace, from 1."""

    place: int
    turn_id: str
    lines: list[TraceLine] = field(default_factory=list)


def read_trace(path: Path) -> tuple[TraceLine, ...]:
    """Return all lines of a trace.

    Args:
        path: the trace file.

    Raises:
        HarnessError: it is unreadable, it is not a trace, or a newer harness wrote it.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline(FIRST_LINE)  # another kind of file may have no line ends
            found = tuple(lines_of(chain((first,), file))) if _line(first).kind == "trace" else ()
    except OSError as error:
        raise HarnessError(f"the trace {path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    if not found:
        raise HarnessError(f"{path} is not a trace file", hint="--trace FILE writes one")
    if any(number(line.values, "version") > VERSION for line in found if line.kind == "trace"):
        raise HarnessError(f"a newer harness wrote {path}", hint="use that harness")
    return found


def lines_of(rows: Iterable[str]) -> Iterator[TraceLine]:
    """Yield the lines of a trace. Pure."""
    for row in rows:
        if row.strip():
            yield _line(row)


def _line(row: str) -> TraceLine:
    try:
        values: Json = json.loads(row, parse_constant=lambda _: None)  # NaN is not JSON
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not isinstance(values.get("type"), str):
        return TraceLine("", 0.0, {})
    return TraceLine(str(values["type"]), number(values, "at"), values)


def number(values: JsonObject, name: str) -> float:
    """Return a number of a line; 0 if it is missing or implausible. Pure."""
    value = values.get(name)
    return float(value) if isinstance(value, int | float) and abs(value) < TOO_LARGE else 0.0


def text(values: JsonObject, name: str) -> str:
    """Return a text of a line; empty if it is missing. Pure."""
    value = values.get(name)
    return value if isinstance(value, str) else ""


def turns_of(lines: Iterable[TraceLine]) -> tuple[TracedTurn, ...]:
    """Return the turns of a trace; events between turns are in none. Pure."""
    turns: list[TracedTurn] = []
    open_turn: TracedTurn | None = None
    for line in lines:
        if line.kind == "trace":  # another harness process continued the file
            open_turn = None
        elif line.kind == "turn_started" and not line.values.get("parent_call"):
            open_turn = TracedTurn(len(turns) + 1, text(line.values, "turn_id"))
            turns.append(open_turn)
        if open_turn is not None:
            open_turn.lines.append(line)
            if line.kind == "turn_completed" and text(line.values, "turn_id") == open_turn.turn_id:
                open_turn = None
    return tuple(turns)


def context_of(lines: Iterable[TraceLine], request: int) -> tuple[Json, ...] | None:
    """Return all messages that a request sent; None if the trace does not contain all of them. Pure.

    Each harness process that writes to a trace starts its request numbers at 1: the last request of that number is
    used.
    """
    sent: dict[int, tuple[Json, ...] | None] = {}
    found: tuple[Json, ...] | None = None
    for line in lines:
        if line.kind == "trace":
            sent.clear()
        elif line.kind == "model_request":
            place = int(number(line.values, "request"))
            sent[place] = _messages(line.values, sent)
            found = sent[place] if place == request else found
    return found


def _messages(values: JsonObject, sent: dict[int, tuple[Json, ...] | None]) -> tuple[Json, ...] | None:
    new, same = values.get("new"), int(number(values, "same"))
    before = sent.get(int(number(values, "before"))) if same else ()
    if before is None or len(before) < same or not isinstance(new, list):
        return None
    return (*before[:same], *new)


# -- The replay: prompts, responses, calls and approvals in order. Pure.


SHOWN = 12
"""Maximum lines of an output."""
WIDTH = 500
"""Maximum characters of one line."""


def replayed(turns: Sequence[TracedTurn], *, whole: bool = False) -> Iterator[str]:
    """Yield the lines of a replay. Texts are as traced: the caller must escape control characters.

    Args:
        turns: the turns to replay.
        whole: yield complete outputs; otherwise only their start and end.
    """
    for turn in turns:
        began = turn.lines[0].at
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began))
        yield f"== turn {turn.place}, {when}"
        for line in turn.lines:
            shown = SHOWERS.get(line.kind)
            if shown is not None:
                head, body = shown(line.values)
                yield f"{line.at - began:9.3f} {'  ' if line.values.get('parent_call') else ''}{head}"
                yield from (f"          | {part}" for part in _cut(body, whole=whole))
        if turn.lines[-1].kind != "turn_completed":
            yield "          no end in this trace"


Shown = tuple[str, str]


def _started(values: JsonObject) -> Shown:
    return f"prompt ({text(values, 'origin') or 'operator'})", text(values, "prompt")


def _request(values: JsonObject) -> Shown:
    sizes = f"{counted(number(values, 'messages'), 'message')}, {number(values, 'new_bytes'):g} bytes of them new"
    return f"request {number(values, 'step'):g} to {text(values, 'model')}: {sizes}", ""


def _response(values: JsonObject) -> Shown:
    usage = _object(values, "usage")
    used = f"{number(usage, 'input_tokens'):g} tokens in, {number(usage, 'output_tokens'):g} out"
    first = values.get("first_seconds")
    began = f", the first after {first:.2f} s" if isinstance(first, int | float) else ""
    return f"answer after {number(values, 'seconds'):.2f} s{began}: {used}", ""


def _failure(values: JsonObject) -> Shown:
    return f"no answer after {number(values, 'seconds'):.2f} s", text(values, "error")


def _retry(values: JsonObject) -> Shown:
    return f"asked again in {number(values, 'seconds'):.1f} s", text(values, "reason")


def _answer(values: JsonObject) -> Shown:
    calls = number(values, "calls")
    return "said" + (f", with {counted(calls, 'call')}" if calls else ""), text(values, "text")


def _call(values: JsonObject) -> Shown:
    call = _object(values, "call")
    arguments = call.get("arguments")
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"call {text(call, 'name')} [{text(call, 'call_id')[:8]}]", shown


def _outcome(values: JsonObject) -> Shown:
    outcome = _object(values, "outcome")
    call, content = _object(outcome, "call"), _object(outcome, "result").get("content")
    blocks = content if isinstance(content, list) else []
    said = "\n".join(text(block, "text") or f"[{_media(block)}]" for block in blocks if isinstance(block, dict))
    name, call_id = text(call, "name"), text(call, "call_id")[:8]
    waited = number(outcome, "waited")
    leave = f", of which {waited:.2f} s waiting for approval" if waited >= 0.01 else ""
    return f"{name} [{call_id}] {text(outcome, 'status')} after {number(outcome, 'seconds'):.2f} s{leave}", said


def _media(block: JsonObject) -> str:
    return f"{text(block, 'media_type')}, {number(_object(block, 'data'), 'bytes'):g} bytes"


def _asked(values: JsonObject) -> Shown:
    return f"approval asked: {text(values, 'reason')}", text(values, "what")


def _replied(values: JsonObject) -> Shown:
    answer = "allowed" if values.get("allowed") is True else "refused"
    return f"{answer} by {text(values, 'by')}", text(values, "reason")


def _ended(values: JsonObject) -> Shown:
    seconds, steps = number(values, "seconds"), number(values, "steps")
    answers = counted(steps, "answer")
    return f"the turn {text(values, 'status')} after {seconds:.2f} s and {answers}", text(values, "failure")


def _job(values: JsonObject) -> Shown:
    return f"job {text(values, 'job_id')} is left running", text(values, "command")


def _job_ended(values: JsonObject) -> Shown:
    code = values.get("exit_code")
    return f"job {text(values, 'job_id')} has ended" + (f" with exit code {code}" if code is not None else ""), ""


def _link(values: JsonObject) -> Shown:
    return f"reconnected to {text(values, 'target')} after {number(values, 'seconds'):.1f} s", ""


def _plain(head: str, body: str = "") -> Callable[[JsonObject], Shown]:
    return lambda values: (head, text(values, body) if body else "")


SHOWERS: Mapping[str, Callable[[JsonObject], Shown]] = {
    "turn_started": _started,
    "model_request": _request,
    "model_response": _response,
    "model_failure": _failure,
    "model_retry": _retry,
    "answer_completed": _answer,
    "tool_call_requested": _call,
    "tool_call_completed": _outcome,
    "permission_asked": _asked,
    "permission_replied": _replied,
    "job_started": _job,
    "job_exited": _job_ended,
    "link_back": _link,
    "subagent_started": _plain("a sub-agent starts", "prompt"),
    "subagent_completed": _plain("the sub-agent has ended"),
    "agent_paused": _plain("paused", "reason"),
    "agent_resumed": _plain("resumed", "meanwhile"),
    "conversation_compacted": _plain("older messages were compacted", "summary"),
    "model_changed": _plain("another model", "name"),
    "failure": _plain("failure", "message"),
    "notice": _plain("notice", "text"),
    "turn_completed": _ended,
}


def _object(values: JsonObject, name: str) -> JsonObject:
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _cut(body: str, *, whole: bool) -> list[str]:
    lines = body.splitlines()
    if whole:
        return lines
    lines = [line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in lines]
    if len(lines) <= SHOWN:
        return lines
    half = SHOWN // 2
    return [*lines[:half], f"[{len(lines) - 2 * half} lines]", *lines[-half:]]


# -- Statistics. Pure.


@dataclass(slots=True)
class ToolFigures:
    """The calls of one tool. ``seconds`` is their total; ``cached`` calls got a result from the cache."""

    calls: int = 0
    errors: int = 0
    cached: int = 0
    seconds: float = 0.0
    slowest: float = 0.0


@dataclass(slots=True)
class TraceSummary:
    """Statistics of a trace. Times are seconds, cost is US dollars."""

    target: str = ""
    sessions: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    started: float = 0.0
    seconds: float = 0.0
    turns: dict[str, int] = field(default_factory=dict)
    """The number of turns by status; ``unfinished`` ones have no end in the trace."""
    requests: int = 0
    request_seconds: float = 0.0
    slowest_request: float = 0.0
    first_seconds: float = 0.0
    """The mean time to the first part of a response."""
    failures: int = 0
    retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cost: float | None = None
    tools: dict[str, ToolFigures] = field(default_factory=dict)
    asked: int = 0
    """The number of approval requests."""
    refused: int = 0
    asked_seconds: float = 0.0
    jobs: int = 0
    compactions: int = 0
    reconnects: int = 0
    dropped: int = 0
    """Lines that were omitted because the disk was too slow."""
    damaged: int = 0
    """Invalid and cut-off lines."""


def summary_of(lines: Sequence[TraceLine]) -> TraceSummary:
    """Return the statistics of a trace."""
    known = [line for line in lines if line.kind]
    kinds = Counter(line.kind for line in known)
    summary = TraceSummary(damaged=len(lines) - len(known))
    summary.started = known[0].at if known else 0.0
    summary.seconds = round(max((line.at for line in known), default=0.0) - summary.started, 6)
    summary.target = next((text(line.values, "target") for line in known if text(line.values, "target")), "")
    summary.sessions = _distinct(text(line.values, "session_id") for line in known)
    summary.models = _distinct(text(line.values, "model") for line in known if line.kind == "model_request")
    summary.retries, summary.jobs = kinds["model_retry"], kinds["job_started"]
    summary.compactions, summary.requests = kinds["conversation_compacted"], kinds["model_request"]
    summary.failures, summary.reconnects = kinds["model_failure"], kinds["link_back"]
    summary.dropped = int(sum(number(line.values, "lines") for line in known if line.kind == "dropped"))
    _turns(summary, known)
    _requests(summary, known)
    _tools(summary, known)
    _approvals(summary, known)
    return summary


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for one in texts if one))


def _turns(summary: TraceSummary, lines: Sequence[TraceLine]) -> None:
    ends = [_end(turn.lines) for turn in turns_of(lines)]
    summary.turns = dict(Counter(ends))


def _end(lines: Sequence[TraceLine]) -> str:
    last = lines[-1]
    return text(last.values, "status") if last.kind == "turn_completed" else "unfinished"


def _requests(summary: TraceSummary, lines: Sequence[TraceLine]) -> None:
    answers = [line.values for line in lines if line.kind == "model_response"]
    ends = [line.values for line in lines if line.kind in ("model_response", "model_failure")]
    seconds = [number(values, "seconds") for values in ends]
    summary.request_seconds, summary.slowest_request = round(sum(seconds), 6), max(seconds, default=0.0)
    firsts = [number(values, "first_seconds") for values in answers if values.get("first_seconds") is not None]
    summary.first_seconds = round(sum(firsts) / len(firsts), 6) if firsts else 0.0
    usages = [usage for values in answers if isinstance(usage := values.get("usage"), dict)]
    for name in ("input_tokens", "output_tokens", "cache_read_tokens"):
        setattr(summary, name, int(sum(number(usage, name) for usage in usages)))
    costs = {  # costs are totals so far: the last one of each conversation is used
        text(line.values, "session_id"): number(line.values, "cost")
        for line in lines
        if line.kind == "usage_changed" and "cost" in line.values
    }
    summary.cost = round(sum(costs.values()), 9) if costs else None


def _tools(summary: TraceSummary, lines: Sequence[TraceLine]) -> None:
    for line in lines:
        outcome = line.values.get("outcome")
        if line.kind != "tool_call_completed" or not isinstance(outcome, dict):
            continue
        call, result = _object(outcome, "call"), _object(outcome, "result")
        figures = summary.tools.setdefault(text(call, "name"), ToolFigures())
        seconds = max(0.0, number(outcome, "seconds") - number(outcome, "waited"))
        figures.calls += 1
        figures.errors += result.get("is_error") is True
        figures.cached += outcome.get("cached") is True
        figures.seconds = round(figures.seconds + seconds, 6)
        figures.slowest = max(figures.slowest, seconds)


def _approvals(summary: TraceSummary, lines: Sequence[TraceLine]) -> None:
    asked = {text(line.values, "request_id"): line.at for line in lines if line.kind == "permission_asked"}
    summary.asked = len(asked)
    for line in lines:
        if line.kind == "permission_replied" and text(line.values, "request_id") in asked:
            summary.refused += line.values.get("allowed") is not True
            waited = line.at - asked[text(line.values, "request_id")]
            summary.asked_seconds = round(summary.asked_seconds + max(waited, 0.0), 6)


# -- growth of the context


@dataclass(frozen=True, slots=True)
class ContextStep:
    """One request, and which part of it was new. Sizes are those of the messages as JSON."""

    request: int
    at: float
    turn_id: str
    step: int
    model: str
    messages: int
    added: int
    removed: int
    """Messages of the previous request that were not sent again."""
    new_bytes: int
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    failed: bool = False


def context_steps(lines: Sequence[TraceLine]) -> tuple[ContextStep, ...]:
    """Return the requests of a trace, in order."""
    ends: dict[int, TraceLine] = {}
    steps: list[ContextStep] = []
    for line in reversed(lines):  # request numbers repeat with each process: the next end is the request's
        if line.kind in ("model_response", "model_failure"):
            ends[int(number(line.values, "request"))] = line
        elif line.kind == "model_request":
            steps.append(_step(line, ends.pop(int(number(line.values, "request")), None)))
    steps.reverse()
    sizes: dict[int, int] = {}
    found = []
    for step, line in zip(steps, [line for line in lines if line.kind == "model_request"], strict=True):
        before = sizes.get(int(number(line.values, "before")), 0)
        sizes[step.request] = step.messages
        found.append(_against(step, line, before))
    return tuple(found)


def _step(line: TraceLine, end: TraceLine | None) -> ContextStep:
    values, usage = line.values, _object(end.values, "usage") if end is not None else {}
    return ContextStep(
        request=int(number(values, "request")),
        at=line.at,
        turn_id=text(values, "turn_id"),
        step=int(number(values, "step")),
        model=text(values, "model"),
        messages=int(number(values, "messages")),
        added=int(number(values, "messages") - number(values, "same")),
        removed=0,
        new_bytes=int(number(values, "new_bytes")),
        input_tokens=int(number(usage, "input_tokens")),
        output_tokens=int(number(usage, "output_tokens")),
        seconds=number(end.values, "seconds") if end is not None else 0.0,
        failed=end is not None and end.kind == "model_failure",
    )


def _against(step: ContextStep, line: TraceLine, before: int) -> ContextStep:
    return replace(step, removed=max(0, before - int(number(line.values, "same"))))
