"""``read_file`` and ``write_file``: read files of the target by lines or by bytes, and write them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, Field, model_validator

from harness.results import FileContent
from harness.toolkit import (
    Arguments,
    Category,
    Json,
    MutatingArguments,
    OutputLimit,
    Subject,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
)
from harness.toolkit.result_cache import depends_on
from harness.toolkit.session.file_versions import WriteOutcome, guarded_write, target_path
from harness.toolkit.values import Advice, ShownForm

from .file_lines import WIDE, Encoding, Lines, LineWindow, binary, decode_part, decode_text, find_lines, take_lines
from .texts import Content, Line

__all__ = [
    "FORCE",
    "PATH",
    "ReadFile",
    "WriteFile",
    "mode_of",
    "whole_characters",
]


# -- Permission bits as models write them.


_OCTAL = re.compile(r"(?:0o?)?[0-7]{3,4}")


def mode_of(value: str | int) -> int:
    """Return the permission bits of an octal text (``0644``), or of a number, which is not read as octal (420 is 0644).

    Raises:
        ValueError: The value is not a mode, or an unusual number: 644 as a number is 01204, so octal was meant.
    """
    if isinstance(value, str):
        if not _OCTAL.fullmatch(value.strip()):
            raise ValueError("invalid mode: write it in octal, such as '0644'")
        return int(value.strip(), 8)
    if not _is_usual(value):
        raise ValueError("unusual mode as a number: write it as octal text, such as '0644'")
    return value


def _is_usual(value: int) -> bool:
    """Return whether the owner may read, no class may more than the one before, and all classes execute alike."""
    if not 0o400 <= value <= 0o777:
        return False
    owner, group, other = value >> 6, value >> 3 & 7, value & 7
    classes = [who for who in (owner, group, other) if who]
    same_x = len({who & 1 for who in classes}) == 1
    return same_x and all(who & 4 for who in classes) and group & ~owner == 0 and other & ~group == 0


def _checked(value: str | int) -> str | int:
    mode_of(value)
    return value


Permissions = Annotated[str | int, AfterValidator(_checked)]
"""Permission bits: an octal text, or a number."""


# -- Reading files by lines or by bytes, and writing them.


SHOWN = 15_000
MAX_SHOWN_CHARS = 60_000
"""Maximum bytes of one result: a byte is at most one character, so the engine's own limit truncates nothing."""
MIN_SHOWN = 1_000
"""Minimum bytes of a file that are shown, however long they are in the format of a profile."""
LINES = 2_000
CUTS_NAMED = 5
FORCE = "write even if it is read-only; its permissions are kept"
PATH = AliasChoices("path", "file_path", "file")
_BYTES, _LINES = frozenset({"byte_offset", "byte_limit"}), frozenset({"offset", "limit"})


def whole_characters(data: bytes) -> bytes:
    """Return the data without an incomplete UTF-8 character at its end. Pure."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
            return data[:-back] if length > back else data
    return data


class _Read(Arguments):
    path: Line = Field(description="the file; ~ is the user's home", validation_alias=PATH)
    offset: int = Field(1, ge=1, lt=2**31, description="the first line, counted from 1")
    limit: int = Field(LINES, ge=1, lt=2**31, description="maximum number of lines")
    byte_offset: int = Field(0, ge=0, lt=2**63, description="read by bytes instead: where to start")
    byte_limit: int = Field(SHOWN, ge=1, le=MAX_SHOWN_CHARS, description="read by bytes instead: maximum number")
    line_numbers: bool = Field(False, description="start each line with its number and a tab")
    encoding: Encoding = Field("utf-8", description="character encoding of the file")

    @model_validator(mode="after")
    def _one_way(self) -> _Read:
        if self.by_bytes and (self.offset > 1 or self.line_numbers):
            raise ValueError("byte_offset and byte_limit do not count lines: omit offset and line_numbers")
        if self.by_bytes and self.encoding in WIDE and self.byte_offset % 4:
            raise ValueError(f"byte_offset must be a multiple of 4 in {self.encoding}")
        return self

    @property
    def by_bytes(self) -> bool:
        """Return whether a part is requested by bytes.

        Many models give every argument, with defaults for those that they do not mean: with both ways at their defaults
        it is by lines.
        """
        if self.byte_offset > 0 or self.byte_limit != SHOWN:
            return True
        return not _BYTES.isdisjoint(self.model_fields_set) and _LINES.isdisjoint(self.model_fields_set)


READ = """\
Read a text file of the target: up to 2000 lines from line `offset` on, or with byte_offset a part by bytes. \
A long file is read in parts, and the result says how to continue. A file must be read before it is changed."""


class ReadFile(Tool[_Read]):
    """``read_file``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.FILE_READ,
            parallelizable=True,
            cacheable=True,
            aliases=("read",),
            packs=("core",),
            limit=OutputLimit(MAX_SHOWN_CHARS + 1_000, 0),
        )
        super().__init__("read_file", READ, _Read, traits)

    def subjects(self, args: _Read) -> tuple[Subject, ...]:
        return (Subject("read", args.path),)

    async def run(self, args: _Read, ctx: ToolContext) -> ToolResult:
        if args.by_bytes:
            return await _read_bytes(args, ctx)
        found = await find_lines(ctx, args.path, args.offset, args.limit, args.encoding)
        return found if isinstance(found, ToolResult) else _lines_shown(args, ctx, found)


