"""Exact places of a text in the bytes of a file, whatever its line endings are. Pure, and linear in the file's size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = [
    "Change",
    "Endings",
    "Span",
    "apply_changes",
    "changes_at",
    "find_spans",
    "line_numbers",
    "overlapping",
    "size_after",
]

_WORD = frozenset(bytes([letter]) for letter in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
Span = tuple[int, int]
"""Begin and end, in bytes."""


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes ``start`` to ``end`` become ``new``."""

    start: int
    end: int
    new: bytes


def find_spans(data: bytes, text: bytes, most: int, *, words: bool = False) -> list[Span]:
    """Where ``text`` is, from the beginning on and without overlaps; ``most + 1`` places at most.

    A line end of ``text`` matches ``\\r\\n`` as well, unless ``text`` has a carriage return of its own. ``words``: only
    where there is no ASCII letter, digit or ``_`` on either side.
    """
    if b"\n" not in text or b"\r" in text or b"\r\n" not in data:
        return list(_literal(data, text, most, words=words))
    return _in_original(data, list(_literal(data.replace(b"\r\n", b"\n"), text, most, words=words)))


def overlapping(data: bytes, span: Span, text: bytes) -> Span | None:
    """Another place of ``text`` that begins within ``span``, the first of its places: ``aa`` is twice in ``aaa``."""
    start, end = span
    start += 2 if data.startswith(b"\r\n", start) else 1
    found = find_spans(data[start : end + 2 * len(text)], text, 0)
    if not found or start + found[0][0] >= end:
        return None
    return start + found[0][0], start + found[0][1]


def _literal(data: bytes, text: bytes, most: int, *, words: bool) -> Iterator[Span]:
    at = data.find(text)
    while at >= 0 and most >= 0:
        end = at + len(text)
        if words and (data[max(0, at - 1) : at] in _WORD or data[end : end + 1] in _WORD):
            at = data.find(text, at + 1)
            continue
        most -= 1
        yield at, end
        at = data.find(text, end)


def _in_original(data: bytes, spans: Sequence[Span]) -> list[Span]:
    """Places in the content whose ``\\r\\n`` are ``\\n``, as places in the content itself."""
    removed, next_pair = 0, data.find(b"\r\n")

    def original(place: int) -> int:
        nonlocal removed, next_pair
        while next_pair >= 0 and next_pair - removed < place:
            removed += 1
            next_pair = data.find(b"\r\n", next_pair + 2)
        return place + removed

    return [(original(start), original(end)) for start, end in spans]


def size_after(size: int, spans: Sequence[Span], new: bytes) -> int:
    """How many bytes a content has with ``new`` at each place; the ``\\r`` that some line ends get are not counted."""
    return size + len(spans) * len(new) - sum(end - start for start, end in spans)


class Endings:
    """How lines end in a content. Places are asked in ascending order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._mixed = b"\r\n" in data
        self._next = 0
        self._last: int | None = None

    def at(self, place: int) -> bytes:
        """The ending of the line that holds this place; of the line before, when it is the last and has none."""
        if not self._mixed:
            return b"\n"
        if 0 <= self._next < place or self._next == 0:
            self._next = self._data.find(b"\n", place)
        if self._next < 0 and self._last is None:
            self._last = self._data.rfind(b"\n", 0, place)
        newline = self._next if self._last is None else self._last
        return b"\r\n" if newline > 0 and self._data[newline - 1] == 0x0D else b"\n"

    def fitted(self, text: bytes, place: int) -> bytes:
        """A text with the line ends of that place, unless it has a carriage return of its own."""
        if b"\n" not in text or b"\r" in text or not self._mixed:
            return text
        return text.replace(b"\n", self.at(place))


def changes_at(data: bytes, spans: Iterable[Span], old: bytes, new: bytes) -> list[Change]:
    """``new`` at each place of ``old``, with the line ends of that place unless one of the two has a ``\\r``."""
    if b"\r" in old:
        return [Change(start, end, new) for start, end in spans]
    endings = Endings(data)
    before = _common(old, new)
    kept = before, _common(old[before:][::-1], new[before:][::-1])
    return [Change(start, end, _in_place(endings, data[start:end], start, new, kept)) for start, end in spans]


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two texts begin with alike."""
    both = enumerate(zip(one, other, strict=False))
    return next((at for at, (first, second) in both if first != second), min(len(one), len(other)))


def _in_place(endings: Endings, piece: bytes, start: int, new: bytes, kept: tuple[int, int]) -> bytes:
    """What a piece becomes. Where its lines end in both ways, those that do not change keep their ends.

    ``kept`` says how much of ``new`` is as it was, at its beginning and at its end.
    """
    pairs = piece.count(b"\r\n")
    if b"\r" in new or pairs in (0, piece.count(b"\n")):
        return endings.fitted(new, start)
    before, after = kept
    ((first, last),) = _in_original(piece, [(before, len(piece) - pairs - after)])
    return piece[:first] + endings.fitted(new[before : len(new) - after], start + first) + piece[last:]


def apply_changes(data: bytes, changes: Iterable[Change]) -> bytes:
    """The content with changes, which are in ascending order and do not overlap."""
    parts: list[bytes] = []
    done = 0
    for change in changes:
        parts += [data[done : change.start], change.new]
        done = change.end
    return b"".join([*parts, data[done:]])


def line_numbers(data: bytes, places: Iterable[int]) -> list[int]:
    """The lines, counted from 1, of places in ascending order."""
    numbers, line, done = [], 1, 0
    for place in places:
        line += data.count(b"\n", done, place)
        done = place
        numbers.append(line)
    return numbers
