"""``glob``, ``ls`` and ``stump``: list names below a directory, in a directory, and as a tree."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, field_validator, model_validator

from harness.errors import NotADirectory
from harness.patterns.wildcards import PathPattern
from harness.results import DirEntry, FileStat
from harness.toolkit import Arguments, Category, Json, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.values import ShownForm
from harness.wording import counted

from ..texts import Line, PathText, Word, readable_name
from .entries import Entry, Kind, Listing, known_size, list_tree, owner_of
from .replies import LIMIT, absolute, can_search, count_fitting, refusal_of, shown_path, tree_data, tree_notes
from .tree_scripts import TreeQuery

__all__ = [
    "Glob",
    "Ls",
    "Stump",
    "split_pattern",
]


# -- ``glob``: find files by name.


GLOB_DESCRIPTION = """\
Find files and links on the target by name, newest first. * and ? match within one name, ** any number of directories, \
{a,b} are choices: src/**/*.{c,h}. Hidden files require include_hidden. Links are not followed, and .git, \
node_modules, vendor, .venv, __pycache__, dist, target and files ignored by .gitignore are skipped."""
LENGTH = 1_000
MAGIC = frozenset("*?[{\\")


def split_pattern(pattern: str) -> tuple[str, str]:
    """Split an absolute or home pattern into the directory that it starts with and the rest. Pure."""
    if not pattern.startswith(("/", "~")):
        return "", pattern
    names = pattern.split("/")
    count = next((number for number, name in enumerate(names) if MAGIC & set(name)), len(names) - 1)
    return "/".join(names[:count]) or "/", "/".join(names[max(count, 1) :])


class _GlobArguments(Arguments):
    pattern: Annotated[Line, Field(max_length=LENGTH)] = Field(description="such as **/*.py or /etc/*.conf")
    path: PathText = Field(
        ".", description="the directory to search", validation_alias=AliasChoices("path", "root", "dir", "directory")
    )
    max_results: int = Field(500, ge=1, le=10_000, description="the others are counted")
    include_hidden: bool = Field(False, description="include hidden files")
    no_default_excludes: bool = Field(False, description="search everywhere")
    sort: Literal["mtime", "name"] = Field("mtime", description="mtime is newest first")

    @field_validator("pattern")
    @classmethod
    def _readable(cls, pattern: str) -> str:
        PathPattern.parse(split_pattern(pattern)[1])
        return pattern

    @model_validator(mode="after")
    def _one_start(self) -> _GlobArguments:
        if split_pattern(self.pattern)[0] and self.path != ".":
            raise ValueError("an absolute pattern contains its start: omit path")
        return self

    @property
    def directory(self) -> str:
        """The directory to search."""
        return split_pattern(self.pattern)[0] or self.path


class Glob(Tool[_GlobArguments]):
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
        super().__init__("glob", GLOB_DESCRIPTION, _GlobArguments, traits)

    def subjects(self, args: _GlobArguments) -> tuple[Subject, ...]:
        return (Subject("read", args.directory),)

    async def run(self, args: _GlobArguments, ctx: ToolContext) -> ToolResult:
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
        # find has already matched the names, unless it had to list more than requested
        if not (pattern.anywhere and listing.engine == "find" and query.hidden == args.include_hidden):
            found = [entry for entry in listing.entries if pattern.matches(entry.path)]
            ignored = sum(pattern.matches(entry.path) for entry in listing.ignored)
        return _glob_result(args, listing, _sorted(found, args.sort), ignored, ctx.shown)


def _sorted(entries: list[Entry], sort: str) -> list[Entry]:
    by_name = sorted(entries, key=lambda entry: entry.path)
    return by_name if sort == "name" else sorted(by_name, key=lambda entry: -(entry.mtime or 0))


def _glob_result(
    args: _GlobArguments, listing: Listing, found: list[Entry], ignored: int, form: ShownForm
) -> ToolResult:
    wanted = [shown_path(args.directory, entry.path) for entry in found[: args.max_results]]
    shown = wanted[: count_fitting(map(readable_name, wanted), form)]
    dropped = len(found) - len(shown)
    notes = tree_notes(listing.tree, ignored)
    if dropped:
        notes.insert(0, f"{dropped} more of {counted(len(found), 'match')} are not shown; narrow the pattern")
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


# -- ``stump``: show a directory as a tree.


STUMP_DESCRIPTION = """\
Show the tree of files below a directory of the target, compactly. Links are shown and not followed; .git, \
node_modules, vendor, .venv, __pycache__, dist, target and what .gitignore ignores are not listed."""


class _StumpArguments(Arguments):
    dir: PathText = Field(description="the directory", validation_alias=AliasChoices("dir", "path", "directory"))
    depth: int = Field(-1, ge=-1, le=1_000, description="0: only the directory itself; -1: everything")
    include_ext: tuple[Word, ...] = Field((), description="only files with these endings, such as .py", max_length=100)
    exclude_ext: tuple[Word, ...] = Field((), description="no files with these endings", max_length=100)
    exclude_patterns: tuple[Word, ...] = Field(
        (), description="nothing whose path contains one of these texts", max_length=100
    )
    show_size: bool = Field(False, description="show file sizes in bytes")
    show_hidden: bool = Field(False, description="include hidden files")
    max_entries: int = Field(2_000, ge=1, le=20_000, description="the others are counted")
    no_default_excludes: bool = Field(False, description="search everywhere")


class Stump(Tool[_StumpArguments]):
    """``stump``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.FILE_READ,
            parallelizable=True,
            cacheable=True,
            timeout=90.0,
            limit=LIMIT,
            packs=("search",),
        )
        super().__init__("stump", STUMP_DESCRIPTION, _StumpArguments, traits)

    def subjects(self, args: _StumpArguments) -> tuple[Subject, ...]:
        return (Subject("read", args.dir),)

    async def run(self, args: _StumpArguments, ctx: ToolContext) -> ToolResult:
        query = TreeQuery(
            await absolute(ctx, args.dir),
            hidden=args.show_hidden,
            excludes=not args.no_default_excludes,
            depth=None if args.depth < 0 else args.depth + 1,
        )
        listing = await list_tree(ctx, query, "fdl")
        if listing.tree.refusal or listing.is_file:
            return refusal_of(listing.tree.refusal or "directory", args.dir)
        return _stump_result(args, listing, _filtered(args, listing), ctx.shown)


