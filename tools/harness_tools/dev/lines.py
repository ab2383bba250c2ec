"""``notab``, ``splice``, ``tabcount`` and ``split``: tools for the lines of a file."""

from __future__ import annotations

import posixpath
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Annotated, Literal

from pydantic import Field, model_validator

from harness.backend import WriteMode
from harness.errors import FileError, FileNotFound
from harness.results import FileContent
from harness.toolkit import Arguments, Category, Json, MutatingArguments, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.pipeline import failure_of
from harness.toolkit.result_cache import depends_on
from harness.toolkit.session.file_versions import WriteOutcome, guarded_edit, guarded_write, target_path
from harness.wording import counted

from ..file_lines import FILE, LIMIT, line_start, no_text, whole_file, whole_text
from ..text_changes import Endings
from ..texts import Line

__all__ = [
    "NoTab",
    "Splice",
    "Split",
    "TabCount",
    "part_name",
    "parts_of",
    "respaced",
    "spliced",
    "tabs_of",
]


# -- ``notab``: replace tabs with spaces, or leading spaces with tabs.


_LEADING = re.compile(rb"^[ \t]+", re.MULTILINE)
"""Linear: each position is tried once, and no match is followed by white space."""


@dataclass(frozen=True, slots=True)
class TabConversion:
    """A converted content; ``replacements`` counts removed or added tabs."""

    data: bytes
    replacements: int
    lines: int


def respaced(data: bytes, spaces: int, *, tabs: bool) -> TabConversion:
    """Return a content with spaces for its tabs, or with ``tabs`` the reverse, in the indentation only. Pure."""
    blanks = b" " * spaces
    if not tabs:
        lines = sum(b"\t" in line for line in data.split(b"\n"))
        return TabConversion(data.replace(b"\t", blanks), data.count(b"\t"), lines)
    replacements = lines = 0

    def indent(match: re.Match[bytes]) -> bytes:
        nonlocal replacements, lines
        found = match[0].count(blanks)
        replacements, lines = replacements + found, lines + (found > 0)
        return match[0].replace(blanks, b"\t")

    mark = BOM_UTF8 if data.startswith(BOM_UTF8) else b""
    made = mark + _LEADING.sub(indent, data[len(mark) :])
    return TabConversion(made, replacements, lines)


class _NoTabArguments(MutatingArguments):
    file: Line = Field(description="the file", validation_alias=FILE)
    spaces: int = Field(4, ge=1, le=16, description="spaces per tab")
    tabs: bool = Field(False, description="the reverse: replace leading spaces with tabs, as in makefiles")


