"""How much of a result a model gets: head and tail of each text, with the number of characters between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from .contract import OutputLimit
from .seams import Outputs
from .values import BLOCK_LIMIT, Advice, Block, Cut, Omitted, Text, ToolResult

__all__ = ["BLOCK_LIMIT", "cut", "cut_again", "cut_ends", "cut_result", "fit_items", "size_of"]

ESCAPE = 64
"""Characters of an escape sequence, at most."""
_ESCAPE = re.compile(
    rf"\x1b(?:\[[0-?]{{0,{ESCAPE}}}[ -/]?[@-~]?|[\]PX^_][^\x07\x1b\n]{{0,{ESCAPE}}}(?:\x07|\x1b\\)?|[ -/]?.)?"
)
_NOTICE = re.compile(r"\[\.\.\. \d+ of \d+ (?:characters|bytes) left out[^\n]* \.\.\.\]")
Item = TypeVar("Item")
LINE_SEARCH = 200
"""How far from the cut a line's end is looked for."""


def cut(text: str, limit: OutputLimit, handle: str = "", omitted: Omitted | None = None) -> str:
    """The text, or its head and tail with a line between them that says how much is missing. Pure.

    Args:
        omitted: what the text lacks already: it is counted with the rest, and told at the end where nothing is cut.
    """
    ends = cut_ends(text, limit)
    if ends is None:
        return text if omitted is None else f"{text}\n[{_amounts(text, 0, 0, omitted)}]"
    head, start = ends
    amounts = _amounts(text, head, start, omitted)
    notice = f"[... {amounts}{_whole(handle) if omitted is None else ''} ...]"
    joined = "\n" if head and not text[:head].endswith("\n") else ""
    return f"{text[:head]}{joined}{notice}" + (f"\n{text[start:]}" if min(limit.tail, limit.characters) else "")


def cut_ends(text: str, limit: OutputLimit) -> tuple[int, int] | None:
    """Where the head ends and the tail starts of a text that is too long; None when it is not. Pure."""
    room = min(limit.characters, BLOCK_LIMIT)
    if len(text) <= room:
        return None
    tail = min(limit.tail, room)
    return _head_end(text, room - tail), _tail_start(text, len(text) - tail)


def _amounts(text: str, head: int, start: int, omitted: Omitted | None) -> str:
    """How much of the whole is missing: in characters, or in bytes where the target has counted some. Pure."""
    if omitted is None:
        return f"{start - head} of {len(text)} characters left out"
    missing, total = (size_of(part) + omitted.count for part in (text[head:start], text))
    return f"{missing} of {total} bytes left out{omitted.whole}"


def size_of(text: str) -> int:
    """The bytes of a text, as programs write it."""
    return len(text.encode("utf-8", "surrogatepass"))


def _head_end(text: str, end: int) -> int:
    line = text.rfind("\n", max(0, end - LINE_SEARCH), end)
    return line + 1 if line >= 0 else _unbroken(text, end)[0]


def _tail_start(text: str, start: int) -> int:
    line = text.find("\n", start, start + LINE_SEARCH)
    return line + 1 if line >= 0 else _unbroken(text, start)[1]


def _unbroken(text: str, at: int) -> tuple[int, int]:
    """The nearest places before and after ``at`` that split no pair of surrogates and no escape sequence."""
    if 0 < at < len(text) and "\ud800" <= text[at - 1] < "\udc00" <= text[at] <= "\udfff":
        return at - 1, at + 1
    escape = text.rfind("\x1b", max(0, at - ESCAPE), at)
    match = _ESCAPE.match(text, escape) if escape >= 0 else None
    return (escape, match.end()) if match and match.end() > at else (at, at)