@dataclass(frozen=True, slots=True)
class _Shown:
    entries: list[Entry]
    filtered: int


def _filtered(args: _StumpArguments, listing: Listing) -> _Shown:
    skipped = [Entry(path, "d") for path in listing.tree.skipped if args.show_hidden or not _is_hidden(path)]
    wanted = [entry for entry in [*listing.entries, *skipped] if _is_wanted(args, entry)]
    count = len(listing.entries) + len(skipped) - len(wanted)
    return _Shown(sorted(wanted, key=lambda entry: entry.path.split("/")), count)


def _is_hidden(path: str) -> bool:
    return any(name.startswith(".") for name in path.split("/"))


def _is_wanted(args: _StumpArguments, entry: Entry) -> bool:
    if any(text in entry.path for text in args.exclude_patterns):
        return False
    if entry.kind == "d":
        return True
    ending = posixpath.splitext(entry.path)[1]
    if args.include_ext and ending not in map(_ending, args.include_ext):
        return False
    return ending not in map(_ending, args.exclude_ext)


def _ending(text: str) -> str:
    return text if text.startswith(".") else f".{text}"


def _stump_result(args: _StumpArguments, listing: Listing, shown: _Shown, form: ShownForm) -> ToolResult:
    left_out = frozenset(listing.tree.skipped)
    lines = [_stump_line(entry, left_out, size=args.show_size) for entry in shown.entries[: args.max_entries]]
    lines = lines[: count_fitting(lines, form)]
    kept = shown.entries[: len(lines)]
    dropped = len(shown.entries) - len(kept)
    stats: dict[str, Json] = {
        "dirs": sum(entry.kind == "d" for entry in shown.entries),
        "files": sum(entry.kind == "f" for entry in shown.entries),
        "symlinks": sum(entry.kind == "l" for entry in shown.entries),
        "filtered": shown.filtered,
        "dropped": dropped,
    }
    data: dict[str, Json] = {
        "dir": args.dir,
        "tree": [_node(entry, size=args.show_size) for entry in kept],
        "stats": stats,
        "engine": listing.engine,
        **tree_data(listing.tree, len(listing.ignored)),
    }
    summary = ", ".join([counted(_number(stats["dirs"]), "directory"), counted(_number(stats["files"]), "file")])
    notes = tree_notes(listing.tree, len(listing.ignored))
    if dropped:
        notes.insert(0, f"{counted(dropped, 'entry')} more are not shown; give a depth or a subdirectory")
    text = "\n".join([f"{args.dir.rstrip('/')}/", *lines, f"[{summary}]", *(f"[{note}]" for note in notes)])
    return ToolResult.of(text, data=data, metadata={"count": len(shown.entries)})


def _number(value: Json) -> int:
    return value if isinstance(value, int) else 0


def _node(entry: Entry, *, size: bool) -> Json:
    node: dict[str, Json] = {"path": entry.path, "type": entry.kind}
    if size and entry.kind == "f":
        node["size"] = entry.size
    return node


def _stump_line(entry: Entry, left_out: frozenset[str], *, size: bool) -> str:
    depth = entry.path.count("/") + 1
    name = readable_name(posixpath.basename(entry.path))
    mark = {"d": "/", "l": "@"}.get(entry.kind, "")
    note = "  (not listed)" if entry.path in left_out and entry.kind == "d" else ""
    number = f"  {entry.size}" if size and entry.kind == "f" and entry.size is not None else ""
    return f"{'  ' * depth}{name}{mark}{number}{note}"


