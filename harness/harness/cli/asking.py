"""How the texts of a question stand on a terminal: every row of them is marked, so that none passes for one of ours."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from ..toolkit.permissions.lookalikes import is_blank

__all__ = ["NARROWEST", "SAID", "columns_of", "fitted", "previewed", "quoted", "said", "wrapped"]

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
        if line.startswith("| "):
            rows += quoted(line.removeprefix("| "), width)
        else:
            room = max(width, NARROWEST) - 3
            ours = wrapped(_seen(line), room if columns_of(_seen(line)) <= room else room - 2)
            rows += [f"{'    ' if number else '  '}{row}" for number, row in enumerate(ours)]
    return rows


def said(text: str, limit: int = SAID) -> str:
    """What somebody says, in one line, and how much of it is left out. Pure."""
    joined = " ".join(_seen(" ".join(text.split())).split())
    left = len(joined) - limit
    return joined if left <= 0 else f"{joined[:limit]} … {left} more character{'' if left == 1 else 's'}"


def fitted(text: str, width: int) -> str:
    """Shorten what somebody says to one row of ``width`` columns, at a space where there is one. Pure.

    Returns:
        The whole text if it fits, else its beginning, and how much is left out.
    """
    joined = " ".join(_seen(" ".join(text.split())).split())
    if columns_of(joined) <= width:
        return joined
    room = max(width - len(f" … {len(joined)} more"), 1)
    row = next(_rows(joined, room))
    cut = row if joined[len(row) : len(row) + 1] == " " else row.rpartition(" ")[0] or row
    return f"{cut.rstrip()} … {len(joined) - len(cut)} more"


def wrapped(text: str, width: int) -> list[str]:
    """Break a text of harness at spaces; a word wider than ``width`` columns is broken where it must be. Pure."""
    rows: list[str] = []
    for word in text.split(" "):
        if rows and columns_of(rows[-1]) + 1 + columns_of(word) <= max(width, 1):
            rows[-1] += f" {word}"
        else:
            rows += _rows(word, max(width, 1))
    return rows


def columns_of(text: str) -> int:
    """Count the columns that a printable text takes on a terminal. Pure."""
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
