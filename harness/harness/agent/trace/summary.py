"""What a trace says, in figures. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ...toolkit.values import JsonObject
from .reading import Line, number, text, turns_of

__all__ = ["ContextStep", "ToolFigures", "TraceSummary", "context_steps", "summary_of"]


@dataclass(slots=True)
class ToolFigures:
    """The calls of one tool. ``seconds`` are all of them together; ``cached`` calls got a result from the cache."""

    calls: int = 0
    errors: int = 0
    cached: int = 0
    seconds: float = 0.0
    slowest: float = 0.0


@dataclass(slots=True)
class TraceSummary:
    """A whole trace. Times are seconds, cost is US dollars."""

    target: str = ""
    sessions: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    started: float = 0.0
    seconds: float = 0.0
    turns: dict[str, int] = field(default_factory=dict)
    """How many ended how; ``unfinished`` has no end in the trace."""
    requests: int = 0
    request_seconds: float = 0.0
    slowest_request: float = 0.0
    first_seconds: float = 0.0
    """The mean time until an answer began."""
    failures: int = 0
    retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cost: float | None = None
    tools: dict[str, ToolFigures] = field(default_factory=dict)
    asked: int = 0
    """Approvals that somebody was asked for."""
    refused: int = 0
    asked_seconds: float = 0.0
    jobs: int = 0
    compactions: int = 0
    reconnects: int = 0
    dropped: int = 0
    """Lines that were left out because the disk was too slow."""
    damaged: int = 0
    """Lines that are cut or foreign."""


def summary_of(lines: Sequence[Line]) -> TraceSummary:
    """The figures of a trace."""
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


def _turns(summary: TraceSummary, lines: Sequence[Line]) -> None:
    ends = [_end(turn.lines) for turn in turns_of(lines)]
    summary.turns = dict(Counter(ends))


def _end(lines: Sequence[Line]) -> str:
    last = lines[-1]
    return text(last.values, "status") if last.kind == "turn_completed" else "unfinished"


def _requests(summary: TraceSummary, lines: Sequence[Line]) -> None:
    answers = [line.values for line in lines if line.kind == "model_response"]
    ends = [line.values for line in lines if line.kind in ("model_response", "model_failure")]
    seconds = [number(values, "seconds") for values in ends]
    summary.request_seconds, summary.slowest_request = round(sum(seconds), 6), max(seconds, default=0.0)
    firsts = [number(values, "first_seconds") for values in answers if values.get("first_seconds") is not None]
    summary.first_seconds = round(sum(firsts) / len(firsts), 6) if firsts else 0.0
    usages = [usage for values in answers if isinstance(usage := values.get("usage"), dict)]
    for name in ("input_tokens", "output_tokens", "cache_read_tokens"):
        setattr(summary, name, int(sum(number(usage, name) for usage in usages)))
    costs = {  # each conversation says what it has cost so far: its last word counts
        text(line.values, "session_id"): number(line.values, "cost")
        for line in lines
        if line.kind == "usage_changed" and "cost" in line.values
    }
    summary.cost = round(sum(costs.values()), 9) if costs else None


def _tools(summary: TraceSummary, lines: Sequence[Line]) -> None:
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


def _object(values: JsonObject, name: str) -> JsonObject:
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _approvals(summary: TraceSummary, lines: Sequence[Line]) -> None:
    asked = {text(line.values, "request_id"): line.at for line in lines if line.kind == "permission_asked"}
    summary.asked = len(asked)
    for line in lines:
        if line.kind == "permission_replied" and text(line.values, "request_id") in asked:
            summary.refused += line.values.get("allowed") is not True
            waited = line.at - asked[text(line.values, "request_id")]
            summary.asked_seconds = round(summary.asked_seconds + max(waited, 0.0), 6)


# -- how the context grows


@dataclass(frozen=True, slots=True)
class ContextStep:
    """One request: what it sent, and what of that was new. Sizes are of the messages as JSON."""

    request: int
    at: float
    turn_id: str
    step: int
    model: str
    messages: int
    added: int
    removed: int
    """Messages of the request before it that it did not send again."""
    new_bytes: int
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    failed: bool = False


def context_steps(lines: Sequence[Line]) -> tuple[ContextStep, ...]:
    """The requests of a trace, in their order."""
    ends: dict[int, Line] = {}
    steps: list[ContextStep] = []
    for line in reversed(lines):  # numbers begin again with each harness: the end that comes next is the request's
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


def _step(line: Line, end: Line | None) -> ContextStep:
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


def _against(step: ContextStep, line: Line, before: int) -> ContextStep:
    return replace(step, removed=max(0, before - int(number(line.values, "same"))))
