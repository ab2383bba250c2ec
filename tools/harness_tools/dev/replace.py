"""``repfor``: replace a text in many files."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from anyio import to_thread
from pydantic import AfterValidator, AliasChoices, Field, model_validator

from harness.toolkit import Category, Json, MutatingArguments, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.result_cache import depends_on
from harness.wording import counted

from ..text_changes import diff_of
from ..texts import Content, Line, SomeContent, readable_name
from .replacement import Plan, PlannedFile, Replacement, WriteReport, named, plan_for, write_all

__all__ = ["RepFor"]

TEXT = 10_000
"""Maximum characters of the text to replace."""
PLACES = 50
ROOM = 10_000
"""Maximum characters of the differences that a dry run shows."""

DESCRIPTION = """\
Replace an exact text in many files, and change nothing else in them. Call it with dry_run first, which shows the \
changes: only files that were shown or read, and are unchanged since, are written. Version control directories, \
node_modules, links and binary files are skipped."""


def _searched(text: str) -> str:
    if "\0" in text:
        raise ValueError("it cannot contain a NUL: binary files are not changed")
    if len(text) > TEXT:
        raise ValueError(f"it is longer than {TEXT} characters")
    return text


def _written(text: str) -> str:
    if len(text) > 10 * TEXT:
        raise ValueError(f"it is longer than {10 * TEXT} characters")
    return text


class _Arguments(MutatingArguments):
    search: Annotated[SomeContent, AfterValidator(_searched)] = Field(
        description="the exact text; a newline matches any line end"
    )
    replace: Annotated[Content, AfterValidator(_written)] = Field(description="the new text; empty deletes the old one")
    dir: tuple[Line, ...] = Field(
        (),
        max_length=PLACES,
        description="directories; without them and without files, the current one",
        validation_alias=AliasChoices("dir", "dirs", "directory", "path"),
    )
    file: tuple[Line, ...] = Field(
        (),
        max_length=10 * PLACES,
        description="files, instead of directories",
        validation_alias=AliasChoices("file", "files"),
    )
    ext: Line | None = Field(None, max_length=100, description="only files with this ending, such as .go")
    case_insensitive: bool = Field(False, description="ignore case")
    whole_word: bool = Field(False, description="no ASCII letter, digit or _ on either side")
    dry_run: bool = Field(False, description="show what would change, and change nothing")
    recursive: bool = Field(False, description="include subdirectories")
    exclude: tuple[SomeContent, ...] = Field(
        (), max_length=100, description="skip lines that contain one of these texts"
    )

    @model_validator(mode="after")
    def _different(self) -> _Arguments:
        if self.search == self.replace:
            raise ValueError("search and replace are the same: there is nothing to change")
        return self

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories whose files change."""
        return () if self.file else self.dir or (".",)

    @property
    def change(self) -> Replacement:
        """The replacement."""
        encoded = [text.encode("utf-8", "surrogateescape") for text in (self.search, self.replace, *self.exclude)]
        return Replacement(encoded[0], encoded[1], self.case_insensitive, self.whole_word, tuple(encoded[2:]))


class RepFor(Tool[_Arguments]):
    """``repfor``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True, packs=("dev",))
        super().__init__("repfor", DESCRIPTION, _Arguments, traits)

    def traits_of(self, args: _Arguments) -> Traits:
        if not args.dry_run:
            return self.traits
        return replace(self.traits, category=Category.FILE_READ, mutating=False, parallelizable=True)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        paths = args.file or args.directories
        return tuple(Subject("read" if args.dry_run else "write", path) for path in paths)

    def preview(self, args: _Arguments) -> str | None:
        if args.dry_run:
            return None
        old = "".join(f"-{line}\n" for line in args.search.split("\n"))
        return old + "".join(f"+{line}\n" for line in args.replace.split("\n"))

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        plan = await plan_for(
            ctx,
            args.change,
            files=args.file,
            directories=args.directories,
            ext=args.ext or "",
            recursive=args.recursive,
        )
        if isinstance(plan, ToolResult):
            return plan
        if args.dry_run:
            return await _previewed(args, ctx, plan)
        refusal = _unseen(args, ctx, plan) or await _forbidden(ctx, plan)
        if refusal is not None:
            return refusal
        return _result(args, plan, await write_all(ctx, plan))


# -- what may be changed


def _shown_as(change: Replacement, path: str) -> str:
    """Return the key under which a dry run records the version that it showed; it never equals a target's path."""
    return f"repfor:{change.name}:{path}"


