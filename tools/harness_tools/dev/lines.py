"""``split``: a file in parts, each a file of its own."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from harness.backend import WriteMode
from harness.errors import FileError
from harness.results import FileContent
from harness.toolkit import Category, Json, MutatingArguments, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.failures import failure_of
from harness.toolkit.reads import guarded_write, target_path

from ..texts import Line
from .textfiles import FILE, counted, whole_file

__all__ = ["Part", "Split", "part_name", "parts_of"]

MOST = 500
"""Lines at which a file may be split in one call."""


@dataclass(frozen=True, slots=True)
class Part:
    """Lines ``first`` to ``last`` of the file."""

    first: int
    last: int
    data: bytes


def parts_of(data: bytes, lines: Iterable[int]) -> tuple[list[Part], list[int]]:
    """The parts, each of which ends with one of the lines, and the lines that cannot be the end of one. Pure.

    A line that does not exist, or is the last of all, ends no part.
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
    """The name of a part: ``base_001.ext``, with three digits or as many as are needed."""
    base, extension = posixpath.splitext(path)
    return f"{base}_{number:0{max(3, len(str(count)))}d}{extension}"


class _Arguments(MutatingArguments):
    file: Line = Field(description="the file; it stays as it is", validation_alias=FILE)
    lines: list[Annotated[int, Field(ge=1)]] = Field(
        min_length=1, max_length=MOST, description="the numbers of the lines that are the last of a part"
    )
    overwrite: bool = Field(False, description="write over parts that exist, which must have been read then")


class Split(Tool[_Arguments]):
    """``split``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, packs=("dev",))
        text = (
            "Split a file at line numbers into files beside it, name_001.ext and so on. Parts that exist already are "
            "refused before anything is written, unless overwrite is set."
        )
        super().__init__("split", text, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        count = len(set(args.lines)) + 1
        names = (part_name(args.file, number, count) for number in range(1, count + 1))
        return (Subject("read", args.file), *(Subject("write", name) for name in names))

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        content = await whole_file(ctx, args.file)
        if isinstance(content, ToolResult):
            return content
        parts, ignored = parts_of(content.data, args.lines)
        if not parts:
            total = content.data.count(b"\n") + (content.data != b"" and not content.data.endswith(b"\n"))
            text = f"{args.file} has {total} lines: none of these lines has another one behind it"
            return ToolResult.failure("no_line", text, data={"total_lines": total})
        count = len(set(args.lines)) + 1  # as the subjects count, so that what was allowed is what is written
        names = [part_name(args.file, number, count) for number in range(1, len(parts) + 1)]
        there = [] if args.overwrite else await _there(ctx, content, names)
        if there:
            text = f"there are files of these names already: {', '.join(there)}. Nothing was written"
            return ToolResult.failure("file_exists", text, data={"existing": list(there)})
        made = _Made(content, ignored)
        await _write(args, ctx, made, list(zip(names, parts, strict=True)))
        return made.result()


async def _there(ctx: ToolContext, content: FileContent, names: Sequence[str]) -> list[str]:
    """Those of the parts that exist. They are beside the name that was given, which may be a link's."""
    directory = posixpath.dirname(target_path(ctx, names[0])) or "."
    known = {entry.name for entry in await ctx.execution.list_dir(directory)}
    return [name for name in names if posixpath.basename(name) in known]


@dataclass(slots=True)
class _Made:
    """What was written so far, and why not more was."""

    content: FileContent
    ignored: list[int]
    parts: list[Json] = field(default_factory=list)
    problem: ToolResult | None = None

    def wrote(self, part: Part, path: str) -> None:
        """One more part."""
        lines = part.last - part.first + 1
        self.parts.append(
            {"file": path, "from_line": part.first, "to_line": part.last, "lines": lines, "bytes": len(part.data)}
        )

    def result(self) -> ToolResult:
        """What came of it."""
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
        done = ["These parts were written before:", *listed] if listed else ["No part was written."]
        return ToolResult.failure(self.problem.error_code, "\n".join([self.problem.text, *done]), data=facts)


def _object(value: Json) -> dict[str, Json]:
    assert isinstance(value, dict)
    return value


async def _write(args: _Arguments, ctx: ToolContext, made: _Made, parts: Sequence[tuple[str, Part]]) -> None:
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
