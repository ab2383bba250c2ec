"""Calls of tools as the operator sees them: what runs where, the last of what it writes, and what came of it. Pure."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ...toolkit.values import CallOutcome, CallStatus, Json, JsonObject, ToolCall
from .printable import one_line, output_lines
from .themes import Line, Role, Span, line

__all__ = ["PLAIN", "TAIL", "Marks", "Output", "RunningCall", "completed", "cut_line", "subject_of"]

SUBJECTS: Final = (
    "command",
    "path",
    "file_path",
    "url",
    "pattern",
    "query",
    "literal_text",
    "keys",
    "prompt",
    "text",
    "job_id",
)
"""The arguments that say most of what a call is about, the first one that there is."""
SHOWN_SUBJECT = 200
KEPT = 400
"""Lines of output that are kept of a running call."""
LONGEST_LINE = 2000
SHOWN_LINE = 400
"""Characters of a line of output below a call: more would only push the rest off the screen."""
TAIL = 4
"""Lines of output below a call that has ended."""
TAIL_OF_FAILURE = 8


@dataclass(frozen=True, slots=True)
class Marks:
    """The signs before lines."""

    runs: str = "▸"
    done: str = "●"
    failed: str = "✗"
    note: str = "·"
    asks: str = "▲"
    below: str = "│"


PLAIN: Final = Marks("*", "*", "x", "-", "?", "|")


def subject_of(call: ToolCall) -> str:
    """What a call is about, in one line that may hold anything."""
    arguments = call.arguments
    if isinstance(arguments, str):
        return arguments
    for name in SUBJECTS:
        if isinstance(value := arguments.get(name), str) and value:
            return value if "\n" not in value.strip() else _first_line(value.strip())
    if isinstance(asked := arguments.get("questions"), list):
        return " / ".join(str(one.get("question", "")) for one in asked if isinstance(one, Mapping))
    rest = {name: value for name, value in arguments.items() if name not in ("why", "risk", "mutation", "privesc")}
    return json.dumps(rest, ensure_ascii=False) if rest else ""


def _first_line(text: str) -> str:
    first, *more = text.split("\n")
    return f"{first} … ({len(more)} more lines)"


class Output:
    """What a command has written, as lines; the older ones are forgotten."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._open = ""
        self.count = 0
        """Lines that there were."""
        self.missed = 0

    def add(self, text: str, missed: int = 0) -> list[str]:
        """Take more of it; returns the lines that are whole now."""
        self.missed += missed
        whole, newline, rest = (self._open + text).rpartition("\n")
        self._open = rest[-LONGEST_LINE:]
        lines = [one[:LONGEST_LINE] for one in output_lines(whole)] if newline else []
        self._lines.extend(lines)
        self.count += len(lines)
        return lines

    @property
    def rest(self) -> str:
        """The line that has no end yet."""
        return output_lines(self._open)[-1]

    def last(self, number: int) -> list[str]:
        """The last lines, with the one that has no end."""
        lines = [*self._lines, *([self.rest] if self.rest.strip() else [])]
        return lines[-number:] if number > 0 else []


@dataclass
class RunningCall:
    """A call that was requested and has not ended."""

    call: ToolCall
    started: float
    output: Output = field(default_factory=Output)
    asks: bool = False
    """It waits for an answer of the operator."""

    def lines(self, now: float, marks: Marks, tail: int) -> list[Line]:
        """What is shown while it runs."""
        state = "waits for your answer" if self.asks else f"{now - self.started:.0f} s"
        head = line(
            Span(f"{marks.runs} ", "accent"),
            *_title(self.call),
            Span(f" · {state}", "dim"),
        )
        return [head, *(line(Span(f"  {marks.below} {one}", "dim")) for one in self.output.last(tail))]


def _title(call: ToolCall) -> tuple[Span, ...]:
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    who = "" if call.agent_id in ("", "agent") else f"[{one_line(call.agent_id, 24)}] "
    pane = arguments.get("pane")
    where = f" (pane {one_line(str(pane), 30)})" if pane else ""
    subject = one_line(subject_of(call), SHOWN_SUBJECT)
    return Span(f"{who}{one_line(call.name, 60)} ", "tool"), Span(f"{subject}{where}")


def completed(outcome: CallOutcome, output: Output | None, marks: Marks, *, tail: int = TAIL) -> list[Line]:
    """What stays of a call that has ended: what it was, how it ended, and the last lines of what it wrote."""
    word, role = _ending(outcome)
    failed = role == "error"
    head = line(
        Span(f"{marks.failed if failed else marks.done} ", role),
        *_title(outcome.call),
        Span(" · "),
        Span(word, role),
        Span(_times(outcome), "dim"),
    )
    return [head, *_below(outcome, output, marks, TAIL_OF_FAILURE if failed and tail else tail)]


def _times(outcome: CallOutcome) -> str:
    ran = f" · {outcome.running:.1f} s" if outcome.running >= 0.05 else ""
    return f"{ran} · waited {outcome.waited:.0f} s for leave" if outcome.waited >= 1 else ran


def _below(outcome: CallOutcome, output: Output | None, marks: Marks, number: int) -> list[Line]:
    if output is not None and (output.count or output.rest):
        every = _written(outcome, output, number)
        shown = every[-number:] if number > 0 else []
        left = output.count + bool(output.rest.strip()) - len(shown)
    elif outcome.status is CallStatus.OK:
        return []
    else:
        every = [one for one in output_lines(outcome.result.text) if one.strip()]
        shown, left = every[:number], 0
    more = [line(Span(f"  {marks.below} … {left} lines before these", "dim"))] if left > 0 and number else []
    return [*more, *(line(Span(f"  {marks.below} {cut_line(one)}", "dim")) for one in shown)]


def cut_line(text: str) -> str:
    """A line of output as it is shown: its beginning, and a mark that there is more. Pure."""
    return text if len(text) <= SHOWN_LINE else f"{text[:SHOWN_LINE]}…"


def _written(outcome: CallOutcome, output: Output, number: int) -> list[str]:
    """The last lines; of a flood those that came as progress are not the last ones, and the result has them."""
    data = outcome.result.data
    facts: JsonObject = data if isinstance(data, Mapping) else {}
    stdout = facts.get("stdout")
    if not isinstance(stdout, str) or not stdout.strip() or facts.get("stderr"):
        return output.last(number)
    return output_lines(stdout.rstrip("\n")[-LONGEST_LINE * max(1, number) :])


def _ending(outcome: CallOutcome) -> tuple[str, Role]:
    data = outcome.result.data
    facts: JsonObject = data if isinstance(data, Mapping) else {}
    match outcome.status:
        case CallStatus.DENIED:
            return "denied", "warn"
        case CallStatus.CANCELLED:
            return "cancelled", "warn"
        case CallStatus.TIMEOUT:
            return "its time was over", "error"
        case CallStatus.UNKNOWN:
            return "outcome unknown", "error"
        case _:
            return _result(outcome, facts)


def _result(outcome: CallOutcome, facts: JsonObject) -> tuple[str, Role]:
    code = facts.get("exit_code")
    if facts.get("status") == "running":
        return f"runs on as job {_text(facts.get('job_id'))}", "warn"
    if isinstance(code, int):
        return f"exit code {code}", "ok" if code == 0 else "error"
    if outcome.result.is_error or outcome.status is CallStatus.ERROR:
        return one_line(outcome.result.error_code, 40) or "failed", "error"
    return "from memory" if outcome.cached else "done", "ok"


def _text(value: Json) -> str:
    return one_line(str(value), 40)
