"""Texts without the escape sequences of a terminal, which may stand in a secret or in its name."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from .secrets_tokens import Span

__all__ = ["PlainText", "open_escape", "plain_text"]

_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|\x1b[()*+][0-9A-Za-z]|\x1b[=>78cDEHM]"
    r"|[\x0e\x0f]|[^\n\x08]\x08"
)
"""Colors and the like, titles and links, character sets, and a letter that is struck over (``p\\bp`` is bold)."""
_OPEN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]{0,4096}\x1b?|[()*+])?\Z")


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text without its escape sequences, and where the rest of it was.

    Args:
        text: what is left.
        starts: where each piece of it begins in ``text``.
        shifts: how many characters were taken out before each piece.
        size: characters of the whole.
    """

    text: str
    starts: tuple[int, ...]
    shifts: tuple[int, ...]
    size: int

    def place(self, index: int) -> int:
        """Where that character was; the end of the whole for the end of the text."""
        if index >= len(self.text):
            return self.size
        return index + self.shifts[bisect_right(self.starts, index) - 1]

    def span(self, span: Span) -> Span:
        """Where that part was, with the sequences inside it."""
        return (self.place(span[0]), self.place(span[1] - 1) + 1) if span[0] < span[1] else (0, 0)


def plain_text(text: str) -> PlainText | None:
    """The text without its escape sequences; None when it has none. Pure."""
    if not any(sign in text for sign in "\x1b\x08\x0e\x0f"):
        return None
    pieces: list[str] = []
    starts, shifts = [], []
    done = length = 0
    for match in _ESCAPE.finditer(text):
        if match.start() > done:
            pieces.append(text[done : match.start()])
            starts.append(length)
            shifts.append(done - length)
            length += match.start() - done
        done = match.end()
    if done < len(text):
        pieces.append(text[done:])
        starts.append(length)
        shifts.append(done - length)
    plain = "".join(pieces)
    return PlainText(plain, tuple(starts), tuple(shifts), len(text)) if len(plain) < len(text) else None


def open_escape(text: str) -> int:
    """Where a sequence begins that has not ended; the length of the text when there is none. Pure."""
    begin = text.rfind("\x1b", max(0, len(text) - 4200))
    return begin if begin >= 0 and _OPEN.match(text, begin) else len(text)
