"""Merge conflicts in a text: the blocks between markers, in the styles merge, diff3 and zdiff3."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Broken", "Conflict", "Found", "around", "lines_of", "scan"]

MARKER = 7
"""Letters of a marker, at least; git uses more for conflicts inside of conflicts, and where an attribute says so."""


class Conflict(NamedTuple):
    """One block. Lines count from 1; ``base`` is None where the style shows none."""

    line: int
    end_line: int
    ours_ref: str
    theirs_ref: str
    base_ref: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    base: tuple[str, ...] | None


class Broken(NamedTuple):
    """A marker that belongs to no whole block."""

    line: int
    ref: str
    problem: str


@dataclass(frozen=True, slots=True)
class Found:
    """What is in one text."""

    conflicts: tuple[Conflict, ...]
    broken: tuple[Broken, ...]


class _Marker(NamedTuple):
    letter: str
    size: int
    label: str


def lines_of(text: str) -> list[str]:
    """The lines, without what ends them; only a line feed, with or without a carriage return, ends one. Pure."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _marker(line: str) -> _Marker | None:
    letter = line[:1]
    if letter not in ("<", "|", "=", ">") or not line.startswith(letter * MARKER):
        return None
    label = line.lstrip(letter)
    if label and (letter == "=" or not label.startswith(" ")):
        return None
    return _Marker(letter, len(line) - len(label), label.strip())


@dataclass(slots=True)
class _Block:
    """A block whose end has not come. ``sides`` are keyed by the marker before them."""

    line: int
    size: int
    sides: dict[str, list[str]]
    labels: dict[str, str]
    last: str = "<"

    @classmethod
    def opened(cls, line: int, marker: _Marker) -> _Block:
        return cls(line, marker.size, {"<": []}, {"<": marker.label})

    def takes(self, marker: _Marker) -> bool:
        """Whether the marker goes on with this block; another one is a line like any other."""
        follows = {"<": "|=", "|": "=", "=": ">"}[self.last]
        return marker.size == self.size and marker.letter in follows

    def go_on(self, marker: _Marker) -> None:
        self.last = marker.letter
        self.sides[marker.letter], self.labels[marker.letter] = [], marker.label

    def conflict(self, end: int, theirs_ref: str) -> Conflict:
        base = self.sides.get("|")
        return Conflict(
            self.line,
            end,
            self.labels["<"],
            theirs_ref,
            self.labels.get("|", ""),
            tuple(self.sides["<"]),
            tuple(self.sides["="]),
            None if base is None else tuple(base),
        )

    def broken(self) -> Broken:
        missing = {"<": "=", "|": "=", "=": ">"}[self.last] * self.size
        return Broken(self.line, self.labels["<"], f"no {missing} follows")


@dataclass(slots=True)
class _Scan:
    conflicts: list[Conflict] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    block: _Block | None = None

    def line(self, number: int, line: str) -> None:
        marker = _marker(line)
        if marker is not None and marker.letter == "<" and self.block is None:
            self.block = _Block.opened(number, marker)
        elif marker is not None and self.block is None:
            self._stray(number, marker)
        elif marker is not None and self.block is not None:
            self._marked(number, line, marker, self.block)
        elif self.block is not None:
            self.block.sides[self.block.last].append(line)

    def _stray(self, number: int, marker: _Marker) -> None:
        """An end without a beginning; the other letters underline headings and draw tables."""
        if marker.letter == ">" and marker.size == MARKER and marker.label:
            self.broken.append(Broken(number, marker.label, f"no {'<' * MARKER} is before it"))

    def _marked(self, number: int, line: str, marker: _Marker, block: _Block) -> None:
        if marker.letter == "<" and marker.size == block.size:
            self.broken.append(block.broken())
            self.block = _Block.opened(number, marker)
        elif not block.takes(marker):
            block.sides[block.last].append(line)
        elif marker.letter == ">":
            self.conflicts.append(block.conflict(number, marker.label))
            self.block = None
        else:
            block.go_on(marker)

    def found(self) -> Found:
        rest = [self.block.broken()] if self.block is not None else []
        return Found(tuple(self.conflicts), (*self.broken, *rest))


def scan(lines: Iterable[str]) -> Found:
    """All blocks, and the markers that belong to none. In one pass; pure."""
    state = _Scan()
    for number, line in enumerate(lines, 1):
        state.line(number, line)
    return state.found()


def around(lines: Sequence[str], conflict: Conflict, count: int) -> tuple[list[str], list[str]]:
    """Up to ``count`` lines above and below a block, not beyond another marker. Pure."""
    above: list[str] = []
    for line in reversed(lines[max(0, conflict.line - 1 - count) : conflict.line - 1]):
        if _marker(line) is not None:
            break
        above.insert(0, line)
    below: list[str] = []
    for line in lines[conflict.end_line : conflict.end_line + count]:
        if _marker(line) is not None:
            break
        below.append(line)
    return above, below
