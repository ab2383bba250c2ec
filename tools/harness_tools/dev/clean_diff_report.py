"""Parsing the output of ``git diff``, and the report. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.toolkit import Json, ToolResult

from ..texts import clip, fit, readable_name

__all__ = [
    "Change",
    "Differences",
    "changes_of",
    "new_file",
    "new_files",
    "quoted",
    "report",
]


# -- Parsing the output of ``git diff --raw --numstat -z -p``. Pure, in one pass.
#
# The raw part says exactly which files changed, how, and with which modes; the counts follow, then the text. A text
# is assigned to the file with its headline: names are taken from the raw part, never from the text.


_STATUS = {
    "A": "added",
    "C": "copied",
    "D": "deleted",
    "M": "modified",
    "R": "renamed",
    "T": "type changed",
    "U": "unmerged",
}
_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
_HUNK = re.compile(r"@@ -(\d{1,10})(?:,(\d{1,10}))? \+(\d{1,10})(?:,(\d{1,10}))? @@ ?(.*)", re.DOTALL)
_HEAD = "diff --git "
_NEXT = re.compile(r"^\0\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk; ``lines`` start with ``-``, ``+`` or a space; ``unended`` is the side without a final line feed."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    header: str
    lines: tuple[str, ...]
    unended: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One changed file; ``added`` and ``removed`` are None for binary files; modes are git's (``100644``)."""

    path: str
    old_path: str
    status: str
    old_mode: str
    new_mode: str
    added: int | None = None
    removed: int | None = None
    hunks: tuple[Hunk, ...] = ()
    whole: bool = True
    """Whether its text is complete."""
    withheld: bool = False
    """Whether the policy denies showing its lines."""

    @property
    def is_binary(self) -> bool:
        """Whether git considers it binary, or too large to compare."""
        return self.added is None and self.status != "unmerged"

    @property
    def changes_something(self) -> bool:
        """Whether more than the modification time changed."""
        same = self.status == "modified" and self.old_mode == self.new_mode
        return not (same and not self.hunks and self.added == self.removed == 0)


def quoted(name: str) -> str:
    """Return a name as git writes it in a headline: quoted and escaped if it contains anything unusual."""
    data = name.encode("utf-8", "surrogateescape")
    text = "".join(_escaped(byte) for byte in data)
    return name if text == name else f'"{text}"'


def _escaped(byte: int) -> str:
    if byte in _ESCAPES:
        return f"\\{_ESCAPES[byte]}"
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"


# -- the parts before the text


def _fields(text: str) -> tuple[list[str], str]:
    """Return the fields of the raw part and of the counts, each ended by a NUL, and the text."""
    found: list[str] = []
    at = 0
    while at < len(text) and not text.startswith((_HEAD, "diff --cc ", "* Unmerged path "), at):
        end = text.find("\0", at)
        if end < 0:
            return found, ""  # truncated in a name
        found.append(text[at:end])
        at = end + 1
    return found, text[at:]


def _raw(fields: list[str]) -> Iterator[Change]:
    """Take the raw records from the front of the fields."""
    fields.reverse()
    while fields and fields[-1].startswith(":"):
        words = fields.pop()[1:].split(" ")
        names = [fields.pop() for _ in range(2 if words[-1][:1] in "RC" else 1) if fields]
        if len(words) != 5 or not names:
            continue
        status = _STATUS.get(words[4][:1], "changed")
        yield Change(names[-1], names[0], status, words[0], words[1])
    fields.reverse()


_Counts = Mapping[str, tuple[int | None, int | None]]


def _counts(fields: Sequence[str]) -> _Counts:
    """Return added and removed lines by new name; a renamed file has its two names in separate fields."""
    found: dict[str, tuple[int | None, int | None]] = {}
    rest = iter(fields)
    for field in rest:
        added, _, more = field.partition("\t")
        removed, tab, name = more.partition("\t")
        if not tab:
            continue
        if not name:
            next(rest, "")
            name = next(rest, "")
        found[name] = (_number(added), _number(removed))
    return found


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


# -- the text


def _sections(text: str) -> Iterator[list[str]]:
    """Yield the lines of each file's text, starting with its headline, which no other line resembles."""
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    start = None
    for number, line in enumerate(lines):
        if line.startswith((_HEAD, "diff --cc ", "* Unmerged path ")):
            if start is not None:
                yield lines[start:number]
            start = number
    if start is not None:
        yield lines[start:]


def _hunks(lines: Sequence[str]) -> tuple[Hunk, ...]:
    found: list[Hunk] = []
    inside: list[str] = []
    unended = ""
    head: re.Match[str] | None = None
    for line in lines:
        match = _HUNK.match(line) if line.startswith("@@ ") else None
        if match is not None:
            found += [_hunk(head, inside, unended)] if head is not None else []
            head, inside, unended = match, [], ""
        elif head is not None and line[:1] in ("-", "+", " "):
            inside.append(line)
        elif head is not None and line.startswith("\\") and inside:
            unended = _unended(unended, inside[-1][0])
    return (*found, *([_hunk(head, inside, unended)] if head is not None else []))


def _unended(before: str, mark: str) -> str:
    now = {"-": "old", "+": "new"}.get(mark, "both")
    return now if not before or before == now else "both"


def _hunk(head: re.Match[str], lines: Sequence[str], unended: str) -> Hunk:
    old, old_count, new, new_count, header = head.groups()
    counts = (int(old_count) if old_count else 1, int(new_count) if new_count else 1)
    return Hunk(int(old), counts[0], int(new), counts[1], header.strip(), tuple(lines), unended)


def _git_headline(change: Change) -> str:
    return f"{_HEAD}{quoted(f'a/{change.old_path}')} {quoted(f'b/{change.path}')}"