class NoTab(Tool[_NoTabArguments]):
    """``notab``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, packs=("dev",))
        text = (
            "Replace the tabs of a file with spaces, or with tabs=true leading spaces with tabs. Nothing else changes. "
            "Read the file first."
        )
        super().__init__("notab", text, _NoTabArguments, traits)

    def subjects(self, args: _NoTabArguments) -> tuple[Subject, ...]:
        return (Subject("write", args.file),)

    async def run(self, args: _NoTabArguments, ctx: ToolContext) -> ToolResult:
        made: list[TabConversion] = []
        done = await guarded_edit(ctx, args.file, partial(_without_tabs, args, made), most=LIMIT)
        if isinstance(done, WriteOutcome):
            return _notab_result(args, done.path, made[0])
        return done if done.error_code else _notab_result(args, done.text, made[0])


def _without_tabs(args: _NoTabArguments, made: list[TabConversion], content: FileContent) -> bytes | ToolResult:
    """Return the new content; if nothing changes, a result with the path."""
    refusal = no_text(args.file, content.data)
    if refusal is not None:
        return refusal
    size = content.size + content.data.count(b"\t") * (args.spaces - 1)
    if not args.tabs and size > LIMIT:
        text = f"{args.file} would grow to {size} bytes, more than {LIMIT}: use a command. Nothing was changed"
        return ToolResult.failure("too_big", text)
    made.append(respaced(content.data, args.spaces, tabs=args.tabs))
    return made[0].data if made[0].replacements else ToolResult.of(content.path)


def _notab_result(args: _NoTabArguments, path: str, made: TabConversion) -> ToolResult:
    facts: Json = {
        "file": path,
        "mode": "spaces_to_tabs" if args.tabs else "tabs_to_spaces",
        "spaces": args.spaces,
        "replacements": made.replacements,
        "lines_changed": made.lines,
        "changed": made.replacements > 0,
    }
    if not made.replacements:
        return ToolResult.of(f"{path} has nothing to replace, and was not written", data=facts)
    names = ("group of spaces", "groups of spaces") if args.tabs else ("tab", "tabs")
    what = counted(made.replacements, *names)
    return ToolResult.of(f"Replaced {what} in {counted(made.lines, 'line')} of {path}", data=facts)


# -- ``splice``: insert the content of a file into another.


Place = Literal["append", "prepend", "insert"]
Mode = Literal["append", "prepend", "replace", "insert"]


def spliced(target: bytes, source: bytes, mode: Place, line: int = 0) -> bytes | None:
    """Return the target's content with the source's in it; None if it has no line ``line``. Pure.

    If they would join within a line, a line end like the target's is inserted. A byte order mark of the target is kept,
    and the source's is removed.
    """
    mark = BOM_UTF8 if target.startswith(BOM_UTF8) else b""
    body, new = target[len(mark) :], source.removeprefix(BOM_UTF8)
    at = {"append": len(body), "prepend": 0}.get(mode)
    if at is None:
        at = _behind(body, line)
    if at is None:
        return None
    before, after = body[:at], body[at:]
    ending = Endings(body if b"\n" in body else new).at(max(0, at - 1))
    return b"".join([mark, *_joined(before, new, ending), *_joined(new, after, ending)[1:]]) if new else target


def _behind(body: bytes, line: int) -> int | None:
    """Return the position after a line; None if the line does not exist."""
    start = line_start(body, line)
    if start is None or start >= len(body):
        return None
    return body.find(b"\n", start) + 1 or len(body)


def _joined(first: bytes, second: bytes, ending: bytes) -> tuple[bytes, bytes, bytes]:
    """Return two contents and the required separator."""
    apart = bool(first) and bool(second) and not first.endswith(b"\n")
    return first, ending if apart else b"", second


class _SpliceArguments(MutatingArguments):
    source: Line = Field(description="the file to insert; it is not changed")
    target: Line = Field(description="the file to insert into")
    mode: Mode = Field(
        description="append: at the end; prepend: at the start; replace: the whole file; insert: after a line"
    )
    line: int | None = Field(None, ge=1, description="for insert: the line to insert after, counted from 1")

    @model_validator(mode="after")
    def _line_with_insert(self) -> _SpliceArguments:
        if (self.mode == "insert") != (self.line is not None):
            raise ValueError("line and mode insert require each other")
        return self


class Splice(Tool[_SpliceArguments]):
    """``splice``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, packs=("dev",))
        text = (
            "Insert the content of one file into another: at its end or start, after a line, or as its whole content. "
            "Read the target first. Nothing else changes."
        )
        super().__init__("splice", text, _SpliceArguments, traits)

    def subjects(self, args: _SpliceArguments) -> tuple[Subject, ...]:
        return (Subject("read", args.source), Subject("write", args.target))

    async def run(self, args: _SpliceArguments, ctx: ToolContext) -> ToolResult:
        source = await whole_file(ctx, args.source)
        if isinstance(source, ToolResult):
            return source
        if await _same(ctx, source, args.target):
            return ToolResult.failure("same_file", f"{args.source} and {args.target} are the same file")
        if args.mode == "replace":
            done = await guarded_write(ctx, args.target, source.data)
        else:
            done = await guarded_edit(ctx, args.target, partial(_spliced_file, args, source.data), most=LIMIT)
        return _splice_result(args, source, done) if isinstance(done, WriteOutcome) else done


async def _same(ctx: ToolContext, source: FileContent, target: str) -> bool:
    try:
        return (await ctx.execution.stat(target_path(ctx, target))).path == source.path
    except FileNotFound:
        return False


def _spliced_file(args: _SpliceArguments, source: bytes, target: FileContent) -> bytes | ToolResult:
    refusal = no_text(args.source, source) or no_text(args.target, target.data)
    if refusal is not None:
        return refusal
    assert args.mode != "replace"
    made = spliced(target.data, source, args.mode, args.line or 0)
    if made is None:
        lines = target.data.count(b"\n") + (not target.data.endswith(b"\n") and target.data != b"")
        text = f"{args.target} has {lines} lines, so nothing can be inserted after line {args.line}"
        return ToolResult.failure("no_line", text, data={"total_lines": lines})
    return made


