"""Changes of a text: exact matches, the nearest match, and the unified diff. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

__all__ = [
    "DIFF_SHOWN",
    "Change",
    "Endings",
    "Span",
    "apply_changes",
    "changes_at",
    "diff_of",
    "find_spans",
    "line_numbers",
    "nearest",
    "overlapping",
    "size_after",
]


# -- Exact matches of a text in the bytes of a file, with any line endings. Pure, and linear in the file's size.


_WORD = frozenset(bytes([letter]) for letter in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
Span = tuple[int, int]
"""Start and end, in bytes."""


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes ``start`` to ``end`` become ``new``."""

    start: int
    end: int
    new: bytes


def find_spans(data: bytes, text: bytes, most: int, *, words: bool = False) -> list[Span]:
    """Return where ``text`` is, in order and without overlaps; at most ``most + 1`` matches.

    A line end of ``text`` also matches ``\\r\\n``, unless ``text`` contains a carriage return. ``words``: only if no
    ASCII letter, digit or ``_`` is on either side.
    """
    if b"\n" not in text or b"\r" in text or b"\r\n" not in data:
        return list(_literal(data, text, most, words=words))
    return _in_original(data, list(_literal(data.replace(b"\r\n", b"\n"), text, most, words=words)))


def overlapping(data: bytes, span: Span, text: bytes) -> Span | None:
    """Return another match of ``text`` that starts within its first match ``span``: ``aaa`` contains ``aa`` twice."""
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
    """Convert positions in the content with ``\\n`` for ``\\r\\n`` to positions in the content itself."""
    removed, next_pair = 0, data.find(b"\r\n")

    def original(place: int) -> int:
        nonlocal removed, next_pair
        while next_pair >= 0 and next_pair - removed < place:
            removed += 1
            next_pair = data.find(b"\r\n", next_pair + 2)
        return place + removed

    return [(original(start), original(end)) for start, end in spans]


def size_after(size: int, spans: Sequence[Span], new: bytes) -> int:
    """Return the size of a content with ``new`` at each match, without the ``\\r`` that some line ends get."""
    return size + len(spans) * len(new) - sum(end - start for start, end in spans)


class Endings:
    """Line endings of a content; positions must be queried in ascending order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._mixed = b"\r\n" in data
        self._next = 0
        self._last: int | None = None

    def at(self, place: int) -> bytes:
        """Return the ending of the line at this position; of the line before if the last line has none."""
        if not self._mixed:
            return b"\n"
        if 0 <= self._next < place or self._next == 0:
            self._next = self._data.find(b"\n", place)
        if self._next < 0 and self._last is None:
            self._last = self._data.rfind(b"\n", 0, place)
        newline = self._next if self._last is None else self._last
        return b"\r\n" if newline > 0 and self._data[newline - 1] == 0x0D else b"\n"

    def fitted(self, text: bytes, place: int) -> bytes:
        """Return a text with the line ends of that position, unless it contains a carriage return."""
        if b"\n" not in text or b"\r" in text or not self._mixed:
            return text
        return text.replace(b"\n", self.at(place))


def changes_at(data: bytes, spans: Iterable[Span], old: bytes, new: bytes) -> list[Change]:
    """Return ``new`` at each match of ``old``, with the line ends of that place unless one of the two has a ``\\r``."""
    if b"\r" in old:
        return [Change(start, end, new) for start, end in spans]
    endings = Endings(data)
    before = _common(old, new)
    kept = before, _common(old[before:][::-1], new[before:][::-1])
    return [Change(start, end, _in_place(endings, data[start:end], start, new, kept)) for start, end in spans]


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix of two byte strings."""
    both = enumerate(zip(one, other, strict=False))
    return next((at for at, (first, second) in both if first != second), min(len(one), len(other)))