def changes_of(output: str, *, complete: bool = True) -> list[Change]:
    """Return the changes, in git's order; ``complete`` is False if the output was truncated."""
    fields, text = _fields(output)
    changes = list(_raw(fields))
    counts = _counts(fields)
    sections = list(_sections(text))
    if not complete and sections and len(sections[-1]) == 1:
        sections.pop()  # its headline may be truncated, too
    at = 0
    made = []
    for change in changes:
        first = at
        while at < len(sections) and sections[at][0] == _git_headline(change):
            at += 1  # a file that became a link has two: a deletion and an addition
        lines = [line for section in sections[first:at] for line in section[1:]]
        added, removed = counts.get(change.path, (0, 0))
        last = not complete and at == len(sections)
        made.append(replace(change, added=added, removed=removed, hunks=_hunks(lines), whole=not last))
    return [change for change in made if change.changes_something]


def new_file(path: str, output: str, *, complete: bool = True) -> Change:
    """Return an untracked file, from its difference to nothing."""
    lines = output.split("\n")
    mode = next((line.removeprefix("new file mode ") for line in lines if line.startswith("new file mode ")), "")
    hunks = _hunks(lines)
    is_binary = any(line.startswith("Binary files ") for line in lines) and not hunks
    added = None if is_binary else sum(len(hunk.lines) for hunk in hunks)
    return Change(path, path, "untracked", "000000", mode, added, None if is_binary else 0, hunks, complete)


def new_files(names: Sequence[str], output: str) -> list[Change]:
    """Return one change for each name, from their differences, each ended by a NUL on a line of its own.

    For an unreadable file nothing is printed, not even a line end.
    """
    parts = _NEXT.split(output)
    texts = [*parts, *[""] * len(names)]
    return [
        new_file(name, text.removesuffix("\n"), complete=bool(text) and number < len(parts) - 1)
        for number, (name, text) in enumerate(zip(names, texts, strict=False))
    ]


# -- The report, as text and as data with size limits. Pure.


LINES = 400
WIDTH = 500
"""Maximum lines of a hunk, and characters of a line, that are shown."""
HUNK = 8_000
"""Maximum characters of a hunk that are shown."""


@dataclass(frozen=True, slots=True)
class Differences:
    """The output of git; ``filters`` are those that were not run, ``unlisted`` counts omitted untracked files."""

    root: str
    changes: list[Change]
    filters: tuple[str, ...] = ()
    unlisted: int = 0
    complete: bool = True

    def with_new(self, changes: list[Change], unlisted: int) -> Differences:
        """Return the differences with untracked files added."""
        return replace(self, changes=[*self.changes, *changes], unlisted=unlisted)

    def without(self, names: Collection[str]) -> Differences:
        """Return the differences without the lines of these files."""
        changes = [
            replace(one, hunks=(), withheld=True) if {one.path, one.old_path} & set(names) else one
            for one in self.changes
        ]
        return replace(self, changes=changes)

    @property
    def summary(self) -> str:
        """The number of changes, in one line."""
        files, added, removed = _sums(self.changes)
        if not files:
            return "no changes"
        return f"{files} file{'s' * (files != 1)} changed, {added} added, {removed} removed"


_Piece = tuple[int, Hunk | None]
"""The index of a change, and one of its hunks; None is its headline."""


def _sums(changes: Sequence[Change]) -> tuple[int, int, int]:
    return len(changes), sum(one.added or 0 for one in changes), sum(one.removed or 0 for one in changes)


def report(found: Differences, *, stat_only: bool = False) -> ToolResult:
    """Return the result: each headline, and as many hunks as fit."""
    pieces: list[_Piece] = []
    for number, change in enumerate(found.changes):
        pieces.append((number, None))
        pieces += [] if stat_only else [(number, _cut(hunk)) for hunk in change.hunks]
    kept, dropped = fit(pieces, lambda some: _text(found, some, 1), lambda some: _data(found, some, 1))
    return ToolResult.of(_text(found, kept, dropped), data=_data(found, kept, dropped))


def _cut(hunk: Hunk) -> Hunk:
    """Return the first lines that fit; the counts of the hunk still give the total."""
    shown: list[str] = []
    room = HUNK
    for line in hunk.lines[:LINES]:
        room -= min(len(line), WIDTH) + 1
        if room < 0:
            break
        shown.append(clip(line, WIDTH))
    return replace(hunk, lines=tuple(shown), header=clip(hunk.header, 200))


def _missing(hunk: Hunk) -> int:
    """Return the number of omitted lines of a hunk."""
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
        return ", binary, or larger than 16 MiB"
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
    kept_back = ", denied by the policy" if change.withheld else ""
    return shown + changed + ("" if change.whole else ", truncated") + kept_back


def _hunk_text(hunk: Hunk) -> list[str]:
    place = f"@@ -{hunk.old_start},{hunk.old_count} +{hunk.new_start},{hunk.new_count} @@ {hunk.header}".rstrip()
    missing = _missing(hunk)
    more = [f"[{missing} more lines]"] if missing else []
    ends = [f"[no line feed at the end: {hunk.unended}]"] if hunk.unended and not missing else []
    return [place, *hunk.lines, *more, *ends]


def _notes(found: Differences, dropped: int) -> list[str]:
    notes = [f"[{dropped} more files and hunks omitted: use file_filter or stat_only]"] if dropped else []
    if found.unlisted:
        notes.append(f"[{found.unlisted} more untracked files omitted]")
    if not found.complete:
        notes.append("[git's output was truncated: use file_filter or stat_only]")
    if found.filters and found.changes:
        names = ", ".join(found.filters)
        notes.append(f"[filters were not run: {names}; files that they apply to may appear changed]")
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
