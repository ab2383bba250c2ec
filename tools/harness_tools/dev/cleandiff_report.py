"""The differences of a repository, as text and as data that fit. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from harness.toolkit import Json, ToolResult

from ..texts import readable_name
from .cleandiff_parse import Change, Hunk
from .fitted import clip, fit

__all__ = ["Differences", "report"]

LINES = 400
WIDTH = 500
"""Lines of one place, and characters of one line, that are shown."""
HUNK = 8_000
"""Characters of one place that are shown."""


@dataclass(frozen=True, slots=True)
class Differences:
    """What git said. ``filters`` are those that it was kept from running, ``unlisted`` new files that are not shown."""

    root: str
    changes: list[Change]
    filters: tuple[str, ...] = ()
    unlisted: int = 0
    complete: bool = True

    def with_new(self, changes: list[Change], unlisted: int) -> Differences:
        """The same with files that git does not track."""
        return replace(self, changes=[*self.changes, *changes], unlisted=unlisted)

    def without(self, names: Collection[str]) -> Differences:
        """The same without a line of these files."""
        changes = [
            replace(one, hunks=(), withheld=True) if {one.path, one.old_path} & set(names) else one
            for one in self.changes
        ]
        return replace(self, changes=changes)

    @property
    def summary(self) -> str:
        """How much there is, in one line."""
        files, added, removed = _sums(self.changes)
        if not files:
            return "no changes"
        return f"{files} file{'s' * (files != 1)} changed, {added} added, {removed} removed"


_Piece = tuple[int, Hunk | None]
"""The number of a change, and one place in it; None is its headline."""


def _sums(changes: Sequence[Change]) -> tuple[int, int, int]:
    return len(changes), sum(one.added or 0 for one in changes), sum(one.removed or 0 for one in changes)


def report(found: Differences, *, stat_only: bool = False) -> ToolResult:
    """The result: all headlines first in line, then as many places as there is room for."""
    pieces: list[_Piece] = []
    for number, change in enumerate(found.changes):
        pieces.append((number, None))
        pieces += [] if stat_only else [(number, _cut(hunk)) for hunk in change.hunks]
    kept, dropped = fit(pieces, lambda some: _text(found, some, 1), lambda some: _data(found, some, 1))
    return ToolResult.of(_text(found, kept, dropped), data=_data(found, kept, dropped))


def _cut(hunk: Hunk) -> Hunk:
    """The first lines that there is room for; the counts of the hunk tell how many there are."""
    shown: list[str] = []
    room = HUNK
    for line in hunk.lines[:LINES]:
        room -= min(len(line), WIDTH) + 1
        if room < 0:
            break
        shown.append(clip(line, WIDTH))
    return replace(hunk, lines=tuple(shown), header=clip(hunk.header, 200))


def _missing(hunk: Hunk) -> int:
    """How many lines of a place are not shown, by its own counts."""
    old = hunk.old_count - sum(1 for line in hunk.lines if line[0] != "+")
    new = sum(1 for line in hunk.lines if line[0] == "+")
    new = hunk.new_count - new - sum(1 for line in hunk.lines if line[0] == " ")
    return max(0, old) + max(0, new)


# -- text


def _text(found: Differences, pieces: Sequence[_Piece], dropped: int) -> str:
    lines = [found.summary]
    for number, hunk in pieces:
        change = found.changes[number]
        lines += _headline(change) if hunk is None else _hunk_text(hunk)
    return "\n".join([*lines, *_notes(found, dropped)])


def _headline(change: Change) -> list[str]:
    renamed = f" (from {readable_name(change.old_path)})" if change.old_path != change.path else ""
    return [f"{change.status}: {readable_name(change.path)}{renamed}{_counted(change)}{_mode(change)}"]


def _counted(change: Change) -> str:
    if change.status == "unmerged":
        return ", see the tool conflicts"
    if change.is_binary:
        return ", no text, or more than 16 MiB"
    return f" +{change.added} -{change.removed}"


_KINDS = {"120": "link", "160": "submodule", "040": "directory"}


def _kind(change: Change) -> str:
    mode = change.new_mode if change.new_mode.strip("0") else change.old_mode
    return _KINDS.get(mode[:3], "file")


def _mode(change: Change) -> str:
    kind = _kind(change)
    shown = f", {kind}" if kind != "file" else ""
    both = change.old_mode.strip("0") and change.new_mode.strip("0")
    changed = f", mode {change.old_mode} -> {change.new_mode}" if both and change.old_mode != change.new_mode else ""
    kept_back = ", withheld by the policy" if change.withheld else ""
    return shown + changed + ("" if change.whole else ", not all of it was read") + kept_back


def _hunk_text(hunk: Hunk) -> list[str]:
    place = f"@@ -{hunk.old_start},{hunk.old_count} +{hunk.new_start},{hunk.new_count} @@ {hunk.header}".rstrip()
    missing = _missing(hunk)
    more = [f"[{missing} more lines]"] if missing else []
    ends = [f"[no line feed at the end: {hunk.unended}]"] if hunk.unended and not missing else []
    return [place, *hunk.lines, *more, *ends]


def _notes(found: Differences, dropped: int) -> list[str]:
    notes = [f"[{dropped} more files and places left out: use file_filter or stat_only]"] if dropped else []
    if found.unlisted:
        notes.append(f"[{found.unlisted} more untracked files left out]")
    if not found.complete:
        notes.append("[git had more to say than was read: use file_filter or stat_only]")
    if found.filters and found.changes:
        names = ", ".join(found.filters)
        notes.append(f"[filters were not run: {names}; files that they apply to may seem to be changed]")
    return notes


# -- data


def _data(found: Differences, pieces: Sequence[_Piece], dropped: int) -> Json:
    files, added, removed = _sums(found.changes)
    hunks: dict[int, list[Json]] = {number: [] for number, hunk in pieces if hunk is None}
    for number, hunk in pieces:
        if hunk is not None:
            hunks[number].append(_hunk_data(hunk))
    return {
        "root": found.root,
        "summary": {"files_changed": files, "insertions": added, "deletions": removed},
        "files": [_file_data(found.changes[number], places) for number, places in hunks.items()],
        "left_out": dropped,
        "untracked_left_out": found.unlisted,
        "complete": found.complete,
        "filters_not_run": list(found.filters),
    }


def _file_data(change: Change, hunks: list[Json]) -> Json:
    data: dict[str, Json] = {
        "path": change.path,
        "status": change.status,
        "kind": _kind(change),
        "insertions": change.added or 0,
        "deletions": change.removed or 0,
        "binary": change.is_binary,
        "old_mode": change.old_mode,
        "new_mode": change.new_mode,
        "complete": change.whole,
        "withheld": change.withheld,
        "hunks": hunks,
    }
    return data | ({"old_path": change.old_path} if change.old_path != change.path else {})


def _hunk_data(hunk: Hunk) -> Json:
    sides = {mark: [line[1:] for line in hunk.lines if line[0] == mark] for mark in "+- "}
    return {
        "old_start": hunk.old_start,
        "old_count": hunk.old_count,
        "new_start": hunk.new_start,
        "new_count": hunk.new_count,
        "header": hunk.header,
        "added": list(sides["+"]),
        "removed": list(sides["-"]),
        "context": list(sides[" "]),
        "lines_left_out": _missing(hunk),
        "no_line_feed": hunk.unended,
    }
