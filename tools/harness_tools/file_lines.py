"""Lines of a file on the target: finding the requested window, and text encodings."""

from __future__ import annotations

import codecs
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

from pydantic import AliasChoices, BeforeValidator

from harness.results import FileContent, Status
from harness.toolkit import ToolContext, ToolResult
from harness.toolkit.session.file_versions import target_path
from harness.toolkit.values import Advice

__all__ = [
    "FILE",
    "LIMIT",
    "LINE_SHOWN",
    "WIDE",
    "WIDE_LIMIT",
    "WINDOW",
    "Encoding",
    "EncodingOrMixed",
    "LineWindow",
    "Lines",
    "Window",
    "binary",
    "decode_part",
    "decode_text",
    "find_lines",
    "line_start",
    "no_text",
    "take_lines",
    "whole_file",
    "whole_text",
    "wide_bom",
]


# -- Encodings of text files that tools accept by name.


_Name = Literal[
    "utf-8",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "latin-1",
    "iso8859-2",
    "iso8859-5",
    "iso8859-7",
    "iso8859-15",
    "cp437",
    "cp850",
    "cp866",
    "cp1250",
    "cp1251",
    "cp1252",
    "cp1253",
    "koi8-r",
    "shift-jis",
    "euc-jp",
    "gb18030",
    "big5",
    "euc-kr",
]
WIDE = frozenset({"utf-16", "utf-16-le", "utf-16-be", "utf-32"})
"""Encodings whose newline is more than one byte."""
_BOMS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def _known(name: object) -> object:
    """Return harness's name of an encoding, for any of its aliases."""
    if not isinstance(name, str) or name in get_args(_Name):
        return name
    try:
        same = codecs.lookup(name).name
    except (LookupError, ValueError):
        return name
    return next((known for known in get_args(_Name) if codecs.lookup(known).name == same), name)


Encoding = Annotated[_Name, BeforeValidator(_known)]
"""An encoding, by any of its names."""
EncodingOrMixed = Annotated[Literal[_Name, "mixed"], BeforeValidator(_known)]
"""An encoding, or UTF-8 with parts in UTF-16."""


def decode_text(data: bytes, encoding: str) -> str:
    """Decode a whole content: invalid bytes become surrogates in UTF-8, which keeps them, and U+FFFD otherwise."""
    return data.decode(encoding, "surrogateescape" if encoding == "utf-8" else "replace")


def decode_part(data: bytes, encoding: str) -> tuple[str, int]:
    """Decode a content that may end within a character, and return the text and the number of decoded bytes."""
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape" if encoding == "utf-8" else "replace")
    text = decoder.decode(data)
    return text, len(data) - len(decoder.getstate()[0])


def wide_bom(data: bytes) -> str:
    """Return the name of the wide encoding whose byte order mark starts the content; empty without one."""
    found = next((mark for mark in _BOMS if data.startswith(mark)), b"")
    return {4: "utf-32", 2: "utf-16"}.get(len(found), "")


# -- Text files that a tool reads as a whole.


LIMIT = 64 << 20
"""Maximum bytes of a file that is read as a whole."""
FILE = AliasChoices("file", "path", "file_path")


def no_text(path: str, data: bytes) -> ToolResult | None:
    """Return the refusal if a content is not text; None if it is text."""
    if b"\0" not in data:
        return None
    wide = wide_bom(data)
    way = Advice(", which utf8 converts", tools=("utf8",))
    hint = f"; it looks like {wide.upper()}{way.text}" if wide else ""
    return ToolResult.failure("binary", f"{path} is not a text file (contains NUL bytes){hint}", advice=(way,))


async def whole_file(ctx: ToolContext, path: str) -> FileContent | ToolResult:
    """Return the whole file, or the refusal if it is too large.

    Raises:
        FileError: The file cannot be read.
    """
    content = await ctx.execution.read_file(target_path(ctx, path), limit=LIMIT + 1)
    if content.size > LIMIT:
        return ToolResult.failure(
            "too_big", f"{path} has {content.size} bytes, more than the limit of {LIMIT}: use a command"
        )
    return content


