"""``edit``: replace a text in a file exactly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from anyio import to_thread
from pydantic import AliasChoices, Field, model_validator

from harness.results import FileContent
from harness.toolkit import Category, Json, MutatingArguments, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.session.file_versions import WriteOutcome, guarded_edit
from harness.toolkit.values import Advice

from .file_lines import wide_bom
from .files import FORCE, PATH
from .text_changes import (
    Change,
    Span,
    apply_changes,
    changes_at,
    diff_of,
    find_spans,
    line_numbers,
    nearest,
    overlapping,
    size_after,
)
from .texts import Content, Line, SomeContent

__all__ = ["EDIT_LIMIT", "Edit"]

EDIT_LIMIT = 64 << 20
"""Maximum bytes of an edited file, before and after: it is fetched and written as a whole."""
MAX_REPLACEMENTS = 100_000
"""Maximum replacements in one call."""
NAMED = 20
"""Maximum line numbers in a message."""

CONVERTER = Advice(": see utf8", tools=("utf8",))

DESCRIPTION = """\
Replace a text in a file. old_string must match exactly once, including white space and indentation; include more \
surrounding lines, or set replace_all. Line endings, encoding and permissions are kept. Read the file first. Returns \
the diff."""


class _Edit(MutatingArguments):
    path: Line = Field(description="the file; ~ is the user's home", validation_alias=PATH)
    old_string: SomeContent = Field(
        description="the text to replace; its line ends match any line ends of the file",
        validation_alias=AliasChoices("old_string", "oldString", "old_text"),
    )
    new_string: Content = Field(
        description="the new text; empty deletes the old one",
        validation_alias=AliasChoices("new_string", "newString", "new_text"),
    )
    replace_all: bool = Field(
        False, description="replace every match", validation_alias=AliasChoices("replace_all", "replaceAll")
    )
    expected_count: int | None = Field(
        None, ge=1, description="replace exactly this many matches, otherwise nothing is changed"
    )
    force: bool = Field(False, description=FORCE)

    @model_validator(mode="after")
    def _different(self) -> _Edit:
        if self.old_string == self.new_string:
            raise ValueError("old_string and new_string are the same: there is nothing to change")
        return self


class Edit(Tool[_Edit]):
    """``edit``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.FILE_WRITE, mutating=True, aliases=("edit_file", "str_replace"), packs=("core",)
        )
        super().__init__("edit", DESCRIPTION, _Edit, traits)

    def subjects(self, args: _Edit) -> tuple[Subject, ...]:
        return (Subject("write", args.path),)

    def preview(self, args: _Edit) -> str:
        old = "".join(f"-{line}\n" for line in args.old_string.split("\n"))
        forced = "[even if read-only]\n" if args.force else ""
        return forced + old + "".join(f"+{line}\n" for line in args.new_string.split("\n"))

    async def run(self, args: _Edit, ctx: ToolContext) -> ToolResult:
        made: list[Sequence[Change]] = []
        done = await guarded_edit(ctx, args.path, partial(_edited, args, made), most=EDIT_LIMIT, force=args.force)
        return await to_thread.run_sync(_result, done, made[0]) if isinstance(done, WriteOutcome) else done


def _edited(args: _Edit, made: list[Sequence[Change]], content: FileContent) -> bytes | ToolResult:
    """Return the new content, and store the changes in ``made``."""
    old = args.old_string.encode("utf-8", "surrogateescape")
    new = args.new_string.encode("utf-8", "surrogateescape")
    spans = find_spans(content.data, old, MAX_REPLACEMENTS)
    if len(spans) == 1 and not args.replace_all:
        spans += _other_place(content.data, spans[0], old, new)
    refusal = _refusal(args, content.data, old, spans)
    if refusal is not None:
        return refusal
    size = size_after(content.size, spans, new)
    if size > EDIT_LIMIT:
        text = f"{args.path} would grow to {size} bytes, more than the limit of {EDIT_LIMIT}"
        return ToolResult.failure("too_big", f"{text}. Nothing was changed")
    changes = changes_at(content.data, spans, old, new)
    made.append(changes)
    return apply_changes(content.data, changes)


def _other_place(data: bytes, span: Span, old: bytes, new: bytes) -> list[Span]:
    """Return a second match that overlaps the first one, if replacing it would give another result."""
    other = overlapping(data, span, old)
    if other is None:
        return []
    made = [apply_changes(data, changes_at(data, [place], old, new)) for place in (span, other)]
    return [other] if made[0] != made[1] else []


def _refusal(args: _Edit, data: bytes, old: bytes, spans: Sequence[Span]) -> ToolResult | None:
    """Return the refusal if the matches are not those that were meant."""
    if not spans:
        text = _no_match(args.path, data, old)
        return ToolResult.failure("no_match", text, data={"matches": 0}, advice=(CONVERTER,))
    if len(spans) > MAX_REPLACEMENTS:
        text = f"{args.path} contains old_string more than {MAX_REPLACEMENTS} times: use a command"
        return ToolResult.failure("too_many", text)
    count = len(spans)
    if args.expected_count == count or (args.expected_count is None and (args.replace_all or count == 1)):
        return None
    lines = line_numbers(data, [start for start, _ in spans[:NAMED]])
    more = f" and {count - NAMED} more" if count > NAMED else ""
    where = f"in {'line' if count == 1 else 'lines'} {', '.join(map(str, lines))}{more}"
    times = "once" if count == 1 else f"{count} times"
    facts: Json = {"matches": count, "lines": list(lines)}
    if args.expected_count is not None:
        text = (
            f"{args.path} contains old_string {times}, {where}, but {args.expected_count} expected. Nothing was changed"
        )
        return ToolResult.failure("count_mismatch", text, data=facts)
    text = (
        f"{args.path} contains old_string {times}, {where}: include more of the text around it, or set "
        "replace_all. Nothing was changed"
    )
    return ToolResult.failure("ambiguous", text, data=facts)


def _no_match(path: str, data: bytes, old: bytes) -> str:
    wide = wide_bom(data)
    if wide:
        return f"{path} is encoded in {wide.upper()}, so old_string cannot match{CONVERTER.text}"
    if b"\r" in old and b"\r" not in data:
        hint = "old_string contains carriage returns, but the file does not."
    else:
        hint = nearest(data, old)
    return f"old_string is not in {path}. {hint or 'No line is similar to its first line.'} Nothing was changed"


def _result(done: WriteOutcome, changes: Sequence[Change]) -> ToolResult:
    assert done.before is not None
    before = done.before.data
    diff = diff_of(before, changes, done.path)
    count = len(changes)
    facts: Json = {
        "path": done.path,
        "replacements": count,
        "lines": list(line_numbers(before, [change.start for change in changes[:NAMED]])),
        "lines_added": diff.added,
        "lines_removed": diff.removed,
        "hunks_left_out": diff.left_out,
        "diff": diff.text,
        "version": done.result.version,
    }
    places = "1 place" if count == 1 else f"{count} places"
    return ToolResult.of(f"Changed {places} of {done.path}\n{diff.text}", data=facts)