def _unseen(args: _Arguments, ctx: ToolContext, plan: Plan) -> ToolResult | None:
    """Return the refusal if the current version of a file was neither read nor shown."""
    unread, stale = list[str](), list[str]()
    for target in plan.targets:
        path, version = target.content.path, target.content.version
        seen = [ctx.reads.last_read_version(key, whole=False) for key in (path, _shown_as(args.change, path))]
        if version not in seen:
            (stale if any(seen) else unread).append(path)
    for code, paths, text, when in (
        ("stale", stale, "changed after it was read or shown", "again"),
        ("not_read", unread, "neither read nor shown by a dry run", "first"),
    ):
        if paths:
            problem = f"{text}: {named(paths)}. Nothing was changed: call this with dry_run=true {when}"
            return ToolResult.failure(code, problem, data={"files": list(paths)})
    return None


async def _forbidden(ctx: ToolContext, plan: Plan) -> ToolResult | None:
    """Return the policy's refusal, now that the files in the directories are known."""
    found = [Subject("write", target.content.path) for target in plan.targets if not target.named]
    if not found:
        return None
    verdict = await ctx.permitted(tuple(found))
    if verdict.allowed:
        return None
    return ToolResult.failure("denied", f"not changed: {verdict.reason}. Nothing was changed")


# -- telling


async def _previewed(args: _Arguments, ctx: ToolContext, plan: Plan) -> ToolResult:
    for target in plan.targets:
        ctx.reads.record_read(_shown_as(args.change, target.content.path), target.content.version, whole=False)
    result = _result(args, plan, WriteReport(plan.targets, plan.problems))
    text = "\n".join([result.text, *await to_thread.run_sync(_differences, plan)])
    shown = depends_on(*(target.content for target in plan.targets))
    return replace(result, content=ToolResult.of(text).content, metadata=shown)


def _differences(plan: Plan) -> list[str]:
    """Return the differences, as many as fit."""
    diffs, room, left_out = [], ROOM, 0
    for target in plan.targets:
        if room <= 0:
            left_out += 1
            continue
        diffs.append(diff_of(target.content.data, target.found.changes, target.content.path, room).text)
        room -= len(diffs[-1])
    if left_out:
        diffs.append(f"[the differences of {counted(left_out, 'more file', 'more files')} are not shown]")
    return [diff.removesuffix("\n") for diff in diffs]


def _result(args: _Arguments, plan: Plan, done: WriteReport) -> ToolResult:
    places = sum(len(target.found.changes) for target in done.targets)
    told = "Would replace" if args.dry_run else "Replaced"
    summary = f"{told} {counted(places, 'place')} in {counted(len(done.targets), 'file')}"
    if not plan.targets and not done.problems:
        summary = "no match: nothing to replace"
        summary += "" if args.file else "; files denied by the policy are not searched"
    lines = [
        f"{readable_name(target.content.path)}: {counted(len(target.found.changes), 'place')}"
        f" in {counted(target.found.lines, 'line')}"
        for target in done.targets
    ]
    problems = [f"not changed: {problem.message}" for problem in done.problems]
    notes = [f"[{note}]" for note in _notes(plan)]
    facts: Json = {
        "summary": summary,
        "directories": _directories(done.targets),
        "dry_run": args.dry_run,
        "files_modified": len(done.targets),
        "total_replacements": places,
        "files_searched": plan.searched,
        "errors": [{"file": one.path, "code": one.code, "message": one.message} for one in done.problems],
        "skipped": {
            "binary": plan.binary,
            "large": plan.large,
            "unreadable": plan.unreadable,
            "excluded_matches": plan.excluded,
        },
    }
    text = "\n".join([summary, *lines, *problems, *notes])
    if done.problems:
        code = "partial" if done.targets else done.problems[0].code
        return ToolResult.failure(code, text, data=facts)
    return ToolResult.of(text, data=facts, metadata={"count": places})


def _directories(targets: Sequence[PlannedFile]) -> list[Json]:
    groups: dict[str, list[PlannedFile]] = {}
    for target in targets:
        groups.setdefault(posixpath.dirname(target.content.path), []).append(target)
    return [
        {
            "dir": directory,
            "files_modified": len(members),
            "lines_changed": sum(target.found.lines for target in members),
            "total_replacements": sum(len(target.found.changes) for target in members),
            "files": [
                {
                    "file": posixpath.basename(target.content.path),
                    "path": target.content.path,
                    "replacements": len(target.found.changes),
                    "lines_changed": target.found.lines,
                }
                for target in members
            ],
        }
        for directory, members in groups.items()
    ]


def _notes(plan: Plan) -> list[str]:
    counts = (
        (plan.binary, "binary file", "binary files"),
        (plan.large, "oversized file", "oversized files"),
        (plan.unreadable, "unreadable file or directory", "unreadable files or directories"),
        (plan.excluded, "match in an excluded line", "matches in excluded lines"),
    )
    return [f"skipped: {counted(*one)}" for one in counts if one[0]]