# -- by lines


def _lines_shown(args: _Read, ctx: ToolContext, found: LineWindow) -> ToolResult:
    content = found.content
    shown = ctx.shown
    room = min(MAX_SHOWN_CHARS, shown.room)
    lines = take_lines(found.window, args.limit, room, numbers=args.line_numbers, measure=shown.measure)
    _remember(args, ctx, content, found, lines)
    note = _note(args, content, found, lines)
    apart = "\n" if note and lines.text and not lines.text.endswith("\n") else ""
    facts: Json = {
        "path": content.path,
        "size": content.size,
        "version": content.version,
        "from_line": lines.first,
        "to_line": lines.last,
        "lines": lines.count,
        "total_lines": found.total,
        "next_offset": None if lines.ended else lines.last + 1,
        "cut_lines": len(lines.cuts),
        "note": note,
    }
    text = f"{lines.text}{apart}{note}" or "(the file is empty)"
    return ToolResult.of(text, data=facts, metadata=depends_on(content), advice=(_next(lines), *_rests(lines)))


def _remember(args: _Read, ctx: ToolContext, content: FileContent, found: LineWindow, lines: Lines) -> None:
    """Record the part of the file that was shown."""
    if args.encoding in WIDE:
        whole = lines.first == 1 and lines.ended and not lines.cuts
        ctx.reads.record_partial_read(content.path, content.version, 0, content.size if whole else 0, content.size)
        return
    for start, end in lines.seen:
        ctx.reads.record_partial_read(content.path, content.version, start, end, content.size)


def _note(args: _Read, content: FileContent, found: LineWindow, lines: Lines) -> str:
    """Return what is not shown and how to get it; empty if the whole file is shown."""
    total = found.total
    if not lines.count:
        there = "1 line" if total == 1 else f"{total} lines"
        return f"[the file has {there}, so line {args.offset} does not exist]" if content.size else ""
    cut = _cuts(args, lines)
    if lines.ended and lines.first == 1:
        return cut
    whole = f"{total} lines" if total is not None else f"a file of {content.size} bytes"
    on = "" if lines.ended else _next(lines).text
    return f"[lines {lines.first} to {lines.last} of {whole}{on}]" + (f"\n{cut}" if cut else "")


def _next(lines: Lines) -> Advice:
    return Advice(f"; continue with offset={lines.last + 1}", ("offset",))


def _rests(lines: Lines) -> list[Advice]:
    """Return where the omitted rests of truncated lines start."""
    return [Advice(f" (byte_offset={cut.offset})", ("byte_offset",)) for cut in lines.cuts[:CUTS_NAMED]]


def _cuts(args: _Read, lines: Lines) -> str:
    if not lines.cuts:
        return ""
    named = ", ".join(
        f"{cut.line}{'' if args.encoding in WIDE else rest.text}"
        for cut, rest in zip(lines.cuts, _rests(lines), strict=False)
    )
    more = len(lines.cuts) - CUTS_NAMED
    return f"[truncated: line {named}{f' and {more} more' if more > 0 else ''}]"


# -- by bytes


async def _read_bytes(args: _Read, ctx: ToolContext) -> ToolResult:
    where = target_path(ctx, args.path)
    content = await ctx.execution.read_file(where, offset=args.byte_offset, limit=args.byte_limit)
    if b"\0" in content.data and args.encoding not in WIDE:
        ctx.reads.record_partial_read(content.path, content.version, 0, 0, max(1, content.size))
        return binary(args.path, content.data, content.size)
    text, length = _text_of(args, content, ctx.shown)
    shown = args.byte_offset + length
    ctx.reads.record_partial_read(content.path, content.version, args.byte_offset, shown, content.size)
    cut = shown < content.size
    rest = Advice(f"; continue with byte_offset={shown}", ("byte_offset",))
    if cut or args.byte_offset:
        text = f"{text}\n[bytes {args.byte_offset} to {shown} of {content.size}{rest.text if cut else ''}]"
    facts: Json = {
        "path": content.path,
        "size": content.size,
        "version": content.version,
        "from_byte": args.byte_offset,
        "to_byte": shown,
    }
    return ToolResult.of(text or "(the file is empty)", data=facts, metadata=depends_on(content), advice=(rest,))


