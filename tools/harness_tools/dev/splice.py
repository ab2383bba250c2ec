"""``splice``: the content of one file goes into another."""

from __future__ import annotations

from codecs import BOM_UTF8
from functools import partial
from typing import Literal

from pydantic import Field, model_validator

from harness.errors import FileNotFound
from harness.results import FileContent
from harness.toolkit import Category, Json, MutatingArguments, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.reads import Written, guarded_edit, guarded_write, target_path

from ..filelines import line_start
from ..matching import Endings
from ..texts import Line
from .textfiles import LIMIT, counted, no_text, whole_file

__all__ = ["Splice", "spliced"]

Place = Literal["append", "prepend", "insert"]
Mode = Literal["append", "prepend", "replace", "insert"]


def spliced(target: bytes, source: bytes, mode: Place, line: int = 0) -> bytes | None:
    """The target's content with the source's in it; None when it has no line ``line``. Pure.

    Where the two meet in the middle of a line, a line end like those of the target is put between them. A byte order
    mark of the target stays where it is, and the source's is left out.
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
    """The place behind a line; None when there is no such line."""
    start = line_start(body, line)
    if start is None or start >= len(body):
        return None
    return body.find(b"\n", start) + 1 or len(body)


def _joined(first: bytes, second: bytes, ending: bytes) -> tuple[bytes, bytes, bytes]:
    """Two contents and what has to be between them."""
    apart = bool(first) and bool(second) and not first.endswith(b"\n")
    return first, ending if apart else b"", second


class _Arguments(MutatingArguments):
    source: Line = Field(description="the file whose content is taken; it stays as it is")
    target: Line = Field(description="the file that it goes into")
    mode: Mode = Field(description="where: at its end, at its beginning, in its place, or behind a line")
    line: int | None = Field(None, ge=1, description="for insert: the line behind which it goes, counted from 1")

    @model_validator(mode="after")
    def _line_with_insert(self) -> _Arguments:
        if (self.mode == "insert") != (self.line is not None):
            raise ValueError("line goes with mode insert, and insert needs it")
        return self


class Splice(Tool[_Arguments]):
    """``splice``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, packs=("dev",))
        text = (
            "Put the content of one file into another: at its end or beginning, behind a line, or in its place. Read "
            "the target first. Nothing else of it changes."
        )
        super().__init__("splice", text, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return (Subject("read", args.source), Subject("write", args.target))

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        source = await whole_file(ctx, args.source)
        if isinstance(source, ToolResult):
            return source
        if await _same(ctx, source, args.target):
            return ToolResult.failure("same_file", f"{args.source} and {args.target} are the same file")
        if args.mode == "replace":
            done = await guarded_write(ctx, args.target, source.data)
        else:
            done = await guarded_edit(ctx, args.target, partial(_changed, args, source.data), most=LIMIT)
        return _result(args, source, done) if isinstance(done, Written) else done


async def _same(ctx: ToolContext, source: FileContent, target: str) -> bool:
    try:
        return (await ctx.execution.stat(target_path(ctx, target))).path == source.path
    except FileNotFound:
        return False


def _changed(args: _Arguments, source: bytes, target: FileContent) -> bytes | ToolResult:
    refusal = no_text(args.source, source) or no_text(args.target, target.data)
    if refusal is not None:
        return refusal
    assert args.mode != "replace"
    made = spliced(target.data, source, args.mode, args.line or 0)
    if made is None:
        lines = target.data.count(b"\n") + (not target.data.endswith(b"\n") and target.data != b"")
        text = f"{args.target} has {lines} lines: there is no line {args.line} behind which to insert"
        return ToolResult.failure("no_line", text, data={"total_lines": lines})
    return made


def _result(args: _Arguments, source: FileContent, done: Written) -> ToolResult:
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
        "prepend": "at the beginning of",
        "replace": "in the place of",
        "insert": f"behind line {args.line} of",
    }[args.mode]
    return ToolResult.of(f"Put {counted(lines, 'line')} of {source.path} {where} {done.path}", data=facts)