def _in_place(endings: Endings, piece: bytes, start: int, new: bytes, kept: tuple[int, int]) -> bytes:
    """Return the replacement of a piece; in one with mixed line ends, unchanged lines keep theirs.

    ``kept`` is how much of ``new`` is unchanged at its start and at its end.
    """
    pairs = piece.count(b"\r\n")
    if b"\r" in new or pairs in (0, piece.count(b"\n")):
        return endings.fitted(new, start)
    before, after = kept
    ((first, last),) = _in_original(piece, [(before, len(piece) - pairs - after)])
    return piece[:first] + endings.fitted(new[before : len(new) - after], start + first) + piece[last:]


def apply_changes(data: bytes, changes: Iterable[Change]) -> bytes:
    """Return the content with changes, which are in ascending order and do not overlap."""
    parts: list[bytes] = []
    done = 0
    for change in changes:
        parts += [data[done : change.start], change.new]
        done = change.end
    return b"".join([*parts, data[done:]])


def line_numbers(data: bytes, places: Iterable[int]) -> list[int]:
    """Return the line numbers, counted from 1, of positions in ascending order."""
    numbers, line, done = [], 1, 0
    for place in places:
        line += data.count(b"\n", done, place)
        done = place
        numbers.append(line)
    return numbers


# -- The text nearest to one that is not in a file. Pure, and bounded in time.


SEARCHED = 512 << 10
"""Maximum bytes of a file that are searched."""
WIDTH = 200
"""Maximum characters of a line that are compared, and shown."""
CANDIDATES = 50
SIMILAR = 0.6


def nearest(data: bytes, text: bytes) -> str:
    """Return one or two sentences about the nearest match; empty if nothing is similar."""
    lines = _lines_of(data[:SEARCHED])
    wanted = _lines_of(text)
    first = next((number for number, line in enumerate(wanted) if line.strip()), None)
    if first is None:
        return ""
    wanted = wanted[first:]
    same = [number for number, line in enumerate(lines) if line == wanted[0]][:CANDIDATES]
    if same and len(wanted) > 1:
        return _first_difference(lines, wanted, same)
    spaces = _without_space(wanted[0])
    loose = next((number for number, line in enumerate(lines) if _without_space(line) == spaces), None)
    if loose is not None:
        return f"Line {loose + 1} differs in white space only: {lines[loose][:WIDTH]!r}."
    inside = next((number for number, line in enumerate(lines) if wanted[0].strip() in line), None)
    if inside is not None:
        return f"Its first line is in line {inside + 1}: {lines[inside][:WIDTH]!r}."
    return _most_alike(lines, wanted[0])


def _lines_of(data: bytes) -> list[str]:
    return [line.removesuffix("\r") for line in data.decode("utf-8", "surrogateescape").split("\n")]


def _without_space(line: str) -> str:
    return "".join(line.split())


def _first_difference(lines: Sequence[str], wanted: Sequence[str], starts: Sequence[int]) -> str:
    """Describe the longest partial match, and the line at which it differs."""
    start = max(starts, key=lambda at: _run(lines, wanted, at))
    run = _run(lines, wanted, start)
    number = start + run
    if number >= len(lines):
        return f"Lines {start + 1} to {number} are the same, and then the file ends."
    there, told = lines[number][:WIDTH], wanted[run][:WIDTH] if run < len(wanted) else ""
    return f"It matches from line {start + 1} up to line {number + 1}, which is {there!r} instead of {told!r}."


def _run(lines: Sequence[str], wanted: Sequence[str], start: int) -> int:
    for run, line in enumerate(wanted):
        if start + run >= len(lines) or lines[start + run] != line:
            return run
    return len(wanted)


def _most_alike(lines: Sequence[str], wanted: str) -> str:
    """Describe the line that shares most pairs of characters."""
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


# -- Changes of a file as a unified diff, made from the changed positions. Pure.


CONTEXT = 3
DIFF_SHOWN = 10_000
"""Maximum characters of a diff that are shown."""
LINE_SHOWN = 500
SMALL = 200
"""Maximum lines of a region in which unchanged lines are searched."""
LARGE = 64 << 10
"""Bytes of a region of which more is not looked at."""
NEWLINE = 0x0A