async def whole_text(ctx: ToolContext, path: str) -> FileContent | ToolResult:
    """Return the whole text file, or the refusal.

    Raises:
        FileError: The file cannot be read.
    """
    content = await whole_file(ctx, path)
    if isinstance(content, ToolResult):
        return content
    return no_text(path, content.data) or content


# -- Lines of a file, taken from a window of its bytes. Pure.


LINE_SHOWN = 2_000
"""Maximum bytes of a line that are shown."""
NUMBER_WIDTH = 6


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes of a file from the start of a line.

    ``first`` is the number of that line, ``start`` its offset in the file, and ``complete`` tells whether the window
    reaches the end of the file.
    """

    data: bytes
    first: int = 1
    start: int = 0
    complete: bool = True
    encoding: str = "utf-8"


@dataclass(frozen=True, slots=True)
class TruncatedLine:
    """A line of which only the start is shown; the rest starts at byte ``offset`` of the file."""

    line: int
    offset: int


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a result.

    ``end`` is the offset after the last one; ``ended``: no line follows. ``seen`` are the byte ranges that are shown:
    all from the first line on, except the omitted rests of truncated lines.
    """

    text: str
    first: int
    count: int
    end: int
    seen: tuple[tuple[int, int], ...]
    ended: bool
    cuts: tuple[TruncatedLine, ...] = ()

    @property
    def last(self) -> int:
        """The number of the last line; ``first - 1`` without lines."""
        return self.first + self.count - 1


def line_start(data: bytes, line: int) -> int | None:
    """Return the offset of a line, counted from 1; None if ``data`` has too few newlines."""
    at = 0
    for _ in range(line - 1):
        at = data.find(b"\n", at) + 1
        if at == 0:
            return None
    return at


def take_lines(window: Window, limit: int, room: int, *, numbers: bool, measure: Callable[[str], int] = len) -> Lines:
    """Return the first ``limit`` lines of a window that fit in ``room``, as ``measure`` counts, but at least one.

    A line that continues after the window is left for the next call, unless it is the first.
    """
    data, at, parts, cuts = window.data, 0, list[str](), list[TruncatedLine]()
    seen, shown_from = list[tuple[int, int]](), window.start
    while at < len(data) and len(parts) < limit:
        end = data.find(b"\n", at) + 1
        if end == 0 and parts and not window.complete:
            break
        number = window.first + len(parts)
        text, cut = _line(window, at, end)
        text = f"{number:{NUMBER_WIDTH}d}\t{text}" if numbers else text
        if parts and measure(text) > room:
            break
        parts.append(text)
        room -= measure(text)
        if cut:
            cuts.append(TruncatedLine(number, window.start + at + cut))
            seen.append((shown_from, window.start + at + cut))
            shown_from = window.start + (end or len(data))
        at = end or len(data)
    seen.append((shown_from, window.start + at))
    ended = window.complete and at >= len(data)
    return Lines("".join(parts), window.first, len(parts), window.start + at, tuple(seen), ended, tuple(cuts))


def _line(window: Window, at: int, end: int) -> tuple[str, int]:
    """Return a line for display, and its number of shown bytes if it is truncated. ``end`` 0: it has no newline."""
    data = window.data
    newline = 1 if end else 0
    stop = (end or len(data)) - newline
    if stop - at <= LINE_SHOWN and (end or window.complete):
        return decode_text(data[at:stop], window.encoding) + "\n" * newline, 0
    text, shown = decode_part(data[at : min(stop, at + LINE_SHOWN)], window.encoding)
    least = "" if end or window.complete else "at least "
    return f"{text} [... {least}{stop - at - shown} more bytes of this line]\n", shown


# -- Finding the requested lines: in the first bytes of a file, or with commands on the target.


WINDOW = 256 << 10
"""Maximum bytes of a file that are fetched at once: as much as one round trip carries."""
WIDE_LIMIT = 8 << 20
"""Maximum bytes of a file in a wide encoding, which is fetched as a whole."""
COUNTING = 60.0
"""Timeout in seconds for finding a line on the target."""


@dataclass(frozen=True, slots=True)
class LineWindow:
    """The location of the requested lines.

    ``content`` is what was read; ``total`` is the number of lines if known. ``window`` is empty after the end of the
    file.
    """

    content: FileContent
    window: Window
    total: int | None = None


