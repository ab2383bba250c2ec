"""Where the lines that are asked for are: in the first bytes of a file, or further on, which the target finds out."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from harness.results import FileContent, Status
from harness.toolkit import ToolContext, ToolResult
from harness.toolkit.reads import target_path
from harness.toolkit.values import Advice

from .encodings import WIDE, decode_text, wide_bom
from .filelines import LINE_SHOWN, Window, line_start

__all__ = ["WIDE_LIMIT", "WINDOW", "Found", "binary", "find_lines"]

WINDOW = 256 << 10
"""Bytes of a file that are fetched at once: as much as comes in one round trip."""
WIDE_LIMIT = 8 << 20
"""Bytes of a file in an encoding that has no newline of one byte: it is fetched as a whole."""
COUNTING = 60.0
"""Seconds for finding a line on the target."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where the lines are. ``content`` says what was read; ``total`` is the number of lines, where that is known.

    ``window`` is empty behind the end of the file.
    """

    content: FileContent
    window: Window
    total: int | None = None


def binary(path: str, data: bytes, size: int) -> ToolResult:
    """The refusal to show what is no text."""
    wide = wide_bom(data)
    way = Advice(f": read it with encoding={wide!r}", ("encoding",))
    hint = f"; it begins like {wide.upper()}{way.text}" if wide else ""
    text = f"{path} is no text: it holds NUL bytes ({size} bytes in all){hint}"
    return ToolResult.failure("binary", text, advice=(way,))


async def find_lines(ctx: ToolContext, path: str, line: int, limit: int, encoding: str) -> Found | ToolResult:
    """Find line ``line`` of a file, for up to ``limit`` lines; at most :data:`WINDOW` bytes are kept.

    Raises:
        FileError: it cannot be read.
    """
    where = target_path(ctx, path)
    if encoding in WIDE:
        return await _wide(ctx, where, path, line, encoding)
    enough = WINDOW if line > 1 else min(WINDOW, limit * (LINE_SHOWN + 1) + 1)
    head = await ctx.execution.read_file(where, limit=enough)
    if b"\0" in head.data:
        _know(ctx, head)
        return binary(path, head.data, head.size)
    complete = len(head.data) >= head.size
    start = line_start(head.data, line)
    if start is not None and (complete or line == 1):
        return _found(head, Window(head.data[start:], line, start, complete, encoding), head.data)
    if complete:
        return Found(head, Window(b"", line, head.size), _lines_in(head.data))
    if start is None:
        return await _further(ctx, path, head, line, encoding)
    rest = await ctx.execution.read_file(head.path, offset=start, limit=WINDOW)
    return _checked(ctx, path, rest, Window(rest.data, line, start, start + len(rest.data) >= rest.size, encoding))


def _know(ctx: ToolContext, content: FileContent) -> None:
    """That there is this version is known now, and nothing of what is in it."""
    ctx.reads.saw_part(content.path, content.version, 0, 0, max(1, content.size))


def _found(content: FileContent, window: Window, whole: bytes) -> Found:
    return Found(content, window, _lines_in(whole) if window.complete else None)


def _checked(ctx: ToolContext, path: str, content: FileContent, window: Window) -> Found | ToolResult:
    if b"\0" in window.data:
        _know(ctx, content)
        return binary(path, window.data, content.size)
    total = window.first - 1 + _lines_in(window.data) if window.complete else None
    return Found(content, window, total)


def _lines_in(data: bytes) -> int:
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


async def _wide(ctx: ToolContext, where: str, path: str, line: int, encoding: str) -> Found | ToolResult:
    """A file in UTF-16 or UTF-32, as if it were UTF-8; offsets mean nothing then."""
    content = await ctx.execution.read_file(where, limit=WIDE_LIMIT + 1)
    if content.size > WIDE_LIMIT:
        way = Advice(": give byte_offset", ("byte_offset",))
        text = f"{path} holds {content.size} bytes, which is too much for lines in {encoding}{way.text}"
        return ToolResult.failure("too_big", text, advice=(way,))
    data = decode_text(content.data, encoding).encode("utf-8", "surrogatepass")
    start = line_start(data, line)
    window = Window(b"" if start is None else data[start:], line, start or 0)
    return _found(content, window, data)


async def _further(ctx: ToolContext, path: str, head: FileContent, line: int, encoding: str) -> Found | ToolResult:
    """A line behind the first window: the target counts, and only what is shown is fetched."""
    script = f"head -n {line - 1} <{shlex.quote(head.path)} | wc -lc"
    done = await ctx.execution.run_beside(script, timeout=COUNTING, max_output=4096)
    counts = done.stdout.split()
    if done.status is not Status.COMPLETED or len(counts) != 2 or not all(count.isdecimal() for count in counts):
        why = done.stderr.strip()[:200] or f"it took longer than {COUNTING:.0f} s"
        way = Advice(": go on with byte_offset instead", ("byte_offset",))
        text = f"line {line} of {path} could not be found on the target ({why}){way.text}"
        return ToolResult.failure("not_located", text, advice=(way,))
    lines, start = int(counts[0]), int(counts[1])
    content = await ctx.execution.read_file(head.path, offset=max(0, start - 1), limit=WINDOW + 1)
    before, rest = content.data[:1], content.data[1:]
    if lines < line - 1:
        return Found(content, Window(b"", line, start), lines + (before not in (b"\n", b"")))
    if before != b"\n":
        return ToolResult.failure("changed", f"{path} was changed while line {line} was looked for: read it again")
    window = Window(rest, line, start, start + len(rest) >= content.size, encoding)
    return _checked(ctx, path, replace(content, data=rest), window)
