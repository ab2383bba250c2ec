"""Matching paths with a line of an ignore file as git does: byte by byte. Pure.

Texts represent bytes here, each as the character of its number. Names are matched one by one, each by an expression
without backtracking across its stars, so every line takes bounded time.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

__all__ = ["Names", "anchored_names", "bytewise", "last_name"]

Names = tuple[re.Pattern[str] | None, ...]
"""One expression for each name of a path; None matches any number of names, also none."""
_ANY, _NAMES = ".*", "**"
"""A star, and stars that are a whole name."""
_PRINTABLE = string.ascii_letters + string.digits + string.punctuation
_CLASSES = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": " \t",
    "cntrl": "".join(map(chr, (*range(32), 127))),
    "digit": string.digits,
    "graph": _PRINTABLE,
    "lower": string.ascii_lowercase,
    "print": f" {_PRINTABLE}",
    "punct": string.punctuation,
    "space": " \t\n\r",
    "upper": string.ascii_uppercase,
    "xdigit": string.hexdigits,
}
_BYTES = frozenset(map(chr, range(1, 256)))


def bytewise(text: str) -> str:
    """Return a text as its bytes, each as the character of its number."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


def last_name(pattern: str) -> Names | None:
    """Compile a pattern of last names; None if it matches nothing."""
    pieces = _pieces(pattern)
    return None if pieces is None else (_expression(pieces),)


def anchored_names(pattern: str) -> tuple[Names, ...]:
    """Compile a pattern of paths, in each way that it can be read; empty if it matches nothing."""
    found = (_names(reading) for reading in _readings(pattern))
    return tuple(names for names in found if names)


def _readings(pattern: str) -> Iterator[str]:
    """Yield the readings of ``**`` after letters, in the first name with a wildcard: it may match directories."""
    special = re.search(r"[*?[\\]", pattern)
    stars = re.compile(r"(?<=[^/])\*\*+(/|\Z)").match(pattern, special.start()) if special else None
    if special is None or stars is None:
        yield pattern
        return
    before, after = pattern[: special.start()], pattern[stars.end() :]
    yield f"{before}*/**{stars[1]}{after}"
    if not stars[1]:
        yield f"{before}*"
    elif after.startswith("**"):
        yield from _readings(f"{before}{after}")
    else:
        yield f"{before}{after}"


def _names(pattern: str) -> Names | None:
    pieces = _pieces(pattern)
    if pieces is None:
        return None
    names = [list(name) for is_slash, name in groupby(pieces, "/".__eq__) if not is_slash]
    if len(names) <= pieces.count("/"):
        return None  # one name is empty
    found = [None if name == [_NAMES] else _expression(name) for name in names]
    return (*found, _expression([_ANY])) if found[-1] is None else tuple(found)


def _expression(pieces: list[str]) -> re.Pattern[str]:
    """Compile pieces; text between two stars matches at its first occurrence, because no later one could do better."""
    fixed = [""]
    for piece in pieces:
        if piece in (_ANY, _NAMES):
            fixed.append("")
        else:
            fixed[-1] += piece
    first, *others = fixed
    inner = "".join(f"(?>.*?{part})" for part in others[:-1])
    last = f".*{others[-1]}" if others else ""
    return re.compile(f"(?s:{first}{inner}{last})\\Z")


def _pieces(pattern: str) -> list[str] | None:
    """Return an expression for each part, ``/`` at the end of a name; None if the pattern matches nothing."""
    found, at = [], 0
    while at < len(pattern):
        piece, at = _piece(pattern, at)
        if not piece:
            return None
        found.append(piece)
    return found


def _piece(pattern: str, at: int) -> tuple[str, int]:
    """Return the part that starts there, empty if it invalidates the pattern, and where the next one starts."""
    char = pattern[at]
    if char == "[":
        return _brackets(pattern, at + 1)
    if char == "*":
        end = at + len(pattern[at:]) - len(pattern[at:].lstrip("*"))
        is_name = end > at + 1 and pattern[at - 1 : at] in ("", "/") and pattern[end : end + 1] in ("", "/")
        return _NAMES if is_name else _ANY, end
    if char == "?":
        return ".", at + 1
    at += char == "\\"
    return re.escape(pattern[at : at + 1]), at + 1


class _Members(NamedTuple):
    """Some characters in brackets, the start of a possible range, and where the next member starts."""

    values: str
    low: str
    end: int


def _brackets(pattern: str, at: int) -> tuple[str, int]:
    """Return brackets as one expression, and where they end; empty if they do not end."""
    others = pattern[at : at + 1] in ("!", "^")
    at += others
    values, low, is_first = set("/") if others else set(), "", True
    while is_first or pattern[at : at + 1] != "]":
        found = _members(pattern, at, low)
        if found is None:
            return "", at
        values.update(found.values)
        is_first, low, at = False, found.low, found.end
    chosen = _BYTES - values if others else values - {"/"}
    return _one_of(chosen), at + 1


def _members(pattern: str, at: int, low: str) -> _Members | None:
    """Parse a member; None if the pattern ends, or names an unknown class."""
    char, following = pattern[at : at + 1], pattern[at + 1 : at + 2]
    if char == "[" and following == ":":
        end = pattern.find("]", at + 2)
        if end < 0:
            return None
        if end > at + 2 and pattern[end - 1] == ":":
            known = _CLASSES.get(pattern[at + 2 : end - 1])
            return None if known is None else _Members(known, "", end + 1)
    if char == "-" and low and following not in ("", "]"):
        high, end = _escaped(pattern, at + 1)
        return _Members("".join(map(chr, range(ord(low), ord(high) + 1))), "", end) if high else None
    char, end = _escaped(pattern, at)
    return _Members(char, char, end) if char else None


def _escaped(pattern: str, at: int) -> tuple[str, int]:
    at += pattern[at : at + 1] == "\\"
    return pattern[at : at + 1], at + 1


def _one_of(values: set[str] | frozenset[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(values)))}]" if values else "(?!)"
