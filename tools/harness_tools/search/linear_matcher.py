"""Matching regular expressions locally in linear time, so that a model's pattern cannot block the process.

It is an automaton whose states are created on demand; its memory is bounded, because too many states are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from .regular_expressions import WORD, Alternatives, Assertion, Bytes, Expression, Node, Repeat, Sequence

__all__ = ["Matcher"]

STATES = 2_000
Near = Literal["edge", "word", "other"]
"""The neighbor of a position: nothing or a line end, a letter of a word, anything else."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One instruction: a set of bytes, an assertion, or otherwise a choice of the next ones, in order of priority."""

    then: tuple[int, ...]
    values: frozenset[int] | None = None
    kind: str = ""


_Kernel = tuple[int, ...]


class Matcher:
    """A compiled expression."""

    def __init__(self, expression: Expression) -> None:
        self._folds = expression.folds
        self._steps: list[_Step] = [_Step(())]  # step 0 is the match
        self._start = self._compile(expression.node, 0)
        self._known: dict[tuple[_Kernel, Near, int], _Kernel | None] = {}

    def found_in(self, line: bytes) -> bool:
        """Return whether a line, without its end, contains a match."""
        kernel: _Kernel = (self._start,)
        before: Near = "edge"
        for byte in line:
            key = (kernel, before, byte)
            following = self._known[key] if key in self._known else self._learn(key)
            if following is None:
                return True
            kernel, before = following, _near(byte)
        return 0 in self._closure(kernel, before, "edge")

    def spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Yield start and end of each match, from left to right without overlaps, with the priorities of Perl."""
        at = 0
        while at <= len(text):
            found = self._first(text, at)
            if found is None:
                return
            yield found
            at = max(found[1], found[0] + 1)

    def _first(self, text: bytes, start: int) -> tuple[int, int] | None:
        threads: dict[int, int] = {}
        best: tuple[int, int] | None = None
        for at in range(start, len(text) + 1):
            if best is None:
                threads.setdefault(self._start, at)
            before = _near(text[at - 1]) if at else "edge"
            after = _near(text[at]) if at < len(text) else "edge"
            following: dict[int, int] = {}
            for place, begin in self._followed(threads, before, after):
                if place == 0:
                    best = (begin, at)
                    break
                step = self._steps[place]
                if at < len(text) and step.values is not None and text[at] in step.values:
                    following.setdefault(step.then[0], begin)
            threads = following
            if not threads and best is not None:
                return best
        return best

    def _followed(self, threads: dict[int, int], before: Near, after: Near) -> Iterator[tuple[int, int]]:
        seen: set[int] = set()
        for place, begin in threads.items():
            for found in self._closure((place,), before, after):
                if found not in seen:
                    seen.add(found)
                    yield found, begin

    def _learn(self, key: tuple[_Kernel, Near, int]) -> _Kernel | None:
        """Return the state that follows after a byte; None if the state already matches."""
        kernel, before, byte = key
        closure = self._closure(kernel, before, _near(byte))
        following: _Kernel | None = None
        if 0 not in closure:
            places = [
                step.then[0]
                for step in (self._steps[place] for place in closure)
                if step.values is not None and byte in step.values
            ]
            following = tuple(sorted({*places, self._start}))
        if len(self._known) > STATES * 64:
            self._known.clear()
        self._known[key] = following
        return following

    def _closure(self, kernel: _Kernel, before: Near, after: Near) -> list[int]:
        """Return the steps that wait for a byte, or the match, in order of priority."""
        found: list[int] = []
        seen: set[int] = set()
        waiting = list(reversed(kernel))
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            step = self._steps[place]
            if place == 0 or step.values is not None:
                found.append(place)
            elif not step.kind or _holds(step.kind, before, after):
                waiting += reversed(step.then)
        return found

    def _add(self, step: _Step) -> int:
        self._steps.append(step)
        return len(self._steps) - 1

    def _compile(self, node: Node, then: int) -> int:
        """Return the first step that matches the node and continues with ``then``."""
        if isinstance(node, Bytes):
            return self._add(_Step((then,), self._folded(node.values)))
        if isinstance(node, Assertion):
            return self._add(_Step((then,), kind=node.kind))
        if isinstance(node, Sequence):
            for item in reversed(node.items):
                then = self._compile(item, then)
            return then
        if isinstance(node, Alternatives):
            return self._add(_Step(tuple(self._compile(item, then) for item in node.items)))
        return self._repeated(node, then)

    def _folded(self, values: frozenset[int]) -> frozenset[int]:
        if not self._folds:
            return values
        return values | {byte ^ 32 for byte in values if 65 <= byte & 0xDF < 91 and byte < 128}

    def _repeated(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self._add(_Step(()))
            inside = self._compile(node.item, loop)
            self._steps[loop] = _Step((then, inside) if node.lazy else (inside, then))
            first = loop
        else:
            first = then
            for _ in range(node.most - node.least):
                inside = self._compile(node.item, first)
                first = self._add(_Step((then, inside) if node.lazy else (inside, then)))
        for _ in range(node.least):
            first = self._compile(node.item, first)
        return first


def _near(byte: int) -> Near:
    return "word" if byte in WORD else "edge" if byte == 10 else "other"


def _holds(kind: str, before: Near, after: Near) -> bool:
    if kind == "^":
        return before == "edge"
    if kind == "$":
        return after == "edge"
    differ = (before == "word") != (after == "word")
    return differ if kind == "b" else not differ
