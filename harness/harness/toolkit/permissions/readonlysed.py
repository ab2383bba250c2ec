"""Whether a script of sed only prints: a parser of the part of its language that neither writes, runs nor reads."""

from __future__ import annotations

import re

__all__ = ["script_only_prints"]

_NUMBER = r"(?:[0-9]+(?:~[0-9]+)?|\$)"
_REGEX = r"/(?:[^/\\\n]|\\[^\n])+/I?"
_ADDRESS = rf"(?:{_NUMBER}|{_REGEX})"
_RANGE = re.compile(rf"[ \t]*(?:{_ADDRESS}(?:[ \t]*,[ \t]*(?:{_ADDRESS}|\+[0-9]+|~[0-9]+))?)?[ \t]*!?[ \t]*")
_COMMAND = re.compile(r"[pdPDNnhHgGxq=](?=[ \t]*(?:[;}\n]|\Z))|q[ \t]*[0-9]{1,3}(?=[ \t]*(?:[;}\n]|\Z))")
_SUBSTITUTE = re.compile(
    r"s(?P<mark>[/|#,:@!_%+])(?P<from>(?:(?!(?P=mark))[^\\\n]|\\[^\n])*)(?P=mark)"
    r"(?P<to>(?:(?!(?P=mark))[^\\\n]|\\[^\n])*)(?P=mark)(?P<flags>[gpIi0-9]*)(?=[ \t]*(?:[;}\n]|\Z))"
)
_TRANSLATE = re.compile(r"y/(?:[^/\\\n]|\\[^\n])*/(?:[^/\\\n]|\\[^\n])*/(?=[ \t]*(?:[;}\n]|\Z))")
_END = re.compile(r"[ \t]*[;\n]*[ \t]*")
_BRACKETS = re.compile(r"\[\^?\]?(?:[^\[\]]|\[:[a-z]+:\])*\]")
_LIMIT = 2_000


def script_only_prints(script: str) -> bool:
    """True when the whole script is understood, and nothing in it touches a file or runs a command. Pure."""
    if len(script) > _LIMIT:
        return False
    at, groups = 0, 0
    while at < len(script):
        if (match := _END.match(script, at)) and match.end() > at:
            at = match.end()
            continue
        if script[at] == "}":
            at, groups = at + 1, groups - 1
        else:
            at, opened = _one(script, at)
            groups += opened
        if at < 0 or groups < 0:
            return False
    return groups == 0


def _one(script: str, at: int) -> tuple[int, int]:
    """The end of one command, and whether it opens a group; -1 when it is not understood."""
    address = _RANGE.match(script, at)
    if address is None or not _whole_brackets(address[0]):
        return -1, 0
    at = address.end()
    if script.startswith("{", at):
        return at + 1, 1
    for pattern in (_COMMAND, _SUBSTITUTE, _TRANSLATE):
        match = pattern.match(script, at)
        if match is not None:
            fine = pattern is not _SUBSTITUTE or _whole_brackets(match["from"])
            return (match.end() if fine else -1), 0
    return -1, 0


def _whole_brackets(regex: str) -> bool:
    """No bracket is open at the end: versions of sed differ on whether a ``/`` in brackets ends the expression."""
    rest = re.sub(r"\\[^\n]", "", regex)
    rest = _BRACKETS.sub("", rest)
    return "[" not in rest