@dataclass(frozen=True, slots=True)
class Diff:
    """A unified diff: ``text`` lacks the omitted hunks, ``hunks`` counts all; ``added`` and ``removed`` are lines."""

    text: str
    hunks: int
    left_out: int
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class _Region:
    """Whole lines that change; ``line`` is the number of the first, ``delta`` the number of lines added before it."""

    start: int
    end: int
    new: bytes
    line: int
    delta: int


def diff_of(before: bytes, changes: Sequence[Change], path: str, room: int = DIFF_SHOWN) -> Diff:
    """Return the diff of a content and its changes, which are in ascending order and do not overlap."""
    name = path if path.isprintable() else ascii(path)
    parts = [f"--- {name}\n+++ {name}\n"]
    added = removed = hunks = left_out = 0
    for hunk in _hunks(before, list(_regions(before, changes))):
        text, more, less = ("", *_counted(before, hunk)) if left_out else _rendered(before, hunk)
        added, removed, hunks = added + more, removed + less, hunks + 1
        if left_out or (len(text) > room and hunks > 1):
            left_out += 1
        else:
            parts.append(text if len(text) <= room else _cut(text, room))
            room -= len(text)
    if left_out:
        parts.append(f"[{left_out} of {hunks} hunks are not shown]\n")
    return Diff("".join(parts) if hunks else "", hunks, left_out, added, removed)


def _cut(text: str, room: int) -> str:
    end = text.rfind("\n", 0, room) + 1
    return f"{text[:end]}[{text.count(chr(10), end)} more lines of this hunk are not shown]\n"


def _regions(before: bytes, changes: Sequence[Change]) -> Iterator[_Region]:
    line, done, delta, at = 1, 0, 0, 0
    while at < len(changes):
        start = before.rfind(b"\n", 0, changes[at].start) + 1
        line += before.count(b"\n", done, start)
        done = start
        at, end, new = _region(before, changes, at, start)
        yield _Region(start, end, new, line, delta)
        delta += _count(new) - before.count(b"\n", start, end) - (end > start and before[end - 1] != NEWLINE)


def _region(before: bytes, changes: Sequence[Change], first: int, start: int) -> tuple[int, int, bytes]:
    """Return the index of the next change outside the region, the region's end, and its new content."""
    at, end = first + 1, _line_end(before, start, changes[first])
    while True:
        while at < len(changes) and _touches(before, end, changes[at].start):
            if changes[at].end >= end:
                end = _line_end(before, start, changes[at])
            at += 1
        moved = [Change(one.start - start, one.end - start, one.new) for one in changes[first:at]]
        new = apply_changes(before[start:end], moved)
        if not new or new.endswith(b"\n") or end >= len(before):
            return at, end, new
        end = before.find(b"\n", end) + 1 or len(before)  # the new text joins the next line


def _touches(before: bytes, end: int, place: int) -> bool:
    """Return whether a position is in the lines that end there; the last line of a file may lack a newline."""
    return place < end or (place == end and end > 0 and before[end - 1] != NEWLINE)


def _line_end(before: bytes, start: int, change: Change) -> int:
    """Return the end of the last line that a change touches, including a line that the new text joins."""
    whole_lines = change.end == 0 or before[change.end - 1] == NEWLINE
    at_start = change.start == start or before[change.start - 1] == NEWLINE
    if whole_lines and (change.new.endswith(b"\n") if change.new else at_start):
        return change.end
    return before.find(b"\n", change.end) + 1 or len(before)


def _count(data: bytes) -> int:
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


def _hunks(before: bytes, regions: Sequence[_Region]) -> Iterator[list[_Region]]:
    """Yield hunks: regions whose context would meet are one hunk."""
    hunk: list[_Region] = []
    for region in regions:
        if hunk and before.count(b"\n", hunk[-1].end, region.start) > 2 * CONTEXT:
            yield hunk
            hunk = []
        hunk.append(region)
    if hunk:
        yield hunk


