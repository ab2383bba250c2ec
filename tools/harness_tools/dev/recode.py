"""``utf8``: convert a file to UTF-8, if its encoding is certain."""

from __future__ import annotations

import codecs
import re
from codecs import BOM_UTF8
from dataclasses import dataclass

from pydantic import Field

from harness.errors import FileError, FileExists
from harness.results import FileContent
from harness.toolkit import Category, Json, MutatingArguments, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.session.file_versions import Expected, WriteOutcome, expectation, guarded_edit, target_path
from harness.toolkit.values import Advice

from ..file_lines import FILE, LIMIT, WIDE, EncodingOrMixed, whole_file
from ..texts import Line

__all__ = [
    "Utf8",
    "recoded",
    "recoded_from",
]


# -- Detecting the encoding of a content, and converting it. Pure.


MIXED = "mixed"
"""Name of UTF-8 with parts in UTF-16."""
_ODD = re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
"""Characters that no text contains, but text decoded with the wrong encoding does."""
_WIDE_RUN = re.compile(rb"(?:[\t\n\x0c\r\x20-\x7e]\0){4,}")
"""ASCII in UTF-16-LE, the encoding that programs mix into other files."""
_PLAIN = re.compile(rb"[\t\n\x0c\r\x20-\x7e]*")
_HALF = re.compile("[\ud800-\udfff]")
NUL_SHARE = 0.3
"""Minimum share of ASCII for detecting UTF-16 without a byte order mark."""


@dataclass(frozen=True, slots=True)
class DecodedContent:
    """A content in UTF-8, and its former encoding; ``lost`` counts characters that could not be converted."""

    data: bytes
    encoding: str
    lost: int = 0


def recoded(data: bytes) -> DecodedContent | None:
    """Return the content in UTF-8 if its encoding is certain, else None."""
    if b"\0" not in data and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return DecodedContent(data, "utf-8") if _text(data, "utf-8") is not None else None
    found, mixed = _marked(data) or _unmarked(data) or _laced(data), _mixed(data)
    if found is not None and mixed is not None and found.data != mixed.data:
        return None  # two ASCII letters are also a valid Chinese character
    return found or mixed


def recoded_from(data: bytes, encoding: str) -> DecodedContent | None:
    """Return the content in UTF-8 from a given encoding; None if it is invalid in that encoding.

    Unpaired surrogates in UTF-16 become U+FFFD, and are counted.
    """
    if encoding == MIXED:
        return _mixed(data)
    try:
        text = data.decode(encoding, "surrogatepass" if encoding in WIDE else "strict")
    except ValueError:
        return None
    if encoding in WIDE:
        text = text.removeprefix("\ufeff")
    clean, lost = _HALF.subn("\ufffd", text)
    return DecodedContent(clean.encode(), encoding, lost)


