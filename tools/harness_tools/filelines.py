"""Lines of a file, taken from a window of its bytes. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .encodings import decode_part, decode_text

__all__ = ["LINE_SHOWN", "Cut", "Lines", "Window", "line_start", "take_lines"]

LINE_SHOWN = 2_000
"""Bytes of a line that are shown."""
NUMBER_WIDTH = 6


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes of a file from the beginning of a line.

    ``first`` is that line's number, ``start`` its offset in the file, and ``complete`` says that the file ends with
    the window.
    """

    data: bytes
    first: int = 1
    start: int = 0
    complete: bool = True
    encoding: str = "utf-8"


@dataclass(frozen=True, slots=True)
class Cut:
    """A line of which only the beginning is shown; the rest begins at byte ``offset`` of the file."""

    line: int
    offset: int


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines as they are shown. ``end`` is the offset behind the last one; ``ended``: there is no line after it.

    ``seen`` are the ranges of bytes that are shown: all from the first line on, but for the rests of cut lines.
    """

    text: str
    first: int
    count: int
    end: int
    seen: tuple[tuple[int, int], ...]
    ended: bool
    cuts: tuple[Cut, ...] = ()

    @property
    def last(self) -> int:
        """The number of the last line; ``first - 1`` when there is none."""
        return self.first + self.count - 1


def line_start(data: bytes, line: int) -> int | None:
    """Where a line begins, counted from 1; None when ``data`` has not that many newlines."""
    at = 0
    for _ in range(line - 1):
        at = data.find(b"\n", at) + 1
        if at == 0:
            return None
    return at


def take_lines(window: Window, limit: int, room: int, *, numbers: bool, measure: Callable[[str], int] = len) -> Lines:
    """The first ``limit`` lines of a window, and no more than ``room`` as ``measure`` counts, but one line at least.

    A line that the window does not hold to its end is left for the next time, unless it is the first.
    """
    data, at, parts, cuts = window.data, 0, list[str](), list[Cut]()
    seen, shown_from = list[tuple[int, int]](), window.start
    while at < len(data) and len(parts) < limit:
        end = data.find(b"\n", at) + 1
        if end == 0 and parts and not window.complete:
            break
        number = window.first + len(parts)
        text, cut = _line(window, at, end)
        text = f"{number:{NUMBER_WIDTH}d}\t{text}" if numbers else text
        if parts and measure(text) > room:
            break
        parts.append(text)
        room -= measure(text)
        if cut:
            cuts.append(Cut(number, window.start + at + cut))
            seen.append((shown_from, window.start + at + cut))
            shown_from = window.start + (end or len(data))
        at = end or len(data)
    seen.append((shown_from, window.start + at))
    ended = window.complete and at >= len(data)
    return Lines("".join(parts), window.first, len(parts), window.start + at, tuple(seen), ended, tuple(cuts))


def _line(window: Window, at: int, end: int) -> tuple[str, int]:
    """One line as it is shown, and when it is cut, how many bytes of it are. ``end`` 0: its newline is not there."""
    data = window.data
    newline = 1 if end else 0
    stop = (end or len(data)) - newline
    if stop - at <= LINE_SHOWN and (end or window.complete):
        return decode_text(data[at:stop], window.encoding) + "\n" * newline, 0
    text, shown = decode_part(data[at : min(stop, at + LINE_SHOWN)], window.encoding)
    least = "" if end or window.complete else "at least "
    return f"{text} [... {least}{stop - at - shown} more bytes of this line]\n", shown
