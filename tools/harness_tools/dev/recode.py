"""``utf8``: a file in another encoding becomes UTF-8, when there is no doubt which encoding that is."""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import dataclass

from pydantic import Field

from harness.errors import FileError, FileExists
from harness.results import FileContent
from harness.toolkit import Category, Json, MutatingArguments, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.reads import Expected, Written, expectation, guarded_edit, target_path
from harness.toolkit.values import Advice

from ..encodings import EncodingOrMixed
from ..texts import Line
from .recoding import Recoded, recoded, recoded_from
from .textfiles import FILE, LIMIT, whole_file

__all__ = ["Utf8"]

BACKUP = ".bak"


class _Arguments(MutatingArguments):
    file: Line = Field(description="the file", validation_alias=FILE)
    backup: bool = Field(True, description="keep the old content beside it as FILE.bak, which must not exist yet")
    from_encoding: EncodingOrMixed | None = Field(
        None,
        description="what it is written in, when that cannot be told from its bytes, such as latin-1; mixed is UTF-8 "
        "with pieces of UTF-16",
    )
    force: bool = Field(
        False, description="take it for from_encoding also when its bytes are UTF-8 already, which encodes UTF-8 twice"
    )


class Utf8(Tool[_Arguments]):
    """``utf8``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, packs=("dev",))
        text = (
            "Convert a file to UTF-8 where it is: from UTF-16 with or without its mark, from letters with NUL bytes "
            "between them, or from both mixed. What cannot be told for certain is refused unless from_encoding is "
            "given. Read the file first."
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
    """``backup`` is the file that holds the old content."""

    before: FileContent
    made: Recoded
    backup: str = ""


def _recoded(args: _Arguments, content: FileContent) -> Recoded | ToolResult:
    if args.from_encoding is None:
        made = recoded(content.data)
        way = Advice(": say it with from_encoding (latin-1, cp1252, shift-jis, mixed, ...)", ("from_encoding",))
        text = f"{args.file} is no UTF-8, and in what else it is written cannot be told for certain{way.text}"
        return made or ToolResult.failure("low_confidence", f"{text}. Nothing was changed", advice=(way,))
    given = recoded_from(content.data, args.from_encoding)
    if given is None:
        text = f"{args.file} holds bytes that mean nothing in {args.from_encoding}. Nothing was changed"
        return ToolResult.failure("wrong_encoding", text)
    known = recoded(content.data)
    if args.force or known is None or known.data != content.data or given.data == content.data:
        return given
    way = Advice("; force=true converts it all the same", ("force",))
    text = (
        f"{args.file} is UTF-8 already: taken for {args.from_encoding} it would be encoded twice. Nothing was changed"
    )
    return ToolResult.failure("already_utf8", f"{text}{way.text}", advice=(way,))


async def _convert(args: _Arguments, ctx: ToolContext, expected: Expected, done: _Converted) -> ToolResult:
    backup = target_path(ctx, args.file) + BACKUP if args.backup and expected.version is not None else ""
    if backup and not await _kept(ctx, backup, done.before):
        text = f"{backup} exists already: move it away, or set backup to false. Nothing was changed"
        return ToolResult.failure("file_exists", text)
    try:
        written = await guarded_edit(ctx, done.before.path, lambda now: _same(done, now), most=LIMIT)
    except FileError:
        await _drop(ctx, backup)
        raise
    if not isinstance(written, Written):
        await _drop(ctx, backup)
        return written
    return _result(_Converted(done.before, done.made, backup))


async def _kept(ctx: ToolContext, backup: str, before: FileContent) -> bool:
    """Whether the old content is in the backup now: not when there is a file of that name."""
    try:
        await ctx.execution.write_file(
            backup, before.data, mode="create", parents=False, permissions=before.mode & 0o777
        )
    except FileExists:
        return False
    return True


def _same(done: _Converted, now: FileContent) -> bytes | ToolResult:
    """What was made of the content, if it is still that."""
    if now.version == done.before.version:
        return done.made.data
    return ToolResult.failure("stale", f"{now.path} was changed meanwhile: read it again. Nothing was written")


async def _drop(ctx: ToolContext, backup: str) -> None:
    """The backup of a file that was not converted after all."""
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
        return ToolResult.of(f"{before.path} is UTF-8 already, and was not written", data=facts)
    lost = f"; {made.lost} halves of characters became U+FFFD" if made.lost else ""
    kept = f"; the old content is in {done.backup}" if done.backup else ""
    return ToolResult.of(f"Converted {before.path} from {made.encoding}{lost}{kept}", data=facts)
