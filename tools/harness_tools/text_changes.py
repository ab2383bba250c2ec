"""Changes of a file as a unified diff, made from the places that changed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from .matching import Change, apply_changes

__all__ = ["DIFF_SHOWN", "Diff", "diff_of"]

CONTEXT = 3
DIFF_SHOWN = 10_000
"""Characters of a diff that are shown."""
LINE_SHOWN = 500
SMALL = 200
"""Lines of a region in which unchanged lines are looked for."""
LARGE = 64 << 10
"""Bytes of a region of which more is not looked at."""
NEWLINE = 0x0A


@dataclass(frozen=True, slots=True)
class Diff:
    """``text`` is without the hunks that are too many; ``hunks`` counts all. ``added`` and ``removed`` are lines."""

    text: str
    hunks: int
    left_out: int
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class _Region:
    """Whole lines that change. ``line`` is the number of the first, ``delta`` how many lines were added before it."""

    start: int
    end: int
    new: bytes
    line: int
    delta: int


def diff_of(before: bytes, changes: Sequence[Change], path: str, room: int = DIFF_SHOWN) -> Diff:
    """The diff of a content and its changes, which are in ascending order and do not overlap."""
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
    """The number of the next change that is not in the region, the region's end, and what becomes of it."""
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
        end = before.find(b"\n", end) + 1 or len(before)  # it runs on into the next line


def _touches(before: bytes, end: int, place: int) -> bool:
    """Whether a place is in the lines that end there; the last line of a file may have no end."""
    return place < end or (place == end and end > 0 and before[end - 1] != NEWLINE)


def _line_end(before: bytes, start: int, change: Change) -> int:
    """The end of the last line that a change touches: of the next one too, when what is new runs on into it."""
    whole_lines = change.end == 0 or before[change.end - 1] == NEWLINE
    at_start = change.start == start or before[change.start - 1] == NEWLINE
    if whole_lines and (change.new.endswith(b"\n") if change.new else at_start):
        return change.end
    return before.find(b"\n", change.end) + 1 or len(before)


def _count(data: bytes) -> int:
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


def _hunks(before: bytes, regions: Sequence[_Region]) -> Iterator[list[_Region]]:
    """Regions whose context would meet are one hunk."""
    hunk: list[_Region] = []
    for region in regions:
        if hunk and before.count(b"\n", hunk[-1].end, region.start) > 2 * CONTEXT:
            yield hunk
            hunk = []
        hunk.append(region)
    if hunk:
        yield hunk


def _counted(before: bytes, hunk: Sequence[_Region]) -> tuple[int, int]:
    """How many lines a hunk adds and removes."""
    more = less = 0
    for run in _runs(hunk):
        old, new = before[run[0].start : run[-1].end], b"".join(region.new for region in run)
        if min(_count(old), _count(new)) < 2:
            more, less = more + _count(new), less + _count(old)
            continue
        lines = _compared(_lines(old), _lines(new))
        more, less = more + _signs(lines, "+"), less + _signs(lines, "-")
    return more, less


def _signs(lines: Sequence[str], sign: str) -> int:
    return sum(line.startswith(sign) for line in lines)


def _rendered(before: bytes, hunk: Sequence[_Region]) -> tuple[str, int, int]:
    """The text of a hunk, and how many lines it adds and removes."""
    first, last = hunk[0], hunk[-1]
    head = _lines(before[_back(before, first.start) : first.start])
    tail = _lines(before[last.end : _forward(before, last.end)])
    body = [f" {line}" for line in head]
    done = first.start
    for run in _runs(hunk):
        body += [f" {line}" for line in _lines(before[done : run[0].start])]
        done = run[-1].end
        body += _compared(_lines(before[run[0].start : done]), _lines(b"".join(region.new for region in run)))
    body += [f" {line}" for line in tail]
    more, less = _signs(body, "+"), _signs(body, "-")
    same = len(body) - more - less
    start = first.line - len(head)
    title = f"@@ -{_range(start, same + less)} +{_range(start + first.delta, same + more)} @@\n"
    return title + "".join(map(_shown, body)), more, less


def _runs(regions: Sequence[_Region]) -> list[list[_Region]]:
    """Regions with nothing between them are shown as one."""
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


def _lines(data: bytes) -> list[str]:
    return [f"{line}\n" for line in data.decode("utf-8", "surrogateescape").split("\n")][:-1] + _rest(data)


def _rest(data: bytes) -> list[str]:
    last = data.rpartition(b"\n")[2]
    return [last.decode("utf-8", "surrogateescape")] if last else []


def _compared(old: list[str], new: list[str]) -> list[str]:
    """What becomes of lines: those that stay are shown as such, where that is cheap to find out."""
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
    """A line of a hunk, cut, with a newline."""
    text = line.removesuffix("\n")
    end = "\n" if line.endswith("\n") else "\n\\ No newline at end of file\n"
    if len(text) > LINE_SHOWN:
        text = f"{text[:LINE_SHOWN]} [... {len(text) - LINE_SHOWN} more characters]"
    return text + end
