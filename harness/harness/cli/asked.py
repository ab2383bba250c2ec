"""How the texts of a question stand on a terminal: every row of them is marked, so that none passes for one of ours."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from ..toolkit.permissions.lookalikes import is_blank

__all__ = ["NARROWEST", "SAID", "previewed", "quoted", "said", "wrapped"]

FIRST, FURTHER = "  | ", "  ¦ "
"""Before a line of somebody else's text, and before each further row of the same line."""
SAID = 300
"""Characters of what a caller says of its call: more would only push the call off the screen."""
NARROWEST = 20
"""Columns that are used at least."""


def quoted(text: str, width: int, *, first: str = FIRST, further: str = FURTHER) -> list[str]:
    """The whole text in rows of at most ``width`` columns; only its line feeds end a line. Pure."""
    room = max(width, NARROWEST) - len(first) - 1
    lines = text.removesuffix("\n").split("\n")
    return [
        (further if number else first) + row for line in lines for number, row in enumerate(_rows(_seen(line), room))
    ]


def previewed(preview: str, width: int) -> list[str]:
    """The rows of a preview: those of the caller's text, which begin with ``| ``, and ours. Pure."""
    rows: list[str] = []
    for line in preview.split("\n") if preview else []:
        theirs = line.startswith("| ")
        marks = (FIRST, FURTHER) if theirs else ("  ", "    ")
        rows += quoted(line.removeprefix("| ") if theirs else line, width, first=marks[0], further=marks[1])
    return rows


def said(text: str, limit: int = SAID) -> str:
    """What somebody says, in one line, and how much of it is left out. Pure."""
    joined = " ".join(_seen(" ".join(text.split())).split())
    left = len(joined) - limit
    return joined if left <= 0 else f"{joined[:limit]} … {left} more character{'' if left == 1 else 's'}"


def wrapped(text: str, width: int) -> list[str]:
    """Break a text of harness at spaces; a word wider than ``width`` columns is broken where it must be. Pure."""
    rows: list[str] = []
    for word in text.split(" "):
        if rows and _columns(rows[-1]) + 1 + _columns(word) <= max(width, 1):
            rows[-1] += f" {word}"
        else:
            rows += _rows(word, max(width, 1))
    return rows


def _columns(text: str) -> int:
    return len(text) + sum(unicodedata.east_asian_width(char) in "WF" for char in text)


def _seen(line: str) -> str:
    """What is no character to see is spelled out; a tab is blanks."""
    if line.isascii() and line.isprintable():
        return line
    safe = "".join(char if char == "\t" else _named(char) for char in line)
    return safe.encode("utf-8", "backslashreplace").decode().expandtabs(4)


def _named(char: str) -> str:
    if not char.isprintable():
        return repr(char)[1:-1]
    return char.encode("ascii", "backslashreplace").decode() if is_blank(char) else char


def _rows(line: str, room: int) -> Iterator[str]:
    if line.isascii():
        yield from (line[start : start + room] for start in range(0, len(line) or 1, room))
        return
    row, used = "", 0
    for char in line:
        columns = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if used + columns > room:
            yield row
            row, used = "", 0
        row, used = row + char, used + columns
    yield row
