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


# -- Text without terminal escape sequences.
# Every alternative starts with a fixed character, and consecutive parts are disjoint sets: one pass. An unterminated
# sequence ends with its line, so that it removes nothing else.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colors, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def without_escapes(text: str) -> str:
    """Return the text without escape sequences and control characters, except tabs and line ends. Pure, linear."""
    if "\x1b" in text or not text.isascii():
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text)


# -- One problem, and its log.


WIDTH = 4_000
"""Maximum characters of a line that are parsed, which bounds the patterns."""
Severity = Literal["error", "warning", "note"]

_TIME = re.compile(r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d[.,\d]{0,10}(?:Z|[+-]\d\d:?\d\d)?\]?[ \t]")
"""Timestamp that build servers and loggers print before a line."""
_STEP = re.compile(r"#\d{1,4} \d{1,6}\.\d{1,3} ")
"""Prefix of docker build."""
_SERVICE = re.compile(r"[A-Za-z][\w.-]{0,80}[-_]\d{1,3} {1,40}\| ")
"""Prefix of docker compose."""
_MARKS = ("##[error]", "##[warning]")


class Problem(NamedTuple):
    """One problem; lines and columns count from 1, and 0 is unknown; ``format`` is the program's format."""

    file: str
    line: int
    col: int
    code: str
    severity: Severity
    message: str
    format: str


class ParsedProblem(NamedTuple):
    """The problems that start at a line, and the number of the next line to parse."""

    problems: tuple[Problem, ...]
    upto: int


@dataclass(frozen=True, slots=True)
class Log:
    """The lines of a text, truncated to :data:`WIDTH` and without the prefixes of servers.

    ``raw`` are the whole lines. ``tests`` are the names or messages of failed tests that were already parsed.
    """

    lines: list[str]
    raw: list[str]
    tests: set[str] = field(default_factory=set)


Reader = Callable[[Log, int], ParsedProblem | None]
"""Parses what starts at a line; returns None if it does not match."""


def _bare(line: str) -> str:
    if "\r" in line:  # text that was overwritten on the screen
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
    """Return the lines of a text without escape sequences."""
    raw = text.split("\n")
    return Log([_bare(line) for line in raw], raw)


_NOTES = frozenset({"note", "info", "information", "remark", "help", "hint", "message", "suggestion"})


def severity_of(word: str) -> Severity:
    """Return the severity for a tool's word: an error unless it is a warning or a note."""
    low = word.lower()
    return "warning" if low.startswith("warn") else "note" if low in _NOTES else "error"
