"""``glob``: files by their names."""

from __future__ import annotations

import posixpath
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, field_validator, model_validator

from harness.toolkit import Arguments, Category, Json, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.values import ShownForm

from ..texts import Line, readable_name
from .entries import Entry, Listing, list_tree
from .frames import refusal_of
from .notes import LIMIT, count_fitting, plural, shown_path, tree_data, tree_notes
from .patterns import PathPattern
from .target import absolute
from .treescripts import TreeQuery
from .words import PathText

__all__ = ["Glob", "split_pattern"]

DESCRIPTION = """\
Find files and links on the target by name, newest first. * and ? stay within one name, ** is any number of \
directories, {a,b} are choices: src/**/*.{c,h}. Names that begin with a dot must be asked for. Links are not \
followed, and .git, node_modules, vendor, .venv, __pycache__, dist, target and what .gitignore leaves out are not \
looked at."""
LENGTH = 1_000
MAGIC = frozenset("*?[{\\")


def split_pattern(pattern: str) -> tuple[str, str]:
    """An absolute pattern, or one of a home, as the directory that it begins with and the rest. Pure."""
    if not pattern.startswith(("/", "~")):
        return "", pattern
    names = pattern.split("/")
    count = next((number for number, name in enumerate(names) if MAGIC & set(name)), len(names) - 1)
    return "/".join(names[:count]) or "/", "/".join(names[max(count, 1) :])


class _Arguments(Arguments):
    pattern: Annotated[Line, Field(max_length=LENGTH)] = Field(description="such as **/*.py or /etc/*.conf")
    path: PathText = Field(
        ".", description="the directory to begin in", validation_alias=AliasChoices("path", "root", "dir", "directory")
    )
    max_results: int = Field(500, ge=1, le=10_000, description="the others are counted")
    include_hidden: bool = Field(False, description="also names that begin with a dot")
    no_default_excludes: bool = Field(False, description="look everywhere")
    sort: Literal["mtime", "name"] = Field("mtime", description="mtime is newest first")

    @field_validator("pattern")
    @classmethod
    def _readable(cls, pattern: str) -> str:
        PathPattern.parse(split_pattern(pattern)[1])
        return pattern

    @model_validator(mode="after")
    def _one_start(self) -> _Arguments:
        if split_pattern(self.pattern)[0] and self.path != ".":
            raise ValueError("an absolute pattern begins where it says: leave path out")
        return self

    @property
    def directory(self) -> str:
        """Where the search begins."""
        return split_pattern(self.pattern)[0] or self.path


class Glob(Tool[_Arguments]):
    """``glob``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.FILE_READ,
            parallelizable=True,
            cacheable=True,
            timeout=90.0,
            limit=LIMIT,
            packs=("search",),
        )
        super().__init__("glob", DESCRIPTION, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return (Subject("read", args.directory),)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        pattern = PathPattern.parse(split_pattern(args.pattern)[1], visible_only=not args.include_hidden)
        query = TreeQuery(
            await absolute(ctx, args.directory),
            hidden=args.include_hidden or pattern.hidden,
            excludes=not args.no_default_excludes,
            rough_names=pattern.rough_names,
            depth=pattern.depth,
        ).starting(pattern.start)
        listing = await list_tree(ctx, query, "fl")
        if listing.tree.refusal or listing.is_file:
            return refusal_of(listing.tree.refusal or "directory", args.directory)
        found, ignored = listing.entries, len(listing.ignored)
        # find has matched the names already, unless it had to look at more than was asked for
        if not (pattern.anywhere and listing.engine == "find" and query.hidden == args.include_hidden):
            found = [entry for entry in listing.entries if pattern.matches(entry.path)]
            ignored = sum(pattern.matches(entry.path) for entry in listing.ignored)
        return _result(args, listing, _sorted(found, args.sort), ignored, ctx.shown)


def _sorted(entries: list[Entry], sort: str) -> list[Entry]:
    by_name = sorted(entries, key=lambda entry: entry.path)
    return by_name if sort == "name" else sorted(by_name, key=lambda entry: -(entry.mtime or 0))


def _result(args: _Arguments, listing: Listing, found: list[Entry], ignored: int, form: ShownForm) -> ToolResult:
    wanted = [shown_path(args.directory, entry.path) for entry in found[: args.max_results]]
    shown = wanted[: count_fitting(map(readable_name, wanted), form)]
    dropped = len(found) - len(shown)
    notes = tree_notes(listing.tree, ignored)
    if dropped:
        notes.insert(0, f"{dropped} more of {plural(len(found), 'match')} are not shown; narrow the pattern")
    if not shown:
        notes.insert(0, f"no file matches {args.pattern} in {posixpath.normpath(args.directory)}")
    data: dict[str, Json] = {
        "files": [*shown],
        "count": len(found),
        "dropped": dropped,
        "engine": listing.engine,
        **tree_data(listing.tree, ignored),
    }
    text = "\n".join([*map(readable_name, shown), *(f"[{note}]" for note in notes)])
    return ToolResult.of(text, data=data, metadata={"count": len(found)})
