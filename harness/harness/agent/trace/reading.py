"""Reading a trace: its lines, and what they say of turns and requests. A line that is cut or foreign is counted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from ...errors import HarnessError
from ...toolkit.values import Json, JsonObject
from .lines import VERSION

__all__ = ["Line", "TracedTurn", "context_of", "lines_of", "number", "read_trace", "text", "turns_of"]

FIRST_LINE = 64 << 10
"""Characters of the first line, at most."""
TOO_LARGE = 1e15


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a trace. ``kind`` is empty for one that is none."""

    kind: str
    at: float
    values: JsonObject


@dataclass(slots=True)
class TracedTurn:
    """The lines of one turn, from its beginning to its end. ``place`` is its number in the trace, from 1."""

    place: int
    turn_id: str
    lines: list[Line] = field(default_factory=list)


def read_trace(path: Path) -> tuple[Line, ...]:
    """All lines of a trace.

    Raises:
        HarnessError: it cannot be read, it is no trace, or a newer harness wrote it.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline(FIRST_LINE)  # what is no trace may have no end
            found = tuple(lines_of(chain((first,), file))) if _line(first).kind == "trace" else ()
    except OSError as error:
        raise HarnessError(f"the trace {path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    if not found:
        raise HarnessError(f"{path} is no trace", hint="--trace FILE writes one")
    if any(number(line.values, "version") > VERSION for line in found if line.kind == "trace"):
        raise HarnessError(f"a newer harness wrote {path}", hint="use that harness")
    return found


def lines_of(rows: Iterable[str]) -> Iterator[Line]:
    """The lines of a trace. Pure."""
    for row in rows:
        if row.strip():
            yield _line(row)


def _line(row: str) -> Line:
    try:
        values: Json = json.loads(row, parse_constant=lambda _: None)  # NaN is no JSON
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not isinstance(values.get("type"), str):
        return Line("", 0.0, {})
    return Line(str(values["type"]), number(values, "at"), values)


def number(values: JsonObject, name: str) -> float:
    """A number of a line; 0 where there is none, or one that no time and no count can be. Pure."""
    value = values.get(name)
    return float(value) if isinstance(value, int | float) and abs(value) < TOO_LARGE else 0.0


def text(values: JsonObject, name: str) -> str:
    """A text of a line; empty where there is none. Pure."""
    value = values.get(name)
    return value if isinstance(value, str) else ""


def turns_of(lines: Iterable[Line]) -> tuple[TracedTurn, ...]:
    """The turns of a trace; what happens between two belongs to none. Pure."""
    turns: list[TracedTurn] = []
    open_turn: TracedTurn | None = None
    for line in lines:
        if line.kind == "trace":  # another harness went on with the file
            open_turn = None
        elif line.kind == "turn_started" and not line.values.get("parent_call"):
            open_turn = TracedTurn(len(turns) + 1, text(line.values, "turn_id"))
            turns.append(open_turn)
        if open_turn is not None:
            open_turn.lines.append(line)
            if line.kind == "turn_completed" and text(line.values, "turn_id") == open_turn.turn_id:
                open_turn = None
    return tuple(turns)


def context_of(lines: Iterable[Line], request: int) -> tuple[Json, ...] | None:
    """All messages that a request sent; None when the trace does not have all of them. Pure.

    The numbers of requests begin again with each harness that writes into a trace: the last of that number counts.
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