def _text(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except ValueError:
        return None


def _sensible(data: bytes, encoding: str) -> str | None:
    """Return the text, if the bytes are plausible text."""
    text = _text(data, encoding)
    return text if text is not None and not _ODD.search(text) else None


def _marked(data: bytes) -> DecodedContent | None:
    """Decode UTF-16 or UTF-32 with a byte order mark."""
    for mark, encoding in (
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark):
            text = _sensible(data[len(mark) :], encoding)
            if text is not None:
                return DecodedContent(text.encode(), encoding)
    return None


def _unmarked(data: bytes) -> DecodedContent | None:
    """Decode UTF-16 without a byte order mark: every second byte of ASCII is NUL, on one side only."""
    half = len(data) // 2
    if len(data) % 2 or half < 2:
        return None
    for encoding, high, low in (("utf-16-le", data[1::2], data[0::2]), ("utf-16-be", data[0::2], data[1::2])):
        if high.count(0) >= max(2, half * NUL_SHARE) and not low.count(0):
            text = _sensible(data, encoding)
            if text is not None:
                return DecodedContent(text.encode(), encoding)
    return None


def _laced(data: bytes) -> DecodedContent | None:
    """Decode ASCII with a NUL before or after each letter; one at an end may be missing."""
    even, odd = data[0::2], data[1::2]
    for letters, nuls in ((even, odd), (odd, even)):
        if len(letters) > 2 and not nuls.strip(b"\0") and _PLAIN.fullmatch(letters):
            return DecodedContent(letters, "null-laced")
    return None


def _mixed(data: bytes) -> DecodedContent | None:
    """Decode UTF-8 with parts in UTF-16 ASCII, as two programs leave it that write to one file."""
    made, runs = _WIDE_RUN.subn(lambda match: match[0][::2], data.removeprefix(codecs.BOM_UTF16_LE))
    if not runs or b"\0" in made or _sensible(made, "utf-8") is None:
        return None
    return DecodedContent(made, MIXED)


# -- The tool.


BACKUP = ".bak"


class _Arguments(MutatingArguments):
    file: Line = Field(description="the file", validation_alias=FILE)
    backup: bool = Field(True, description="keep the old content as FILE.bak, which must not exist yet")
    from_encoding: EncodingOrMixed | None = Field(
        None,
        description="its encoding, if it cannot be detected, such as latin-1; mixed is UTF-8 with parts in UTF-16",
    )
    force: bool = Field(
        False, description="convert from from_encoding even if the file is already UTF-8, which encodes it twice"
    )


class Utf8(Tool[_Arguments]):
    """``utf8``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, packs=("dev",))
        text = (
            "Convert a file to UTF-8 in place: from UTF-16 with or without a byte order mark, from letters with NUL "
            "bytes between them, or from a mix. An ambiguous encoding is refused unless from_encoding is given. "
            "Read the file first."
        )
        super().__init__("utf8", text, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        kept = (Subject("write", args.file + BACKUP),) if args.backup else ()
        return (Subject("write", args.file), *kept)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        expected = await expectation(ctx, args.file, whole=False)
        if isinstance(expected, ToolResult):
            return expected
        content = await whole_file(ctx, args.file)
        if isinstance(content, ToolResult):
            return content
        made = _recoded(args, content)
        if isinstance(made, ToolResult):
            return made
        if made.data == content.data:
            return _result(_Converted(content, made))
        return await _convert(args, ctx, expected, _Converted(content, made))


@dataclass(frozen=True, slots=True)
class _Converted:
    """A converted content; ``backup`` is the file with the old content."""

    before: FileContent
    made: DecodedContent
    backup: str = ""


def _recoded(args: _Arguments, content: FileContent) -> DecodedContent | ToolResult:
    if args.from_encoding is None:
        made = recoded(content.data)
        way = Advice(": give from_encoding (latin-1, cp1252, shift-jis, mixed, ...)", ("from_encoding",))
        text = f"{args.file} is not UTF-8, and its encoding is ambiguous{way.text}"
        return made or ToolResult.failure("low_confidence", f"{text}. Nothing was changed", advice=(way,))
    given = recoded_from(content.data, args.from_encoding)
    if given is None:
        text = f"{args.file} contains bytes that are invalid in {args.from_encoding}. Nothing was changed"
        return ToolResult.failure("wrong_encoding", text)
    known = recoded(content.data)
    if args.force or known is None or known.data != content.data or given.data == content.data:
        return given
    way = Advice("; force=true converts it anyway", ("force",))
    text = f"{args.file} is already UTF-8, and {args.from_encoding} would encode it twice. Nothing was changed"
    return ToolResult.failure("already_utf8", f"{text}{way.text}", advice=(way,))


async def _convert(args: _Arguments, ctx: ToolContext, expected: Expected, done: _Converted) -> ToolResult:
    backup = target_path(ctx, args.file) + BACKUP if args.backup and expected.version is not None else ""
    if backup and not await _kept(ctx, backup, done.before):
        text = f"{backup} already exists: move it away, or set backup to false. Nothing was changed"
        return ToolResult.failure("file_exists", text)
    try:
        written = await guarded_edit(ctx, done.before.path, lambda now: _same(done, now), most=LIMIT)
    except FileError:
        await _drop(ctx, backup)
        raise
    if not isinstance(written, WriteOutcome):
        await _drop(ctx, backup)
        return written
    return _result(_Converted(done.before, done.made, backup))


async def _kept(ctx: ToolContext, backup: str, before: FileContent) -> bool:
    """Store the old content in the backup; return False if the file exists."""
    try:
        await ctx.execution.write_file(
            backup, before.data, mode="create", parents=False, permissions=before.mode & 0o777
        )
    except FileExists:
        return False
    return True


def _same(done: _Converted, now: FileContent) -> bytes | ToolResult:
    """Return the converted content, if the file is unchanged."""
    if now.version == done.before.version:
        return done.made.data
    return ToolResult.failure("stale", f"{now.path} was changed meanwhile: read it again. Nothing was written")


async def _drop(ctx: ToolContext, backup: str) -> None:
    """Remove the backup of a file that was not converted."""
    if backup:
        await ctx.execution.remove(backup, missing_ok=True)


def _result(done: _Converted) -> ToolResult:
    before, made = done.before, done.made
    changed = made.data != before.data
    facts: Json = {
        "file": before.path,
        "status": "converted" if changed else "already_utf8",
        "encoding": made.encoding,
        "bytes_before": before.size,
        "bytes_after": len(made.data),
        "bom": made.data.startswith(BOM_UTF8),
        "replaced_characters": made.lost,
        "backup": done.backup or None,
    }
    if not changed:
        return ToolResult.of(f"{before.path} is already UTF-8, and was not written", data=facts)
    lost = f"; {made.lost} unpaired surrogates became U+FFFD" if made.lost else ""
    kept = f"; the old content is in {done.backup}" if done.backup else ""
    return ToolResult.of(f"Converted {before.path} from {made.encoding}{lost}{kept}", data=facts)