def cut_again(text: str, limit: OutputLimit, before: Cut) -> str:
    """A text that was cut before, with less of its head and tail and one notice for both cuts. Pure."""
    end = len(text) - before.tail
    notice = text[before.head : end].strip("\n")
    if end < before.head or not _NOTICE.fullmatch(notice):  # it was changed since
        return cut(text, limit)
    room = min(limit.characters, BLOCK_LIMIT)
    tail = min(limit.tail, room, before.tail)
    head = min(room - tail, before.head)
    if (head, tail) == (before.head, before.tail):
        return text
    head = head if head == before.head else _head_end(text, head)
    start = end if tail == before.tail else _tail_start(text, len(text) - tail)
    kept = text[:head] + text[start:]
    missing = before.total - (len(kept) if before.unit == "characters" else size_of(kept))
    whole = before.whole if before.whole in notice else ""  # a profile may have left it out
    joined = "\n" if head and not text[:head].endswith("\n") else ""
    gap = f"{joined}[... {missing} of {before.total} {before.unit} left out{whole} ...]"
    return f"{text[:head]}{gap}" + (f"\n{text[start:]}" if tail else "")


def _how_cut(text: str, limit: OutputLimit, handle: str, omitted: Omitted | None) -> Cut | None:
    """What :func:`cut` does to a text."""
    head, start = cut_ends(text, limit) or (len(text), len(text))
    if head == start:
        return None
    tail = len(text) - start if min(limit.tail, limit.characters) else 0
    if omitted is None:
        return Cut(head, tail, len(text), whole=_whole(handle))
    return Cut(head, tail, size_of(text) + omitted.count, "bytes", omitted.whole)


async def cut_result(result: ToolResult, limit: OutputLimit, outputs: Outputs | None, call_id: str) -> ToolResult:
    """A result within the limit; what is left out is kept, and ``metadata["full_output"]`` is its handle."""
    if result.omitted is not None:
        return await _cut_further(result, result.omitted, limit, outputs, call_id)
    room = min(limit.characters, BLOCK_LIMIT)
    if result.cut is not None and len(result.text) > room:
        return replace(result, content=_with_text(result, cut_again(result.text, limit, result.cut)), cut=None)
    long = [block.text for block in result.content if isinstance(block, Text) and len(block.text) > room]
    if not long:
        return result
    handle = await outputs.keep(call_id, "\n".join(long)) if outputs is not None else ""
    content: tuple[Block, ...] = tuple(
        Text(cut(block.text, limit, handle)) if isinstance(block, Text) else block for block in result.content
    )
    whole = Advice(_whole(handle), tools=("read_output",))
    metadata = {**result.metadata, "truncated": True, "full_output": handle}
    texts = [block.text for block in result.content if isinstance(block, Text)]
    how = _how_cut(texts[0], limit, handle, None) if len(texts) == 1 else None
    return replace(result, content=content, metadata=metadata, advice=(*result.advice, *[whole] * len(long)), cut=how)


async def _cut_further(
    result: ToolResult, omitted: Omitted, limit: OutputLimit, outputs: Outputs | None, call_id: str
) -> ToolResult:
    """A result whose text lacks something already: one notice counts both."""
    handle = await outputs.keep(call_id, result.text) if outputs is not None else ""
    metadata = {**result.metadata, "truncated": True, "full_output": handle}
    content = _with_text(result, cut(result.text, limit, omitted=omitted))
    how = _how_cut(result.text, limit, "", omitted)
    return replace(result, content=content, metadata=metadata, omitted=None, cut=how)


def _with_text(result: ToolResult, text: str) -> tuple[Block, ...]:
    others = (block for block in result.content if not isinstance(block, Text))
    return (Text(text), *others)


def _whole(handle: str) -> str:
    return f"; the whole is {handle}" if handle else ""


def fit_items(
    items: Sequence[Item], render: Callable[[Sequence[Item]], str], limit: OutputLimit
) -> tuple[list[Item], int]:
    """The first items whose rendering, as a whole, is within the limit, and how many were dropped. Pure.

    For results that are JSON or a table: cut in the middle they would be neither. ``render`` must not become shorter
    with more items; it is called about as often as the number of items has binary digits.
    """
    room = min(limit.characters, BLOCK_LIMIT)
    if len(render(items)) <= room:
        return list(items), 0
    fits, too_many = 0, len(items)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if len(render(items[:middle])) <= room:
            fits = middle
        else:
            too_many = middle
    return list(items[:fits]), len(items) - fits
