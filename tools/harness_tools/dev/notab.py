"""``notab``: tabs become spaces, or the spaces at the beginning of lines tabs."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from dataclasses import dataclass
from functools import partial

from pydantic import Field

from harness.results import FileContent
from harness.toolkit import Category, Json, MutatingArguments, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.reads import Written, guarded_edit

from ..texts import Line
from .textfiles import FILE, LIMIT, counted, no_text

__all__ = ["NoTab", "Respaced", "respaced"]

_LEADING = re.compile(rb"^[ \t]+", re.MULTILINE)
"""Linear: each position is tried once, and what follows a match is no white space."""


@dataclass(frozen=True, slots=True)
class Respaced:
    """A content after the change. ``replacements`` are tabs that went, or that came."""

    data: bytes
    replacements: int
    lines: int


def respaced(data: bytes, spaces: int, *, tabs: bool) -> Respaced:
    """A content with spaces for its tabs, or with ``tabs`` the other way, in the indentation alone. Pure."""
    blanks = b" " * spaces
    if not tabs:
        lines = sum(b"\t" in line for line in data.split(b"\n"))
        return Respaced(data.replace(b"\t", blanks), data.count(b"\t"), lines)
    replacements = lines = 0

    def indent(match: re.Match[bytes]) -> bytes:
        nonlocal replacements, lines
        found = match[0].count(blanks)
        replacements, lines = replacements + found, lines + (found > 0)
        return match[0].replace(blanks, b"\t")

    mark = BOM_UTF8 if data.startswith(BOM_UTF8) else b""
    made = mark + _LEADING.sub(indent, data[len(mark) :])
    return Respaced(made, replacements, lines)


class _Arguments(MutatingArguments):
    file: Line = Field(description="the file", validation_alias=FILE)
    spaces: int = Field(4, ge=1, le=16, description="how many spaces one tab stands for")
    tabs: bool = Field(
        False, description="the other way: spaces at the beginning of lines become tabs, as in makefiles"
    )


class NoTab(Tool[_Arguments]):
    """``notab``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, packs=("dev",))
        text = (
            "Write spaces for each tab of a file, or with tabs=true tabs for the spaces that lines begin with. Nothing "
            "else of it changes. Read the file first."
        )
        super().__init__("notab", text, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return (Subject("write", args.file),)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        made: list[Respaced] = []
        done = await guarded_edit(ctx, args.file, partial(_changed, args, made), most=LIMIT)
        if isinstance(done, Written):
            return _result(args, done.path, made[0])
        return done if done.error_code else _result(args, done.text, made[0])


def _changed(args: _Arguments, made: list[Respaced], content: FileContent) -> bytes | ToolResult:
    """The new content; where nothing changes, a result that says which file that is."""
    refusal = no_text(args.file, content.data)
    if refusal is not None:
        return refusal
    size = content.size + content.data.count(b"\t") * (args.spaces - 1)
    if not args.tabs and size > LIMIT:
        text = f"{args.file} would grow to {size} bytes, more than {LIMIT}: use a command. Nothing was changed"
        return ToolResult.failure("too_big", text)
    made.append(respaced(content.data, args.spaces, tabs=args.tabs))
    return made[0].data if made[0].replacements else ToolResult.of(content.path)


def _result(args: _Arguments, path: str, made: Respaced) -> ToolResult:
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
