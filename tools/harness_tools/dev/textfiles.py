"""Files that a tool takes as a whole: text, and not too large to be held here."""

from __future__ import annotations

from pydantic import AliasChoices

from harness.results import FileContent
from harness.toolkit import ToolContext, ToolResult
from harness.toolkit.reads import target_path
from harness.toolkit.values import Advice

from ..encodings import wide_bom

__all__ = ["FILE", "LIMIT", "counted", "no_text", "whole_file", "whole_text"]

LIMIT = 64 << 20
"""Bytes of a file that is taken as a whole."""
FILE = AliasChoices("file", "path", "file_path")


def counted(number: int, one: str, several: str = "") -> str:
    """A number with its noun: ``1 line``, ``2 lines``."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def no_text(path: str, data: bytes) -> ToolResult | None:
    """The refusal to take a content for text; None when it is text."""
    if b"\0" not in data:
        return None
    wide = wide_bom(data)
    way = Advice(", which utf8 converts", tools=("utf8",))
    hint = f": it begins like {wide.upper()}{way.text}" if wide else ""
    return ToolResult.failure("binary", f"{path} is no text: it holds NUL bytes{hint}", advice=(way,))


async def whole_file(ctx: ToolContext, path: str) -> FileContent | ToolResult:
    """All of a file, or the refusal when it is too big.

    Raises:
        FileError: it cannot be read.
    """
    content = await ctx.execution.read_file(target_path(ctx, path), limit=LIMIT + 1)
    if content.size > LIMIT:
        return ToolResult.failure("too_big", f"{path} holds {content.size} bytes, more than {LIMIT}: use a command")
    return content


async def whole_text(ctx: ToolContext, path: str) -> FileContent | ToolResult:
    """All of a text file, or the refusal.

    Raises:
        FileError: it cannot be read.
    """
    content = await whole_file(ctx, path)
    if isinstance(content, ToolResult):
        return content
    return no_text(path, content.data) or content