def _splice_result(args: _SpliceArguments, source: FileContent, done: WriteOutcome) -> ToolResult:
    lines = source.data.count(b"\n") + (not source.data.endswith(b"\n") and source.data != b"")
    facts: Json = {
        "source": source.path,
        "target": done.path,
        "mode": args.mode,
        "line": args.line,
        "lines_spliced": lines,
        "bytes_spliced": len(source.data),
        "bytes_written": done.result.bytes_written,
        "created": done.result.created,
    }
    where = {
        "append": "at the end of",
        "prepend": "at the start of",
        "replace": "in place of",
        "insert": f"after line {args.line} of",
    }[args.mode]
    return ToolResult.of(f"Put {counted(lines, 'line')} of {source.path} {where} {done.path}", data=facts)


# -- ``tabcount``: count the leading tabs of each line.


MAX_TABS = 2_000
"""Maximum lines of one result."""


def tabs_of(data: bytes, start: int, end: int) -> tuple[list[tuple[int, int]], int]:
    """Return lines ``start`` to ``end`` (0: the last) with their leading tabs, and how many are omitted. Pure."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    first = max(1, start)
    last = min(end, len(lines)) if end else len(lines)
    shown = min(last, first + MAX_TABS - 1)
    found = [(number, _tabs(lines[number - 1])) for number in range(first, shown + 1)]
    return found, max(0, last - max(shown, first - 1))


def _tabs(line: bytes) -> int:
    return len(line) - len(line.lstrip(b"\t"))


class _TabCountArguments(Arguments):
    file: Line = Field(description="the file", validation_alias=FILE)
    start_line: int = Field(0, ge=0, description="the first line, counted from 1; 0 is the start")
    end_line: int = Field(0, ge=0, description="the last line; 0 is the end of the file")


class TabCount(Tool[_TabCountArguments]):
    """``tabcount``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_READ, parallelizable=True, cacheable=True, packs=("dev",))
        text = "Count the leading tabs of each line of a file, to see its indentation if an edit does not match"
        super().__init__("tabcount", text, _TabCountArguments, traits)

    def subjects(self, args: _TabCountArguments) -> tuple[Subject, ...]:
        return (Subject("read", args.file),)

    async def run(self, args: _TabCountArguments, ctx: ToolContext) -> ToolResult:
        content = await whole_text(ctx, args.file)
        if isinstance(content, ToolResult):
            return content
        found, left_out = tabs_of(content.data, args.start_line, args.end_line)
        lines: list[Json] = [{"line": number, "tabs": tabs} for number, tabs in found]
        facts: Json = {"file": content.path, "lines": lines, "total_lines": len(lines), "left_out": left_out}
        return ToolResult.of(_text(found, left_out), data=facts, metadata=depends_on(content))


def _text(found: Sequence[tuple[int, int]], left_out: int) -> str:
    if not found:
        return "(no such lines)"
    rest = [f"[{left_out} more lines: continue with start_line={found[-1][0] + 1}]"] if left_out else []
    return "\n".join([*_runs(found), *rest])