def _text_of(args: _Read, content: FileContent, shown: ShownForm) -> tuple[str, int]:
    """Return the text, and the number of content bytes in it, as many as fit."""
    data = _first_lines(content.data, args.limit) if args.limit != LINES else content.data
    text, length = _decoded(args, content, data)
    while shown.measure(text) > shown.room and length > MIN_SHOWN:
        text, length = _decoded(args, content, data[: length // 2 // 4 * 4])
    return text, length


def _decoded(args: _Read, content: FileContent, data: bytes) -> tuple[str, int]:
    """Return the bytes as text, without an incomplete character at the end, and the number of bytes in it."""
    if args.byte_offset + len(data) >= content.size:
        return decode_text(data, args.encoding), len(data)
    if args.encoding == "utf-8":
        data = whole_characters(data) or data  # a lone part of a character is shown: reading must progress
        return decode_text(data, args.encoding), len(data)
    text, length = decode_part(data, args.encoding)
    return (text, length) if length else (decode_text(data, args.encoding), len(data))


def _first_lines(data: bytes, limit: int) -> bytes:
    at = 0
    for _ in range(limit):
        end = data.find(b"\n", at) + 1
        if end == 0:
            return data
        at = end
    return data[:at]


# -- writing


class _Write(MutatingArguments):
    path: Line = Field(description="the file; ~ is the user's home", validation_alias=PATH)
    content: Content = Field(description="the new content", validation_alias=AliasChoices("content", "text"))
    mode: Literal["overwrite", "create", "append"] = Field(
        "overwrite", description="overwrite: all of it, read it first if it exists; create: only if it does not exist"
    )
    permissions: Permissions | None = Field(
        None, description="permission bits in octal, such as '0644'; by default an existing file keeps its own"
    )
    permissions_if_new: Permissions | None = Field(
        None, description="the same, but only for a new file; an existing one keeps its own"
    )
    force: bool = Field(False, description=FORCE)

    @model_validator(mode="after")
    def _one_of_both(self) -> _Write:
        if self.permissions is not None and self.permissions_if_new is not None:
            raise ValueError("permissions and permissions_if_new contradict each other: give one of them")
        return self


class WriteFile(Tool[_Write]):
    """``write_file``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, aliases=("write",), packs=("core",))
        text = (
            "Write a file on the target atomically, creating missing directories. An existing file must be read first."
        )
        super().__init__("write_file", text, _Write, traits)

    def subjects(self, args: _Write) -> tuple[Subject, ...]:
        return (Subject("write", args.path),)

    def preview(self, args: _Write) -> str:
        told = [] if args.mode == "overwrite" else [f"mode {args.mode}"]
        if args.permissions is not None:
            told.append(f"permissions {mode_of(args.permissions):04o}")
        if args.permissions_if_new is not None:
            told.append(f"permissions of a new file {mode_of(args.permissions_if_new):04o}")
        if args.force:
            told.append("even if read-only")
        return f"[{', '.join(told)}]\n{args.content}" if told else args.content

    async def run(self, args: _Write, ctx: ToolContext) -> ToolResult:
        data = args.content.encode("utf-8", "surrogateescape")
        always, new = (
            None if given is None else mode_of(given) for given in (args.permissions, args.permissions_if_new)
        )
        done = await guarded_write(
            ctx,
            args.path,
            data,
            mode=args.mode,
            permissions=always,
            permissions_if_new=new,
            force=args.force,
        )
        return _written(done, always, new) if isinstance(done, WriteOutcome) else done


def _written(done: WriteOutcome, always: int | None, new: int | None) -> ToolResult:
    result = done.result
    bits = new if always is None and result.created else always
    made = "a new file" if result.created else "the file"
    facts: dict[str, Json] = {"path": done.path, "bytes_written": result.bytes_written, "created": result.created}
    if bits is not None:
        facts["permissions"] = f"{bits:04o}"
    told = "" if bits is None else f", with permissions {bits:04o}"
    return ToolResult.of(f"Wrote {result.bytes_written} bytes to {made} {done.path}{told}", data=facts)
