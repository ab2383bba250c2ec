"""One problem of a log, and the log without its escape sequences."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

__all__ = [
    "Log",
    "ParsedProblem",
    "Problem",
    "Reader",
    "Severity",
    "log_of",
    "severity_of",
    "without_escapes",
]


# -- Text without what terminals take for commands.


# Every alternative begins with a fixed character, and what may follow each other are disjoint sets: one pass.
# A sequence whose end is missing ends with its line, so that it takes nothing else away.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def without_escapes(text: str) -> str:
    """The text without escape sequences and control characters; tabs and the ends of lines stay. Pure, linear."""
    if "\x1b" in text or not text.isascii():
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text)


# -- One complaint, and the log that it is in.


WIDTH = 4_000
"""Characters of a line that are looked at; what patterns do with a line is bounded by it."""
Severity = Literal["error", "warning", "note"]

_TIME = re.compile(r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d[.,\d]{0,10}(?:Z|[+-]\d\d:?\d\d)?\]?[ \t]")
"""What build servers and loggers write before a line."""
_STEP = re.compile(r"#\d{1,4} \d{1,6}\.\d{1,3} ")
"""What docker build writes before a line."""
_SERVICE = re.compile(r"[A-Za-z][\w.-]{0,80}[-_]\d{1,3} {1,40}\| ")
"""What docker compose writes before a line."""
_MARKS = ("##[error]", "##[warning]")


class Problem(NamedTuple):
    """One complaint. Lines and columns count from 1; 0 is: not said. ``format`` is whose it is."""

    file: str
    line: int
    col: int
    code: str
    severity: Severity
    message: str
    format: str


class ParsedProblem(NamedTuple):
    """What a reader found at a line, and the number of the line to go on with."""

    problems: tuple[Problem, ...]
    upto: int


@dataclass(frozen=True, slots=True)
class Log:
    """The lines of a text, each cut to :data:`WIDTH` and bare of what servers put before it.

    ``raw`` are the whole lines. ``tests`` are the names of failed tests that were read already, or what they said.
    """

    lines: list[str]
    raw: list[str]
    tests: set[str] = field(default_factory=set)


Reader = Callable[[Log, int], ParsedProblem | None]
"""Reads what begins at one line; None when it is nothing that this reader knows."""


def _bare(line: str) -> str:
    if "\r" in line:  # what was written over on the screen
        line = line.removesuffix("\r").rpartition("\r")[2]
    line = line[:WIDTH]
    if line[:1] == "#" or " | " in line[:140]:
        line = _without(line, _STEP if line[0] == "#" else _SERVICE)
    if line[:1].isdigit() or line[:1] == "[":
        line = _without(line, _TIME)
    for mark in _MARKS:
        line = line.removeprefix(mark)
    return line


def _without(line: str, start: re.Pattern[str]) -> str:
    match = start.match(line)
    return line[match.end() :] if match else line


def log_of(text: str) -> Log:
    """The lines of a text without escape sequences."""
    raw = text.split("\n")
    return Log([_bare(line) for line in raw], raw)


_NOTES = frozenset({"note", "info", "information", "remark", "help", "hint", "message", "suggestion"})


def severity_of(word: str) -> Severity:
    """What a tool's word means: everything that is neither a warning nor a note is an error."""
    low = word.lower()
    return "warning" if low.startswith("warn") else "note" if low in _NOTES else "error"