def binary(path: str, data: bytes, size: int) -> ToolResult:
    """Return the refusal to show a content that is not text."""
    wide = wide_bom(data)
    way = Advice(f": read it with encoding={wide!r}", ("encoding",))
    hint = f"; it looks like {wide.upper()}{way.text}" if wide else ""
    text = f"{path} is not a text file (contains NUL bytes; {size} bytes){hint}"
    return ToolResult.failure("binary", text, advice=(way,))


async def find_lines(ctx: ToolContext, path: str, line: int, limit: int, encoding: str) -> LineWindow | ToolResult:
    """Find line ``line`` of a file, for up to ``limit`` lines, keeping at most :data:`WINDOW` bytes.

    Raises:
        FileError: The file cannot be read.
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
        return LineWindow(head, Window(b"", line, head.size), _lines_in(head.data))
    if start is None:
        return await _further(ctx, path, head, line, encoding)
    rest = await ctx.execution.read_file(head.path, offset=start, limit=WINDOW)
    return _checked(ctx, path, rest, Window(rest.data, line, start, start + len(rest.data) >= rest.size, encoding))


def _know(ctx: ToolContext, content: FileContent) -> None:
    """Record that this version exists, but that none of its content was shown."""
    ctx.reads.record_partial_read(content.path, content.version, 0, 0, max(1, content.size))


def _found(content: FileContent, window: Window, whole: bytes) -> LineWindow:
    return LineWindow(content, window, _lines_in(whole) if window.complete else None)


def _checked(ctx: ToolContext, path: str, content: FileContent, window: Window) -> LineWindow | ToolResult:
    if b"\0" in window.data:
        _know(ctx, content)
        return binary(path, window.data, content.size)
    total = window.first - 1 + _lines_in(window.data) if window.complete else None
    return LineWindow(content, window, total)


def _lines_in(data: bytes) -> int:
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


async def _wide(ctx: ToolContext, where: str, path: str, line: int, encoding: str) -> LineWindow | ToolResult:
    """Return lines of a file in UTF-16 or UTF-32 as UTF-8; offsets have no meaning then."""
    content = await ctx.execution.read_file(where, limit=WIDE_LIMIT + 1)
    if content.size > WIDE_LIMIT:
        way = Advice(": give byte_offset", ("byte_offset",))
        text = f"{path} has {content.size} bytes, which is too much to read lines in {encoding}{way.text}"
        return ToolResult.failure("too_big", text, advice=(way,))
    data = decode_text(content.data, encoding).encode("utf-8", "surrogatepass")
    start = line_start(data, line)
    window = Window(b"" if start is None else data[start:], line, start or 0)
    return _found(content, window, data)


async def _further(ctx: ToolContext, path: str, head: FileContent, line: int, encoding: str) -> LineWindow | ToolResult:
    """Return a line after the first window: the target counts lines, and only what is shown is fetched."""
    script = f"head -n {line - 1} <{shlex.quote(head.path)} | wc -lc"
    done = await ctx.execution.run_helper(script, timeout=COUNTING, max_output=4096)
    counts = done.stdout.split()
    if done.status is not Status.COMPLETED or len(counts) != 2 or not all(count.isdecimal() for count in counts):
        why = done.stderr.strip()[:200] or f"it took longer than {COUNTING:.0f} s"
        way = Advice(": use byte_offset instead", ("byte_offset",))
        text = f"line {line} of {path} could not be found on the target ({why}){way.text}"
        return ToolResult.failure("not_located", text, advice=(way,))
    lines, start = int(counts[0]), int(counts[1])
    content = await ctx.execution.read_file(head.path, offset=max(0, start - 1), limit=WINDOW + 1)
    before, rest = content.data[:1], content.data[1:]
    if lines < line - 1:
        return LineWindow(content, Window(b"", line, start), lines + (before not in (b"\n", b"")))
    if before != b"\n":
        return ToolResult.failure("changed", f"{path} was changed while line {line} was located: read it again")
    window = Window(rest, line, start, start + len(rest) >= content.size, encoding)
    return _checked(ctx, path, replace(content, data=rest), window)
