"""How much of a result a model gets: head and tail of each text, with the number of characters between them."""

from __future__ import annotations

from dataclasses import replace

from .seams import Outputs
from .tool import OutputLimit
from .values import Block, Text, ToolResult

__all__ = ["BLOCK_LIMIT", "cut", "cut_result"]

BLOCK_LIMIT = 64 << 10
"""Characters of one text block, whatever a tool allows."""
LINE_SEARCH = 200
"""How far from the cut a line's end is looked for."""


def cut(text: str, limit: OutputLimit, handle: str = "") -> str:
    """The text, or its head and tail with a line between them that says how much is missing. Pure."""
    room = min(limit.characters, BLOCK_LIMIT)
    if len(text) <= room:
        return text
    tail = min(limit.tail, room)
    head = _head_end(text, room - tail)
    start = _tail_start(text, len(text) - tail)
    whole = f"; the whole is {handle}" if handle else ""
    notice = f"[... {start - head} of {len(text)} characters left out{whole} ...]"
    joined = "\n" if head and not text[:head].endswith("\n") else ""
    return f"{text[:head]}{joined}{notice}" + (f"\n{text[start:]}" if tail else "")


def _head_end(text: str, end: int) -> int:
    line = text.rfind("\n", max(0, end - LINE_SEARCH), end)
    return line + 1 if line >= 0 else end


def _tail_start(text: str, start: int) -> int:
    line = text.find("\n", start, start + LINE_SEARCH)
    return line + 1 if line >= 0 else start


async def cut_result(result: ToolResult, limit: OutputLimit, outputs: Outputs | None, call_id: str) -> ToolResult:
    """A result within the limit; what is left out is kept, and ``metadata["full_output"]`` is its handle."""
    room = min(limit.characters, BLOCK_LIMIT)
    long = [block.text for block in result.content if isinstance(block, Text) and len(block.text) > room]
    if not long:
        return result
    handle = await outputs.keep(call_id, "\n".join(long)) if outputs is not None else ""
    content: tuple[Block, ...] = tuple(
        Text(cut(block.text, limit, handle)) if isinstance(block, Text) else block for block in result.content
    )
    return replace(result, content=content, metadata={**result.metadata, "truncated": True, "full_output": handle})
