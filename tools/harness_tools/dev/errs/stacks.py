"""What was thrown, above the calls that led there: Java and its relatives, Node, .NET."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .model import Log, Problem, Read

__all__ = ["is_frame", "stack"]

_THROWN = re.compile(
    r'(?:Exception in thread "[^"]{0,200}" |Unhandled exception\. |Caused by: |Uncaught )?'
    r"((?:[\w$]{1,100}\.){0,20}(?:[A-Z][\w$]{0,100})?(?:Error|Exception|Throwable))(?: \[[\w.-]{1,80}\])?(?:: (.*))?$"
)
_PLACE = re.compile(r":(?:line )?(\d{1,9})(?::(\d{1,9}))?$")
_ABOVE = re.compile(r"(\S.{0,1000}\.[cm]?[jt]sx?):(\d{1,9})$")
"""Where Node found what it cannot read: above the source line and the arrow below that."""
_OWN = ("java.", "javax.", "jdk.", "sun.")
"""Calls inside of the language itself: the place is further down."""
_FORMATS = {"java": "java", "kt": "java", "scala": "java", "groovy": "java", "cs": "dotnet", "fs": "dotnet"}
_LOOK = 6
"""Lines that a message has at most, and that Node writes above it."""
_DEEP = 3_000
"""Calls of one trace, at most."""


class _Place(NamedTuple):
    file: str = ""
    line: int = 0
    col: int = 0


def is_frame(line: str) -> bool:
    """Whether a line is one call of a trace."""
    return line[:1] in (" ", "\t") and line.lstrip().startswith("at ")


def stack(log: Log, at: int) -> Read | None:
    """``NameOfError: message`` and the first call below it that is not of the language itself."""
    line = log.lines[at].strip()
    match = _THROWN.match(line) if "Error" in line or "Exception" in line or "Throwable" in line else None
    first = _first_frame(log, at + 1) if match else 0
    if match is None or not first:
        return None
    frames = list(_frames(log, first))
    place = next((place for frame in frames if (place := _place(frame)).file), None) or _above(log, at)
    said = " ".join([match[2] or match[1], *(more.strip() for more in log.lines[at + 1 : first])])
    form = _FORMATS.get(place.file.rpartition(".")[2], "node" if place.file else "unknown")
    return Read((Problem(*place, match[1], "error", said.strip(), form),), first + len(frames))


def _first_frame(log: Log, at: int) -> int:
    """The number of the line with the first call; 0 when there is none."""
    for number in range(at, min(at + _LOOK, len(log.lines))):
        if is_frame(log.lines[number]):
            return number
        if not log.lines[number].strip() or _THROWN.match(log.lines[number].strip()):
            break
    return 0


def _frames(log: Log, at: int) -> Iterator[str]:
    for line in log.lines[at : at + _DEEP]:
        if not is_frame(line):
            return
        yield line.strip()[3:]


def _place(frame: str) -> _Place:
    """Where a call is; nowhere when it is inside of the language."""
    inside = frame.rpartition("(")[2][:-1] if frame.endswith(")") else frame.rpartition(" in ")[2]
    match = _PLACE.search(inside)
    path = inside[: match.start()].removeprefix("file://").removeprefix("async ") if match else ""
    if match is None or path.startswith(("node:", "internal/")) or frame.startswith(_OWN):
        return _Place()
    return _Place(path, int(match[1]), int(match[2] or 0))


def _above(log: Log, at: int) -> _Place:
    for number in range(at - 1, max(-1, at - _LOOK), -1):
        if match := _ABOVE.match(log.lines[number]):
            return _Place(match[1].removeprefix("file://"), int(match[2]))
    return _Place()