# -- ``ls``: list a directory.


LS_DESCRIPTION = """\
List a directory of the target: directories end with /, links with @. For subdirectories, use glob or stump."""
MAX_LISTED = 2_000
KINDS: dict[str, Kind] = {"file": "f", "dir": "d", "link": "l", "other": "o"}
MARKS = {"d": "/", "l": "@"}


class _LsArguments(Arguments):
    path: PathText = Field(
        ".", description="the directory, or a file", validation_alias=AliasChoices("path", "dir", "directory")
    )
    all: bool = Field(False, description="include hidden files", validation_alias=AliasChoices("all", "show_hidden"))
    long: bool = Field(False, description="show mode, owner, size in bytes, time (UTC) and link targets")


class Ls(Tool[_LsArguments]):
    """``ls``."""

    def __init__(self) -> None:
        traits = Traits(
            category=Category.FILE_READ,
            parallelizable=True,
            cacheable=True,
            timeout=60.0,
            limit=LIMIT,
            aliases=("list_directory", "list_dir"),
            packs=("core",),
        )
        super().__init__("ls", LS_DESCRIPTION, _LsArguments, traits)

    def subjects(self, args: _LsArguments) -> tuple[Subject, ...]:
        return (Subject("read", args.path),)

    async def run(self, args: _LsArguments, ctx: ToolContext) -> ToolResult:
        path = await absolute(ctx, args.path)
        if args.long and can_search(ctx, "find"):
            query = TreeQuery(path, hidden=True, excludes=False, depth=1)
            listing = await list_tree(ctx, query, "fdlbcps", details=True)
            if listing.tree.refusal not in ("", "special"):
                return refusal_of(listing.tree.refusal, args.path)
            found = listing.entries if not listing.tree.refusal else [await _itself(ctx, path)]
            return _ls_result(args, found, ctx.shown, is_file=bool(listing.is_file or listing.tree.refusal))
        try:
            names = await ctx.execution.list_dir(path)
        except NotADirectory:
            return _ls_result(args, [await _itself(ctx, path)], ctx.shown, is_file=True)
        return _ls_result(args, [_of_name(entry) for entry in names], ctx.shown, is_file=False)


async def _itself(ctx: ToolContext, path: str) -> Entry:
    return _of_stat(await ctx.execution.stat(path), path)


def _of_name(entry: DirEntry) -> Entry:
    return Entry(entry.name, KINDS.get(entry.type, "o"), known_size(entry))


def _of_stat(stat: FileStat, path: str) -> Entry:
    kind = KINDS.get(stat.type, "o")
    return Entry(posixpath.basename(path), kind, known_size(stat), int(stat.mtime), f"{stat.mode:o}", owner_of(stat))


def _ls_result(args: _LsArguments, found: list[Entry], form: ShownForm, *, is_file: bool) -> ToolResult:
    visible = [entry for entry in found if args.all or is_file or not entry.path.startswith(".")]
    hidden = len(found) - len(visible)
    ordered = sorted(visible, key=lambda entry: entry.path)
    kept = ordered[:MAX_LISTED]
    kept = kept[: count_fitting((_ls_line(entry, long=args.long) for entry in kept), form)]
    notes = [f"{counted(hidden, 'hidden name')} not shown"] if hidden else []
    if len(ordered) > len(kept):
        notes.insert(0, f"{len(ordered) - len(kept)} more of {counted(len(ordered), 'entry')} not shown; use glob")
    lines = [_ls_line(entry, long=args.long) for entry in kept] or ["(empty directory)"]
    data: Json = {
        "path": args.path,
        "entries": [_facts(entry, long=args.long) for entry in kept],
        "count": len(ordered),
        "dropped": len(ordered) - len(kept),
        "hidden": hidden,
    }
    text = "\n".join([*lines, *(f"[{note}]" for note in notes)])
    return ToolResult.of(text, data=data, metadata={"count": len(ordered)})


def _ls_line(entry: Entry, *, long: bool) -> str:
    name = readable_name(entry.path) + MARKS.get(entry.kind, "")
    if not long:
        return name
    size = "-" if entry.size is None else str(entry.size)
    leads = f" -> {readable_name(entry.target)}" if entry.target is not None else ""
    return f"{entry.mode or '-':>4} {entry.owner or '-'} {size:>10} {_time(entry)} {name}{leads}"


def _time(entry: Entry) -> str:
    if entry.mtime is None:
        return "-"
    try:
        return datetime.fromtimestamp(entry.mtime, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(entry.mtime)


def _facts(entry: Entry, *, long: bool) -> Json:
    facts: dict[str, Json] = {"name": entry.path, "type": entry.kind, "size": entry.size}
    if long:
        facts |= {"mode": entry.mode, "owner": entry.owner, "mtime": entry.mtime, "target": entry.target}
    return facts