def _counted(before: bytes, hunk: Sequence[_Region]) -> tuple[int, int]:
    """Return the number of lines that a hunk adds and removes."""
    more = less = 0
    for run in _runs(hunk):
        old, new = before[run[0].start : run[-1].end], b"".join(region.new for region in run)
        if min(_count(old), _count(new)) < 2:
            more, less = more + _count(new), less + _count(old)
            continue
        lines = _compared(_lines_with_ends(old), _lines_with_ends(new))
        more, less = more + _signs(lines, "+"), less + _signs(lines, "-")
    return more, less


def _signs(lines: Sequence[str], sign: str) -> int:
    return sum(line.startswith(sign) for line in lines)


def _rendered(before: bytes, hunk: Sequence[_Region]) -> tuple[str, int, int]:
    """Return the text of a hunk, and the number of lines that it adds and removes."""
    first, last = hunk[0], hunk[-1]
    head = _lines_with_ends(before[_back(before, first.start) : first.start])
    tail = _lines_with_ends(before[last.end : _forward(before, last.end)])
    body = [f" {line}" for line in head]
    done = first.start
    for run in _runs(hunk):
        body += [f" {line}" for line in _lines_with_ends(before[done : run[0].start])]
        done = run[-1].end
        body += _compared(
            _lines_with_ends(before[run[0].start : done]), _lines_with_ends(b"".join(region.new for region in run))
        )
    body += [f" {line}" for line in tail]
    more, less = _signs(body, "+"), _signs(body, "-")
    same = len(body) - more - less
    start = first.line - len(head)
    title = f"@@ -{_range(start, same + less)} +{_range(start + first.delta, same + more)} @@\n"
    return title + "".join(map(_shown, body)), more, less


def _runs(regions: Sequence[_Region]) -> list[list[_Region]]:
    """Join regions with nothing between them."""
    runs: list[list[_Region]] = []
    for region in regions:
        if runs and runs[-1][-1].end == region.start:
            runs[-1].append(region)
        else:
            runs.append([region])
    return runs


def _range(start: int, count: int) -> str:
    return str(start) if count == 1 else f"{start if count else start - 1},{count}"


def _back(before: bytes, at: int) -> int:
    for _ in range(CONTEXT):
        if at == 0:
            break
        at = before.rfind(b"\n", 0, at - 1) + 1
    return at


def _forward(before: bytes, at: int) -> int:
    for _ in range(CONTEXT):
        at = before.find(b"\n", at) + 1 or len(before)
    return at


def _lines_with_ends(data: bytes) -> list[str]:
    return [f"{line}\n" for line in data.decode("utf-8", "surrogateescape").split("\n")][:-1] + _rest(data)


def _rest(data: bytes) -> list[str]:
    last = data.rpartition(b"\n")[2]
    return [last.decode("utf-8", "surrogateescape")] if last else []


def _compared(old: list[str], new: list[str]) -> list[str]:
    """Return the diff lines; unchanged lines are marked as such if the comparison is cheap."""
    if min(len(old), len(new)) < 2 or max(len(old), len(new)) > SMALL:
        return [f"-{line}" for line in old] + [f"+{line}" for line in new]
    found = []
    for what, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            found += [f" {line}" for line in old[a:b]]
        else:
            found += [f"-{line}" for line in old[a:b]] + [f"+{line}" for line in new[c:d]]
    return found


def _shown(line: str) -> str:
    """Return a line of a hunk, truncated, with a newline."""
    text = line.removesuffix("\n")
    end = "\n" if line.endswith("\n") else "\n\\ No newline at end of file\n"
    if len(text) > LINE_SHOWN:
        text = f"{text[:LINE_SHOWN]} [... {len(text) - LINE_SHOWN} more characters]"
    return text + end
