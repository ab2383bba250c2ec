"""The asciicast format, versions 2 and 3: one JSON value per line, a header and events. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import HarnessError

__all__ = ["CastEvent", "CastHeader", "EventCode", "event_line", "header_line", "read_events", "read_header"]

EventCode = Literal["o", "i", "r", "m", "x"]
"""Output, input, a new size (``80x24``), a marker, the end with an exit status (version 3)."""


@dataclass(frozen=True, slots=True)
class CastHeader:
    """The first line of a recording."""

    columns: int
    rows: int
    version: int = 2
    timestamp: int = 0
    title: str = ""
    harness: Mapping[str, Any] = field(default_factory=dict)
    """What harness knows of the recording: target, session, pane, owner. Players ignore it."""


@dataclass(frozen=True, slots=True)
class CastEvent:
    """One event, by the seconds since the start of the recording."""

    time: float
    code: str
    data: str


def header_line(header: CastHeader) -> str:
    """Return the header as a line."""
    term = "xterm-256color"
    size: dict[str, Any]
    if header.version == 3:
        size = {"term": {"cols": header.columns, "rows": header.rows, "type": term}}
    else:
        size = {"width": header.columns, "height": header.rows, "env": {"TERM": term}}
    values = {"version": header.version, **size, "timestamp": header.timestamp, "title": header.title}
    return json.dumps({**values, "harness": dict(header.harness)}, ensure_ascii=False) + "\n"


def event_line(event: CastEvent, before: float, version: int) -> str:
    """Return an event as a line; version 3 counts from the event before, at ``before`` seconds."""
    seconds = event.time - before if version == 3 else event.time
    return json.dumps([round(seconds, 6), event.code, event.data], ensure_ascii=False) + "\n"


def read_header(line: str, path: object) -> CastHeader:
    """Parse the first line.

    Raises:
        HarnessError: It is not the header of an asciicast file of version 2 or 3.
    """
    values = _json(line)
    if not isinstance(values, dict) or values.get("version") not in (2, 3):
        raise HarnessError(f"{path} is not an asciicast recording of version 2 or 3")
    term = values.get("term") if values["version"] == 3 else None
    size = (
        (term.get("cols"), term.get("rows")) if isinstance(term, dict) else (values.get("width"), values.get("height"))
    )
    if not all(isinstance(number, int) and 0 < number < 100_000 for number in size):
        raise HarnessError(f"{path}: the recording has no valid terminal size")
    known, stamp = values.get("harness"), values.get("timestamp")
    return CastHeader(
        columns=int(size[0] or 0),
        rows=int(size[1] or 0),
        version=int(values["version"]),
        timestamp=int(stamp) if isinstance(stamp, int | float) else 0,
        title=str(values.get("title") or ""),
        harness=known if isinstance(known, dict) else {},
    )


def read_events(lines: Iterable[str], version: int) -> Iterator[CastEvent]:
    """Parse the lines after the header; skip lines that are not events, such as comments and a truncated last one."""
    time = 0.0
    for line in lines:
        values = _json(line)
        if not isinstance(values, list) or len(values) != 3:
            continue
        seconds, code, data = values
        if not isinstance(seconds, int | float) or not isinstance(code, str) or not isinstance(data, str):
            continue
        time = time + max(0.0, seconds) if version == 3 else max(time, float(seconds))
        yield CastEvent(time, code, data)


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
