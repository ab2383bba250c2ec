"""What is nearest to a text that is not in a file, for whoever has to write it again. Pure, and bounded in time."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["nearest"]

SEARCHED = 512 << 10
"""Bytes of a file that are looked at."""
WIDTH = 200
"""Characters of a line that are compared, and shown."""
CANDIDATES = 50
SIMILAR = 0.6


def nearest(data: bytes, text: bytes) -> str:
    """One or two sentences about the nearest place; empty when nothing is like it."""
    lines = _lines(data[:SEARCHED])
    wanted = _lines(text)
    first = next((number for number, line in enumerate(wanted) if line.strip()), None)
    if first is None:
        return ""
    wanted = wanted[first:]
    same = [number for number, line in enumerate(lines) if line == wanted[0]][:CANDIDATES]
    if same and len(wanted) > 1:
        return _where_it_ends(lines, wanted, same)
    spaces = _without_space(wanted[0])
    loose = next((number for number, line in enumerate(lines) if _without_space(line) == spaces), None)
    if loose is not None:
        return f"Line {loose + 1} differs in white space only: {lines[loose][:WIDTH]!r}."
    inside = next((number for number, line in enumerate(lines) if wanted[0].strip() in line), None)
    if inside is not None:
        return f"Its first line is in line {inside + 1}: {lines[inside][:WIDTH]!r}."
    return _most_alike(lines, wanted[0])


def _lines(data: bytes) -> list[str]:
    return [line.removesuffix("\r") for line in data.decode("utf-8", "surrogateescape").split("\n")]


def _without_space(line: str) -> str:
    return "".join(line.split())


def _where_it_ends(lines: Sequence[str], wanted: Sequence[str], starts: Sequence[int]) -> str:
    """The place that goes on longest as it should, and the line at which it does not."""
    start = max(starts, key=lambda at: _run(lines, wanted, at))
    run = _run(lines, wanted, start)
    number = start + run
    if number >= len(lines):
        return f"Lines {start + 1} to {number} are the same, and then the file ends."
    there, told = lines[number][:WIDTH], wanted[run][:WIDTH] if run < len(wanted) else ""
    return f"From line {start + 1} on it is the same up to line {number + 1}, which is {there!r} and not {told!r}."


def _run(lines: Sequence[str], wanted: Sequence[str], start: int) -> int:
    for run, line in enumerate(wanted):
        if start + run >= len(lines) or lines[start + run] != line:
            return run
    return len(wanted)


def _most_alike(lines: Sequence[str], wanted: str) -> str:
    """The line that shares most pairs of characters."""
    pairs = _pairs(wanted)
    best, likeness = -1, SIMILAR
    for number, line in enumerate(lines):
        other = _pairs(line)
        shared = 2 * len(pairs & other) / (len(pairs) + len(other)) if other else 0.0
        if shared > likeness:
            best, likeness = number, shared
    return f"The nearest line is {best + 1}: {lines[best][:WIDTH]!r}." if best >= 0 else ""


def _pairs(line: str) -> set[str]:
    text = line.strip()[:WIDTH]
    return {text[at : at + 2] for at in range(len(text) - 1)}
