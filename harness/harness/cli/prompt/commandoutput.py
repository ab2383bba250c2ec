"""Where slash commands print: on the surface of the prompt."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from .context import Output
from .printable import one_line, printable
from .surface import Surface
from .themes import Span, folded, line

__all__ = ["SurfaceOutput"]

GAP = 2
NARROW = 20
"""Columns below which nothing is put into lines of its own."""


class SurfaceOutput(Output):
    """See the module. Texts may be anything; what a terminal would obey is spelled out."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface

    def say(self, *lines: str) -> None:
        """Lines of a result."""
        parts = (line(part) for one in lines for part in printable(one).split("\n"))
        self._surface.show(*(row for part in parts for row in folded(part, self._surface.width - 1)))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table in aligned columns; the last one goes on below itself where the terminal ends."""
        cells = [[one_line(cell) for cell in row] for row in (headers, *rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(headers) - 1)]
        head, *below = (_row(row, widths, self._surface.width) for row in cells)
        self._surface.show(*(line(Span(one, "title")) for one in head), *(line(one) for row in below for one in row))

    def warn(self, text: str) -> None:
        """One line that says what is wrong, and what to do."""
        self._surface.show(*folded(line(Span(one_line(text), "warn")), self._surface.width - 1))


def _row(cells: Sequence[str], widths: Sequence[int], width: int) -> list[str]:
    """One row as lines. Pure."""
    before = "".join(cell.ljust(room + GAP) for cell, room in zip(cells, widths, strict=False))
    room = width - len(before)
    if room < NARROW or len(cells[-1]) <= room:
        return [f"{before}{cells[-1]}".rstrip()]
    first, *more = textwrap.wrap(cells[-1], room)
    return [f"{before}{first}", *(f"{' ' * len(before)}{one}" for one in more)]
