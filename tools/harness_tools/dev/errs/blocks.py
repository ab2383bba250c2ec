"""Complaints of more than one line: rustc and what writes like it, eslint's groups, kotlin, panics of Go and Rust."""

from __future__ import annotations

import re

from .model import Log, Problem, Read, severity_of
from .places import split_code

__all__ = ["arrow", "go_panic", "kotlin", "pretty", "rust_panic", "stylish"]

_HEAD = re.compile(r"(error|warning|note|help|failure-note)(?:\[([\w:.-]{1,80})\])?: ")
_RUFF = re.compile(r"([A-Z]{1,6}\d{2,5}|[a-z]{1,20}-[a-z]{1,20})(?::| \[\*\]|) ")
_LINT = re.compile(r"#\[(?:warn|deny|forbid)\(([\w:]{1,80})\)\]")
_LOOK = 40
"""Lines that belong to one complaint, at most."""


def arrow(log: Log, at: int) -> Read | None:
    """``error[E0308]: message`` above ``--> file:line:column``."""
    stripped = log.lines[at].strip()
    if not stripped.startswith("--> "):
        return None
    parts = stripped[4:].rsplit(":", 2)
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    place = (parts[0], int(parts[1][:9]), int(parts[2][:9]))
    ruff = _RUFF.match(log.lines[at - 1]) if at else None
    if ruff is not None and not place[0].endswith(".rs"):  # what is above it is of another one
        return Read((Problem(*place, ruff[1], "error", log.lines[at - 1][ruff.end() :].strip(), "ruff"),), at + 1)
    for number in range(at - 1, max(-1, at - 6), -1):
        if match := _HEAD.match(log.lines[number]):
            return _of_rustc(log, at, number, match, place)
        if not log.lines[number].strip():
            break
    return None


def _of_rustc(log: Log, at: int, head: int, match: re.Match[str], place: tuple[str, int, int]) -> Read:
    if match[1] not in ("error", "warning"):
        return Read((), at + 1)
    message = " ".join([log.lines[head][match.end() :].strip(), *(line.strip() for line in log.lines[head + 1 : at])])
    form = "ruff" if place[0].endswith((".py", ".pyi", ".ipynb")) else "rust"
    code = match[2] or _lint(log, at + 1)
    return Read((Problem(*place, code, severity_of(match[1]), message, form),), at + 1)


def _lint(log: Log, at: int) -> str:
    for line in log.lines[at : at + _LOOK]:
        if not line.strip():
            break
        if match := _LINT.search(line):
            return match[1]
    return ""


_RUST_PANIC = re.compile(
    r"thread '[^']{0,200}'(?: \(\d{1,20}\))? panicked at (?:'(.*)', )?([^':]{1,1000}):(\d{1,9}):(\d{1,9}):?$"
)


def rust_panic(log: Log, at: int) -> Read | None:
    """``thread 'main' panicked at src/main.rs:2:5:``, with the message below or before the place."""
    line = log.lines[at]
    match = _RUST_PANIC.match(line) if line.startswith("thread '") else None
    if match is None:
        return None
    below = log.lines[at + 1].strip() if at + 1 < len(log.lines) else ""
    message = match[1] if match[1] is not None else below
    place = (match[2], int(match[3]), int(match[4]))
    return Read((Problem(*place, "panic", "error", message, "rust"),), at + 1 + (match[1] is None))


_GO_FRAME = re.compile(r"\t(.{1,2000}\.go):(\d{1,9})(?: \+0x[0-9a-f]{1,16})?$")


def go_panic(log: Log, at: int) -> Read | None:
    """``panic: message`` and the first place below it that is not of Go itself."""
    line = log.lines[at]
    if not line.startswith(("panic: ", "fatal error: all goroutines")):
        return None
    for number in range(at + 1, min(at + _LOOK, len(log.lines))):
        if log.lines[number].startswith("panic: "):
            break
        match = _GO_FRAME.match(log.lines[number])
        if match and "/src/runtime/" not in match[1] and "/src/testing/" not in match[1]:
            message = line.removeprefix("panic: ").removesuffix(" [recovered]")
            return Read((Problem(match[1], int(match[2]), 0, "panic", "error", message, "go"),), number + 1)
    return None


_ENTRY = re.compile(r"[ \t]{1,8}(\d{1,9}):(\d{1,9}) +(error|warning) +")


def stylish(log: Log, at: int) -> Read | None:
    """A file's name, and below it eslint's ``line:column  severity  message  rule``."""
    file = log.lines[at]
    if file[:1] in ("", " ", "\t") or at + 1 >= len(log.lines) or not _ENTRY.match(log.lines[at + 1]):
        return None
    problems = []
    upto = at + 1
    while upto < len(log.lines) and (match := _ENTRY.match(log.lines[upto])):
        message, rule = _rule(log.lines[upto][match.end() :].rstrip())
        place = (file.rstrip(), int(match[1]), int(match[2]))
        problems.append(Problem(*place, rule, severity_of(match[3]), message, "eslint"))
        upto += 1
    return Read(tuple(problems), upto)


def _rule(text: str) -> tuple[str, str]:
    message, gap, rule = text.rpartition("  ")
    return (message.rstrip(), rule) if gap and rule and " " not in rule else (text, "")


_PRETTY = re.compile(r" - (error|warning|message|suggestion)(?: (TS\d{1,6}))?: ")


def pretty(log: Log, at: int) -> Read | None:
    """``file:line:column - error TS2322: message``, of tsc at a terminal."""
    line = log.lines[at]
    match = _PRETTY.search(line) if " - " in line else None
    parts = line[: match.start()].rsplit(":", 2) if match else []
    if match is None or len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    place = (parts[0].strip(), int(parts[1][:9]), int(parts[2][:9]))
    upto = at + 1
    while upto < min(at + 20, len(log.lines)) and log.lines[upto].startswith("  ") and log.lines[upto].strip():
        upto += 1
    message = "\n".join([line[match.end() :].rstrip(), *(more.rstrip() for more in log.lines[at + 1 : upto])])
    return Read((Problem(*place, match[2] or "", severity_of(match[1]), message, "tsc"),), upto)


_OLD_KOTLIN = re.compile(r": \((\d{1,9}), (\d{1,9})\): ")
_NEW_KOTLIN = re.compile(r":(\d{1,9}):(\d{1,9}):? ")
_KOTLIN_SEVERITY = {"e": "error", "w": "warning", "i": "info"}


def kotlin(log: Log, at: int) -> Read | None:
    """``e: file:///path:line:column message``, and the older ``e: path: (line, column): message``."""
    line = log.lines[at]
    if line[1:3] != ": " or line[0] not in _KOTLIN_SEVERITY:
        return None
    match = _OLD_KOTLIN.search(line) or _NEW_KOTLIN.search(line)
    severity = severity_of(_KOTLIN_SEVERITY[line[0]])
    if match is None:
        return Read((Problem("", 0, 0, "", severity, line[3:].strip(), "kotlin"),), at + 1)
    path = line[3 : match.start()].removeprefix("file://")
    message, code = split_code(line[match.end() :].strip())
    return Read((Problem(path, int(match[1]), int(match[2]), code, severity, message, "kotlin"),), at + 1)
