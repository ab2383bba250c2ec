"""What the search scripts printed, as counts and lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .frames import Tree, text_of

__all__ = ["Counted", "Line", "counts_of", "lines_of", "stdin_of"]

_NUMBERED = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)
SEPARATOR = b"--"
TEXT = 2_000
"""Bytes of a line that are kept, whatever searched."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A file and how often the expression is in it. ``name`` is as the scripts write it."""

    path: str
    count: int
    name: bytes


@dataclass(frozen=True, slots=True)
class Line:
    """A line that matches, or one beside it. ``text`` is the beginning of a long one (``is_cut``)."""

    number: int
    text: bytes
    is_match: bool
    is_cut: bool = False

    @classmethod
    def of(cls, number: int, text: bytes, *, is_match: bool) -> Line:
        """A line, or the beginning of it."""
        return cls(number, text[:TEXT], is_match, len(text) > TEXT)


def counts_of(tree: Tree, limit: int) -> tuple[list[Counted], bool]:
    """The files, by path, and whether there are more than were carried."""
    data = tree.other.get("L", [b""])[0]
    is_cut = len(data) > limit  # the shell ends it with one more newline
    lines = data.split(b"\n")
    if is_cut:
        lines = lines[:-2]
    found = []
    for line in lines:
        name, mark, count = line.rpartition(b"\x01")
        if mark and count.isdigit() and count != b"0":
            path = text_of(name.replace(b"\x02", b"\n").removeprefix(b"./"))
            found.append(Counted(path, int(count), name))
    return sorted(found, key=lambda file: file.path.encode("utf-8", "surrogateescape")), is_cut


def stdin_of(files: list[Counted]) -> bytes:
    """The files, for the script that shows lines of those that it is told."""
    return b"".join(b"%s\x01%d\n" % (file.name, file.count) for file in files)


def lines_of(data: bytes, limit: int) -> dict[str, list[Line]]:
    """The lines by path. The last one is left out when there may be more of it."""
    if len(data) >= limit:
        data = data[: data.rfind(b"\n") + 1]
    found: dict[str, list[Line]] = {}
    for name, line in _records(data):
        match = _NUMBERED.match(line)
        if match:
            path = text_of(name.removeprefix(b"./"))
            found.setdefault(path, []).append(Line.of(int(match[1]), match[3], is_match=match[2] == b":"))
    return found


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and line. Names are before each line, with newlines as they are, or above their lines."""
    waiting: list[bytes] = []
    heading: bytes | None = None
    for line in data.split(b"\n"):
        if line.startswith(b"\x01"):
            heading, waiting = line[1:].replace(b"\x02", b"\n"), []
        elif heading is not None:
            yield heading, line
        elif b"\x01" in line:
            name, _, rest = line.partition(b"\x01")
            yield b"\n".join([*waiting, name]), rest
            waiting = []
        elif line != SEPARATOR or waiting:
            waiting.append(line)
