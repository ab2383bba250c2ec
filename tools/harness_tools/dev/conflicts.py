"""``conflicts``: list merge conflicts in files of the target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from anyio import to_thread
from pydantic import AliasChoices, Field

from harness.errors import FileError
from harness.results import FileContent
from harness.toolkit import Arguments, Category, Json, JsonObject, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.result_cache import depends_on
from harness.toolkit.session.file_versions import target_path

from ..texts import REPORT, Line, clip, fit

__all__ = [
    "Conflicts",
    "lines_of",
    "scan",
]


# -- Parsing merge conflicts, in the styles merge, diff3 and zdiff3.


MARKER = 7
"""Minimum length of a marker; git uses longer ones for nested conflicts, and if an attribute says so."""


class Conflict(NamedTuple):
    """One conflict; lines count from 1; ``base`` is None if the style has none."""

    line: int
    end_line: int
    ours_ref: str
    theirs_ref: str
    base_ref: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    base: tuple[str, ...] | None


class Broken(NamedTuple):
    """A marker without a complete conflict."""

    line: int
    ref: str
    problem: str


@dataclass(frozen=True, slots=True)
class ConflictScan:
    """The result of scanning one text."""

    conflicts: tuple[Conflict, ...]
    broken: tuple[Broken, ...]


class _Marker(NamedTuple):
    letter: str
    size: int
    label: str


def lines_of(text: str) -> list[str]:
    """Return the lines without their ends; only a line feed, with or without a carriage return, ends one. Pure."""
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
class _OpenBlock:
    """An incomplete conflict; ``sides`` are keyed by the marker before them."""

    line: int
    size: int
    sides: dict[str, list[str]]
    labels: dict[str, str]
    last: str = "<"

    @classmethod
    def opened(cls, line: int, marker: _Marker) -> _OpenBlock:
        return cls(line, marker.size, {"<": []}, {"<": marker.label})

    def takes(self, marker: _Marker) -> bool:
        """Return whether the marker continues this conflict; any other is an ordinary line."""
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
    block: _OpenBlock | None = None

    def line(self, number: int, line: str) -> None:
        marker = _marker(line)
        if marker is not None and marker.letter == "<" and self.block is None:
            self.block = _OpenBlock.opened(number, marker)
        elif marker is not None and self.block is None:
            self._stray(number, marker)
        elif marker is not None and self.block is not None:
            self._marked(number, line, marker, self.block)
        elif self.block is not None:
            self.block.sides[self.block.last].append(line)

    def _stray(self, number: int, marker: _Marker) -> None:
        """Record an end without a start; other markers also underline headings and draw tables."""
        if marker.letter == ">" and marker.size == MARKER and marker.label:
            self.broken.append(Broken(number, marker.label, f"no {'<' * MARKER} precedes it"))

    def _marked(self, number: int, line: str, marker: _Marker, block: _OpenBlock) -> None:
        if marker.letter == "<" and marker.size == block.size:
            self.broken.append(block.broken())
            self.block = _OpenBlock.opened(number, marker)
        elif not block.takes(marker):
            block.sides[block.last].append(line)
        elif marker.letter == ">":
            self.conflicts.append(block.conflict(number, marker.label))
            self.block = None
        else:
            block.go_on(marker)

    def found(self) -> ConflictScan:
        rest = [self.block.broken()] if self.block is not None else []
        return ConflictScan(tuple(self.conflicts), (*self.broken, *rest))


def scan(lines: Iterable[str]) -> ConflictScan:
    """Return all conflicts, and the markers without one, in one pass. Pure."""
    state = _Scan()
    for number, line in enumerate(lines, 1):
        state.line(number, line)
    return state.found()


def around(lines: Sequence[str], conflict: Conflict, count: int) -> tuple[list[str], list[str]]:
    """Return up to ``count`` lines above and below a conflict, up to the next marker. Pure."""
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


# -- The tool.


FILES = 100
SIZE = 8 << 20
"""Maximum bytes of one file."""
TOTAL = 64 << 20
"""Maximum bytes of all files."""
SIDE = 5_000
"""Maximum characters of one side that are shown, so that a whole conflict fits into a report."""
WIDTH = 500
"""Maximum characters of one line that are shown."""

DESCRIPTION = """\
Find the merge conflicts in files: location, both sides, the common base if the markers show it (diff3, zdiff3), and \
context lines. Markers without a complete conflict are reported. Nothing is changed."""


class _Arguments(Arguments):
    file: tuple[Line, ...] = Field(
        min_length=1,
        max_length=FILES,
        description="the files; ~ is the user's home",
        validation_alias=AliasChoices("file", "files", "path", "paths", "file_path"),
    )
    context_lines: int = Field(1, ge=0, le=100, description="lines to show above and below each conflict")


@dataclass(frozen=True, slots=True)
class _Block:
    """One conflict with its context."""

    conflict: Conflict
    above: tuple[str, ...]
    below: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Report:
    """The result for one file; ``error`` says why it could not be read."""

    file: str
    blocks: tuple[_Block, ...] = ()
    broken: tuple[Broken, ...] = ()
    error: str = ""


class Conflicts(Tool[_Arguments]):
    """``conflicts``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.FILE_READ, parallelizable=True, cacheable=True, packs=("dev",), limit=REPORT, timeout=120
        )
        super().__init__("conflicts", DESCRIPTION, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return tuple(Subject("read", path) for path in args.file)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        reports: list[_Report] = []
        seen: list[FileContent] = []
        room = TOTAL
        for path in args.file:
            content = await _read(ctx, path, room)
            if isinstance(content, _Report):
                reports.append(content)
                continue
            room -= content.size
            reports.append(await to_thread.run_sync(_report, path, content, args.context_lines))
            seen.append(replace(content, data=b""))
        return await to_thread.run_sync(_result, reports, _depends(reports, seen))


def _depends(reports: Sequence[_Report], seen: Sequence[FileContent]) -> JsonObject:
    """Return what the result depends on; a file that could not be read may be readable next time."""
    return depends_on(*seen) if len(seen) == len(reports) else {"depends": None}


async def _read(ctx: ToolContext, path: str, room: int) -> FileContent | _Report:
    """Read the file; this does not count as a read, because the model sees only a part of it."""
    try:
        content = await ctx.execution.read_file(target_path(ctx, path), limit=SIZE + 1)
    except FileError as error:
        return _Report(path, error=error.message.removeprefix(f"{target_path(ctx, path)}: "))
    if content.size > SIZE:
        return _Report(path, error=f"it has {content.size} bytes, more than the limit of {SIZE}")
    if content.size > room:
        return _Report(path, error=f"with the files before it, it exceeds {TOTAL} bytes: request it alone")
    if b"\0" in content.data:
        return _Report(path, error="it is not a text file (contains NUL bytes)")
    return content


def _report(path: str, content: FileContent, context: int) -> _Report:
    lines = lines_of(content.text)
    found = scan(lines)
    blocks = []
    for conflict in found.conflicts:
        above, below = around(lines, conflict, context)
        blocks.append(_Block(conflict, tuple(above), tuple(below)))
    return _Report(path, tuple(blocks), found.broken)


# -- the result

_Entry = tuple[int, _Block | Broken]
"""The index of a file's report, and one conflict or marker in it."""


def _result(reports: Sequence[_Report], depends: JsonObject) -> ToolResult:
    entries: list[_Entry] = []
    for number, report in enumerate(reports):
        entries += [(number, block) for block in report.blocks]
        entries += [(number, broken) for broken in report.broken]
    kept, dropped = fit(entries, lambda some: _text(reports, some, 0), lambda some: _data(reports, some, 0))
    text, data = _text(reports, kept, dropped), _data(reports, kept, dropped)
    if all(report.error for report in reports):
        return ToolResult.failure("unreadable", text, data=data)
    return ToolResult.of(text, data=data, metadata=depends)


def _summary(reports: Sequence[_Report]) -> str:
    total, files = sum(len(report.blocks) for report in reports), len(reports)
    broken = sum(len(report.broken) for report in reports)
    failed = sum(1 for report in reports if report.error)
    text = f"Found {total} conflict{'s' * (total != 1)} in {files} file{'s' * (files != 1)}"
    text += f"; {broken} marker{'s' * (broken != 1)} without a complete conflict" if broken else ""
    return text + (f"; {failed} could not be read" if failed else "")


def _text(reports: Sequence[_Report], entries: Sequence[_Entry], dropped: int) -> str:
    lines = [_summary(reports)]
    lines += [f"{report.file}: {report.error}" for report in reports if report.error]
    for number, entry in entries:
        file = reports[number].file
        lines += _broken_text(file, entry) if isinstance(entry, Broken) else _block_text(file, entry)
    if dropped:
        lines.append(f"[{dropped} more omitted: request fewer files]")
    return "\n".join(lines)


def _broken_text(file: str, broken: Broken) -> list[str]:
    label = f" {broken.ref}" if broken.ref else ""
    return [f"{file}:{broken.line}: a marker{label} without a complete conflict: {broken.problem}"]


def _block_text(file: str, block: _Block) -> list[str]:
    conflict = block.conflict
    lines = [f"{file}:{conflict.line}-{conflict.end_line}"]
    lines += [f"  | {line}" for line in _cut(block.above)[0]]
    lines += _side_text(f"ours ({conflict.ours_ref})", conflict.ours)
    if conflict.base is not None:
        lines += _side_text(f"base ({conflict.base_ref})", conflict.base)
    lines += _side_text(f"theirs ({conflict.theirs_ref})", conflict.theirs)
    return lines + [f"  | {line}" for line in _cut(block.below)[0]]


def _side_text(name: str, side: Sequence[str]) -> list[str]:
    shown, left = _cut(side)
    more = [f"    [{left} more lines]"] if left else []
    head = f"  {name.removesuffix(' ()')}:" + (" (nothing)" if not side else "")
    return [head, *(f"    {line}" for line in shown), *more]


def _cut(side: Sequence[str]) -> tuple[list[str], int]:
    """Return the first lines that fit, and the number of omitted ones."""
    shown: list[str] = []
    room = SIDE
    for line in side:
        room -= min(len(line), WIDTH) + 1
        if room < 0:
            break
        shown.append(clip(line, WIDTH))
    return shown, len(side) - len(shown)


def _data(reports: Sequence[_Report], entries: Sequence[_Entry], dropped: int) -> Json:
    files: list[Json] = [
        _file_data(report, [entry for at, entry in entries if at == number]) for number, report in enumerate(reports)
    ]
    has_base = any(block.conflict.base is not None for report in reports for block in report.blocks)
    return {
        "files": files,
        "total": sum(len(report.blocks) for report in reports),
        "has_diff3": has_base,
        "summary": _summary(reports),
        "left_out": dropped,
    }


def _file_data(report: _Report, entries: Sequence[_Block | Broken]) -> Json:
    data: dict[str, Json] = {
        "file": report.file,
        "conflicts": [_block_data(report.file, entry) for entry in entries if isinstance(entry, _Block)],
        "count": len(report.blocks),
        "unterminated": [
            {"line": entry.line, "ref": entry.ref, "problem": entry.problem}
            for entry in entries
            if isinstance(entry, Broken)
        ],
    }
    return data | {"error": report.error} if report.error else data


def _block_data(file: str, block: _Block) -> Json:
    conflict = block.conflict
    sides = {"ours": conflict.ours, "theirs": conflict.theirs, "base": conflict.base or ()}
    cut = {name: _cut(side) for name, side in sides.items()}
    data: dict[str, Json] = {
        "file": file,
        "line": conflict.line,
        "end_line": conflict.end_line,
        "ours_ref": conflict.ours_ref,
        "theirs_ref": conflict.theirs_ref,
        "ours": "\n".join(cut["ours"][0]),
        "theirs": "\n".join(cut["theirs"][0]),
        "context_above": "\n".join(_cut(block.above)[0]),
        "context_below": "\n".join(_cut(block.below)[0]),
        "lines_left_out": sum(left for _, left in cut.values()),
    }
    base: dict[str, Json] = {"base_ref": conflict.base_ref, "base": "\n".join(cut["base"][0])}
    return data if conflict.base is None else data | base
