"""Finding a text in contents: exactly, or in either case, over the ends of lines of any kind. Pure."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

from .frames import text_of

__all__ = ["Hit", "Literal", "find_hits"]

WORD = b"[A-Za-z0-9_]"


@dataclass(frozen=True, slots=True)
class Hit:
    """A match: its lines, counted from 1, and those beside it, without their ends."""

    line: int
    end_line: int
    text: str
    before: tuple[bytes, ...] = ()
    after: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Literal:
    """A text to find. ``part`` is a text of one line that is in every file that holds it, for ``grep -F``."""

    expression: re.Pattern[bytes]
    part: str

    @classmethod
    def of(cls, text: str, *, folds: bool, whole_word: bool) -> Literal:
        """Read one. The expression has one way to match at each place, so no text takes long."""
        body = b"".join(_letter(char, folds=folds) for char in text.replace("\r\n", "\n"))
        whole = b"(?<!%s)%s(?!%s)" % (WORD, body, WORD) if whole_word else body
        lines = text.replace("\r\n", "\n").split("\n")
        parts = [part for line in lines for part in (re.split(r"[^\x01-\x7f]+", line) if folds else [line])]
        return cls(re.compile(whole), max(parts, key=len))


def _letter(char: str, *, folds: bool) -> bytes:
    if char == "\n":
        return rb"\r?\n"
    forms = [form for form in dict.fromkeys((char, char.lower(), char.upper())) if len(form) == 1] if folds else [char]
    encoded = [re.escape(form.encode("utf-8", "surrogateescape")) for form in forms]
    return encoded[0] if len(encoded) == 1 else b"(?:" + b"|".join(encoded) + b")"


def find_hits(literal: Literal, content: bytes, context: int = 0) -> list[Hit]:
    """The matches, one for each line in which one begins."""
    starts = [0, *(match.end() for match in re.finditer(rb"\n", content))]
    found: list[Hit] = []
    for match in literal.expression.finditer(content):
        first, last = _line(starts, match.start()), _line(starts, max(match.end() - 1, match.start()))
        if not found or found[-1].line != first + 1:
            found.append(_hit(content, starts, first, last, context))
    return found


def _line(starts: list[int], at: int) -> int:
    return bisect.bisect_right(starts, at) - 1


def _hit(content: bytes, starts: list[int], first: int, last: int, context: int) -> Hit:
    count = len(starts) - (starts[-1] == len(content))

    def line(number: int) -> bytes:
        end = starts[number + 1] if number + 1 < len(starts) else len(content)
        return content[starts[number] : end].removesuffix(b"\n").removesuffix(b"\r")

    text = "\n".join(text_of(line(number)) for number in range(first, last + 1))
    before = tuple(line(number) for number in range(max(0, first - context), first))
    after = tuple(line(number) for number in range(last + 1, min(count, last + 1 + context)))
    return Hit(first + 1, last + 1, text, before, after)
