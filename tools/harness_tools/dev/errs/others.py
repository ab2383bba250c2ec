"""Places that are named in a sentence: shells, CMake, PHP, Perl, nginx and servers like it."""

from __future__ import annotations

import re

from .model import Log, Problem, Read, severity_of
from .places import leading_code, looks_like_file

__all__ = ["annotation", "cmake", "sentence", "shell"]

_CMAKE = re.compile(r"CMake (Error|Warning)(?: \(dev\))? at ([^:]{1,1000}):(\d{1,9})(?: \((\w{1,60})\))?:")


def cmake(log: Log, at: int) -> Read | None:
    """``CMake Error at file:line (command):``, with the message in the lines below."""
    match = _CMAKE.match(log.lines[at]) if log.lines[at].startswith("CMake ") else None
    if match is None:
        return None
    said: list[str] = []
    upto = at + 1
    for line in log.lines[at + 1 : at + 20]:
        if line[:1] not in ("", " ") or (said and not line.strip()):
            break
        upto += 1
        said += [line.strip()] if line.strip() else []
    problem = Problem(match[2], int(match[3]), 0, match[4] or "", severity_of(match[1]), " ".join(said), "cmake")
    return Read((problem,), upto)


_AGAIN = re.compile(r"\S{1,1000}:\d{1,9}(?::\d{1,9})?: ")
_UNESCAPED = {"%0A": "\n", "%0D": "", "%3A": ":", "%2C": ",", "%25": "%"}


def annotation(log: Log, at: int) -> Read | None:
    """``::error file=app.js,line=1,col=5::message``, for GitHub."""
    head, found, message = log.lines[at].removeprefix("::").partition("::")
    word, _, rest = head.partition(" ")
    if not found or not log.lines[at].startswith("::") or word not in ("error", "warning", "notice"):
        return None
    said = {name.strip(): _plain(value) for name, _, value in (one.partition("=") for one in rest.split(","))}
    line, col = (int(value[:9]) if (value := said.get(name, "")).isdecimal() else 0 for name in ("line", "col"))
    again = _AGAIN.match(message)  # some write the place into the message, too
    code, message = leading_code(_plain(message[again.end() :] if again else message).strip())
    severity = "note" if word == "notice" else severity_of(word)
    return Read((Problem(said.get("file", ""), line, col, code, severity, message, "unknown"),), at + 1)


def _plain(text: str) -> str:
    return re.sub("|".join(_UNESCAPED), lambda match: _UNESCAPED[match[0]], text)


_SHELL = re.compile(r"([^\s:]{1,1000}): (?:line )?(\d{1,9}): (.+)")


def shell(log: Log, at: int) -> Read | None:
    """``file: line 5: message`` of bash, ``file: 5: message`` of dash."""
    match = _SHELL.match(log.lines[at]) if ": " in log.lines[at] else None
    if match is None or not looks_like_file(match[1], certain=False):
        return None
    return Read((Problem(match[1], int(match[2]), 0, "", "error", match[3].strip(), "shell"),), at + 1)


_ON_LINE = re.compile(r" (?:in|at) ([^\s:]{1,1000})(?:(?:,)? (?:on )?line (\d{1,9})|:(\d{1,9})$)")
_LEVEL = re.compile(r"\b(?:(warn)\w*|(notice|info|debug))\b", re.IGNORECASE)


def sentence(log: Log, at: int) -> Read | None:
    """``message in file on line 3``, ``message at file line 3.``, ``message in /etc/nginx/nginx.conf:3``."""
    line = log.lines[at]
    match = _ON_LINE.search(line) if " in " in line or " at " in line else None
    if match is None or not looks_like_file(match[1], certain=False):
        return None
    level = _LEVEL.search(line, 0, min(match.start(), 100))
    severity = severity_of("" if level is None else "warning" if level[1] else "note")
    message = line[: match.start()].strip()
    if message == "thrown":  # PHP says once more where
        return Read((), at + 1)
    return Read((Problem(match[1], int(match[2] or match[3]), 0, "", severity, message, "unknown"),), at + 1)
