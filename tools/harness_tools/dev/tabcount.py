"""``tabcount``: how deep the lines of a file are indented with tabs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from pydantic import Field

from harness.toolkit import Arguments, Category, Json, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.results_cache import depends_on

from ..texts import Line
from .textfiles import FILE, whole_text

__all__ = ["TabCount", "tabs_of"]

MOST = 2_000
"""Lines of one answer."""


def tabs_of(data: bytes, start: int, end: int) -> tuple[list[tuple[int, int]], int]:
    """The lines from ``start`` to ``end`` (0: the last) with their leading tabs, and how many were left out. Pure."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    first = max(1, start)
    last = min(end, len(lines)) if end else len(lines)
    shown = min(last, first + MOST - 1)
    found = [(number, _tabs(lines[number - 1])) for number in range(first, shown + 1)]
    return found, max(0, last - max(shown, first - 1))


def _tabs(line: bytes) -> int:
    return len(line) - len(line.lstrip(b"\t"))


class _Arguments(Arguments):
    file: Line = Field(description="the file", validation_alias=FILE)
    start_line: int = Field(0, ge=0, description="the first line, counted from 1; 0 is the beginning")
    end_line: int = Field(0, ge=0, description="the last line; 0 is the end of the file")


class TabCount(Tool[_Arguments]):
    """``tabcount``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_READ, parallelizable=True, cacheable=True, packs=("dev",))
        text = (
            "Count the tabs at the beginning of each line of a file: to see its indentation when an edit does not match"
        )
        super().__init__("tabcount", text, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return (Subject("read", args.file),)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        content = await whole_text(ctx, args.file)
        if isinstance(content, ToolResult):
            return content
        found, left_out = tabs_of(content.data, args.start_line, args.end_line)
        lines: list[Json] = [{"line": number, "tabs": tabs} for number, tabs in found]
        facts: Json = {"file": content.path, "lines": lines, "total_lines": len(lines), "left_out": left_out}
        return ToolResult.of(_text(found, left_out), data=facts, metadata=depends_on(content))


def _text(found: Sequence[tuple[int, int]], left_out: int) -> str:
    if not found:
        return "(there are no such lines)"
    rest = [f"[{left_out} more lines: go on with start_line={found[-1][0] + 1}]"] if left_out else []
    return "\n".join([*_runs(found), *rest])


def _runs(found: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Lines that follow each other and have as many tabs are told at once."""
    for tabs, run in groupby(found, key=lambda one: one[1]):
        numbers = [number for number, _ in run]
        where = f"line {numbers[0]}" if len(numbers) == 1 else f"lines {numbers[0]} to {numbers[-1]}"
        yield f"{where}: {tabs} {'tab' if tabs == 1 else 'tabs'}"
