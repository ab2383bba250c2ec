"""One replacement in the content of one file: which places, and what is written there. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..matching import Change, Span, changes_at, find_spans, line_numbers, size_after

__all__ = ["MADE", "MOST", "Found", "Replacement", "folded"]

MOST = 100_000
"""Places of one file that are replaced."""
MADE = 64 << 20
"""Bytes of a file after the change."""


@dataclass(frozen=True, slots=True)
class Found:
    """The changes of one content, the lines that they touch, and how many places were left out by ``exclude``.

    ``size`` is what the content comes to, in bytes; there are no changes when that is too much.
    """

    changes: tuple[Change, ...]
    lines: int
    excluded: int = 0
    size: int = 0

    @property
    def too_many(self) -> bool:
        """There are more than can be replaced."""
        return len(self.changes) > MOST

    @property
    def too_big(self) -> bool:
        """The file would be too large afterwards."""
        return self.size > MADE


@dataclass(frozen=True, slots=True)
class Replacement:
    """A literal text, and what is written in its place.

    ``folds``: letters of either case are the same. ``words``: no ASCII letter, digit or ``_`` on either side.
    ``exclude``: nothing is replaced in lines that hold one of these texts.
    """

    search: bytes
    replace: bytes
    folds: bool = False
    words: bool = False
    exclude: tuple[bytes, ...] = ()

    @property
    def name(self) -> str:
        """The same for equal replacements."""
        parts = [self.search.hex(), self.replace.hex(), self.folds, self.words, [text.hex() for text in self.exclude]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @property
    def part(self) -> bytes:
        """A text of one line that is in every file that is changed, for ``grep -F``; empty when there is none."""
        lines = self.search.split(b"\n")
        if self.folds:
            lines = [run for line in lines for run in _ascii_runs(line)]
        return max(lines, key=len)

    def find(self, data: bytes) -> Found:
        """What it changes in a content."""
        if self.folds:
            plain = data.lower() if self.search.isascii() else folded(data)
            text = self.search.lower() if self.search.isascii() else folded(self.search)
            spans = find_spans(plain, text, MOST, words=self.words)
        else:
            spans = find_spans(data, self.search, MOST, words=self.words)
        kept = list(_allowed(data, spans, self.exclude)) if self.exclude else spans
        size, excluded = size_after(len(data), kept, self.replace), len(spans) - len(kept)
        if size > MADE:
            return Found((), 0, excluded, size)
        changes = changes_at(data, kept, self.search, self.replace)
        return Found(tuple(changes), _touched(data, kept), excluded, size)


def _ascii_runs(line: bytes) -> list[bytes]:
    return bytes(byte if byte < 0x80 else 0x0A for byte in line).split(b"\n")


def folded(data: bytes) -> bytes:
    """A content of the same length, in small letters; those that are longer or shorter when small stay as they are."""
    text = data.decode("utf-8", "surrogateescape")
    small = {letter: letter.lower() for letter in set(text)}
    table = {
        ord(letter): lower
        for letter, lower in small.items()
        if lower != letter and len(lower.encode()) == len(letter.encode())
    }
    return text.translate(table).encode("utf-8", "surrogateescape")


def _allowed(data: bytes, spans: Sequence[Span], exclude: Sequence[bytes]) -> Iterator[Span]:
    """The places in lines that hold none of the texts."""
    end, refused = -1, False
    for span in spans:
        if span[1] > end or span[0] >= end:
            start = data.rfind(b"\n", 0, span[0]) + 1
            end = data.find(b"\n", max(span[0], span[1] - 1)) + 1 or len(data)
            line = data[start:end]
            refused = any(text in line for text in exclude)
        if not refused:
            yield span


def _touched(data: bytes, spans: Sequence[Span]) -> int:
    """How many lines the places are in."""
    lines, last = 0, 0
    for (start, end), first in zip(spans, line_numbers(data, [start for start, _ in spans]), strict=True):
        to = first + data.count(b"\n", start, max(start, end - 1))
        lines += max(0, to - max(first, last + 1) + 1)
        last = max(last, to)
    return lines
