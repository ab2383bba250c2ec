"""``stump``: what is below a directory, as a tree."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from pydantic import AliasChoices, Field

from harness.toolkit import Arguments, Category, Json, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.values import ShownForm

from ..texts import readable_name
from .entries import Entry, Listing, list_tree
from .frames import refusal_of
from .notes import LIMIT, count_fitting, plural, tree_data, tree_notes
from .target import absolute
from .treescripts import TreeQuery
from .words import PathText, Word

__all__ = ["Stump"]

DESCRIPTION = """\
Show the tree of files below a directory of the target in few words. Links are shown and not followed; .git, \
node_modules, vendor, .venv, __pycache__, dist, target and what .gitignore leaves out are not looked into."""


class _Arguments(Arguments):
    dir: PathText = Field(description="the directory", validation_alias=AliasChoices("dir", "path", "directory"))
    depth: int = Field(-1, ge=-1, le=1_000, description="0: what is directly in it; -1: everything")
    include_ext: tuple[Word, ...] = Field((), description="only files with these endings, such as .py", max_length=100)
    exclude_ext: tuple[Word, ...] = Field((), description="no files with these endings", max_length=100)
    exclude_patterns: tuple[Word, ...] = Field(
        (), description="nothing whose path contains one of these texts", max_length=100
    )
    show_size: bool = Field(False, description="with the files' sizes in bytes")
    show_hidden: bool = Field(False, description="also names that begin with a dot")
    max_entries: int = Field(2_000, ge=1, le=20_000, description="the others are counted")
    no_default_excludes: bool = Field(False, description="look everywhere")


class Stump(Tool[_Arguments]):
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
        super().__init__("stump", DESCRIPTION, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return (Subject("read", args.dir),)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        query = TreeQuery(
            await absolute(ctx, args.dir),
            hidden=args.show_hidden,
            excludes=not args.no_default_excludes,
            depth=None if args.depth < 0 else args.depth + 1,
        )
        listing = await list_tree(ctx, query, "fdl")
        if listing.tree.refusal or listing.is_file:
            return refusal_of(listing.tree.refusal or "directory", args.dir)
        return _result(args, listing, _filtered(args, listing), ctx.shown)


@dataclass(frozen=True, slots=True)
class _Shown:
    entries: list[Entry]
    filtered: int


def _filtered(args: _Arguments, listing: Listing) -> _Shown:
    skipped = [Entry(path, "d") for path in listing.tree.skipped if args.show_hidden or not _is_hidden(path)]
    wanted = [entry for entry in [*listing.entries, *skipped] if _is_wanted(args, entry)]
    count = len(listing.entries) + len(skipped) - len(wanted)
    return _Shown(sorted(wanted, key=lambda entry: entry.path.split("/")), count)


def _is_hidden(path: str) -> bool:
    return any(name.startswith(".") for name in path.split("/"))


def _is_wanted(args: _Arguments, entry: Entry) -> bool:
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


def _result(args: _Arguments, listing: Listing, shown: _Shown, form: ShownForm) -> ToolResult:
    left_out = frozenset(listing.tree.skipped)
    lines = [_line(entry, left_out, size=args.show_size) for entry in shown.entries[: args.max_entries]]
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
    summary = ", ".join([plural(_number(stats["dirs"]), "directory"), plural(_number(stats["files"]), "file")])
    notes = tree_notes(listing.tree, len(listing.ignored))
    if dropped:
        notes.insert(0, f"{plural(dropped, 'entry')} more are not shown; give a depth or a directory below")
    text = "\n".join([f"{args.dir.rstrip('/')}/", *lines, f"[{summary}]", *(f"[{note}]" for note in notes)])
    return ToolResult.of(text, data=data, metadata={"count": len(shown.entries)})


def _number(value: Json) -> int:
    return value if isinstance(value, int) else 0


def _node(entry: Entry, *, size: bool) -> Json:
    node: dict[str, Json] = {"path": entry.path, "type": entry.kind}
    if size and entry.kind == "f":
        node["size"] = entry.size
    return node


def _line(entry: Entry, left_out: frozenset[str], *, size: bool) -> str:
    depth = entry.path.count("/") + 1
    name = readable_name(posixpath.basename(entry.path))
    mark = {"d": "/", "l": "@"}.get(entry.kind, "")
    note = "  (not looked into)" if entry.path in left_out and entry.kind == "d" else ""
    number = f"  {entry.size}" if size and entry.kind == "f" and entry.size is not None else ""
    return f"{'  ' * depth}{name}{mark}{number}{note}"