def _runs(found: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield one text for consecutive lines with the same number of tabs."""
    for tabs, run in groupby(found, key=lambda one: one[1]):
        numbers = [number for number, _ in run]
        where = f"line {numbers[0]}" if len(numbers) == 1 else f"lines {numbers[0]} to {numbers[-1]}"
        yield f"{where}: {counted(tabs, 'tab')}"


# -- ``split``: split a file into parts.


MAX_PARTS = 500
"""Maximum lines at which a file is split in one call."""


@dataclass(frozen=True, slots=True)
class Part:
    """Lines ``first`` to ``last`` of the file."""

    first: int
    last: int
    data: bytes


def parts_of(data: bytes, lines: Iterable[int]) -> tuple[list[Part], list[int]]:
    """Return the parts, each of which ends with one of the lines, and the lines that cannot end one. Pure.

    A line that does not exist, or is the last one, ends no part.
    """
    wanted, parts, at, number, first = sorted(set(lines)), list[Part](), 0, 0, 1
    start = 0
    for line in wanted:
        while number < line:
            end = data.find(b"\n", at) + 1
            if end == 0 or end >= len(data):
                break
            at, number = end, number + 1
        if number < line:
            break
        parts.append(Part(first, line, data[start:at]))
        first, start = line + 1, at
    ignored = wanted[len(parts) :]
    last = number + data.count(b"\n", at) + (not data.endswith(b"\n"))
    return ([*parts, Part(first, last, data[start:])] if parts else []), ignored


def part_name(path: str, number: int, count: int) -> str:
    """Return the name of a part: ``base_001.ext``, with three digits or as many as required."""
    base, extension = posixpath.splitext(path)
    return f"{base}_{number:0{max(3, len(str(count)))}d}{extension}"


class _SplitArguments(MutatingArguments):
    file: Line = Field(description="the file; it is not changed", validation_alias=FILE)
    lines: list[Annotated[int, Field(ge=1)]] = Field(
        min_length=1, max_length=MAX_PARTS, description="the last line number of each part"
    )
    overwrite: bool = Field(False, description="overwrite existing parts, which must have been read")


class Split(Tool[_SplitArguments]):
    """``split``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, packs=("dev",))
        text = (
            "Split a file at line numbers into files next to it, name_001.ext and so on. Existing parts are refused "
            "before anything is written, unless overwrite is set."
        )
        super().__init__("split", text, _SplitArguments, traits)

    def subjects(self, args: _SplitArguments) -> tuple[Subject, ...]:
        count = len(set(args.lines)) + 1
        names = (part_name(args.file, number, count) for number in range(1, count + 1))
        return (Subject("read", args.file), *(Subject("write", name) for name in names))

    async def run(self, args: _SplitArguments, ctx: ToolContext) -> ToolResult:
        content = await whole_file(ctx, args.file)
        if isinstance(content, ToolResult):
            return content
        parts, ignored = parts_of(content.data, args.lines)
        if not parts:
            total = content.data.count(b"\n") + (content.data != b"" and not content.data.endswith(b"\n"))
            text = f"{args.file} has {total} lines: no line follows any of these"
            return ToolResult.failure("no_line", text, data={"total_lines": total})
        count = len(set(args.lines)) + 1  # counted like the subjects, so that only allowed files are written
        names = [part_name(args.file, number, count) for number in range(1, len(parts) + 1)]
        there = [] if args.overwrite else await _there(ctx, content, names)
        if there:
            text = f"these files already exist: {', '.join(there)}. Nothing was written"
            return ToolResult.failure("file_exists", text, data={"existing": list(there)})
        made = _SplitProgress(content, ignored)
        await _write(args, ctx, made, list(zip(names, parts, strict=True)))
        return made.result()


async def _there(ctx: ToolContext, content: FileContent, names: Sequence[str]) -> list[str]:
    """Return the parts that exist, next to the given name, which may be a link."""
    directory = posixpath.dirname(target_path(ctx, names[0])) or "."
    known = {entry.name for entry in await ctx.execution.list_dir(directory)}
    return [name for name in names if posixpath.basename(name) in known]


@dataclass(slots=True)
class _SplitProgress:
    """The parts that were written so far, and the problem that ended it."""

    content: FileContent
    ignored: list[int]
    parts: list[Json] = field(default_factory=list)
    problem: ToolResult | None = None

    def wrote(self, part: Part, path: str) -> None:
        """Record one more part."""
        lines = part.last - part.first + 1
        self.parts.append(
            {"file": path, "from_line": part.first, "to_line": part.last, "lines": lines, "bytes": len(part.data)}
        )

    def result(self) -> ToolResult:
        """Return the result."""
        listed = [
            f"{part['file']}: lines {part['from_line']} to {part['to_line']}" for part in map(_object, self.parts)
        ]
        facts: Json = {
            "source": self.content.path,
            "parts": self.parts,
            "count": len(self.parts),
            "ignored_lines": list(self.ignored),
        }
        if self.ignored:
            listed.append(
                f"[no part ends with {', '.join(map(str, self.ignored[:20]))}: the file has no line after it]"
            )
        if self.problem is None:
            text = "\n".join([f"Split {self.content.path} into {counted(len(self.parts), 'file')}", *listed])
            return ToolResult.of(text, data=facts)
        done = ["Parts written before the error:", *listed] if listed else ["No part was written."]
        return ToolResult.failure(self.problem.error_code, "\n".join([self.problem.text, *done]), data=facts)


def _object(value: Json) -> dict[str, Json]:
    assert isinstance(value, dict)
    return value


async def _write(
    args: _SplitArguments, ctx: ToolContext, made: _SplitProgress, parts: Sequence[tuple[str, Part]]
) -> None:
    for name, part in parts:
        mode: WriteMode = "overwrite" if args.overwrite else "create"
        bits = None if args.overwrite else made.content.mode & 0o777
        try:
            done = await guarded_write(ctx, name, part.data, mode=mode, parents=False, permissions=bits)
        except FileError as error:
            done, _ = failure_of(error, "split")
        if isinstance(done, ToolResult):
            made.problem = done
            return
        made.wrote(part, done.path)
