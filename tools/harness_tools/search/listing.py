"""``ls``: the names in a directory."""

from __future__ import annotations

import posixpath
from datetime import UTC, datetime

from pydantic import AliasChoices, Field

from harness.errors import NotADirectory
from harness.results import DirEntry, FileStat
from harness.toolkit import Arguments, Category, Json, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.values import ShownForm

from ..texts import readable_name
from .entries import Entry, Kind, known_size, list_tree, owner_of
from .frames import refusal_of
from .notes import LIMIT, count_fitting, plural
from .target import absolute, can_search
from .treescripts import TreeQuery
from .words import PathText

__all__ = ["Ls"]

DESCRIPTION = """\
List a directory of the target: directories end with /, links with @. For names below it too use glob or stump."""
MOST = 2_000
KINDS: dict[str, Kind] = {"file": "f", "dir": "d", "link": "l", "other": "o"}
MARKS = {"d": "/", "l": "@"}


class _Arguments(Arguments):
    path: PathText = Field(
        ".", description="the directory, or a file", validation_alias=AliasChoices("path", "dir", "directory")
    )
    all: bool = Field(
        False, description="also names that begin with a dot", validation_alias=AliasChoices("all", "show_hidden")
    )
    long: bool = Field(False, description="with mode, owner, size in bytes, time (UTC) and where links lead")


class Ls(Tool[_Arguments]):
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
        super().__init__("ls", DESCRIPTION, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return (Subject("read", args.path),)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        path = await absolute(ctx, args.path)
        if args.long and can_search(ctx, "find"):
            query = TreeQuery(path, hidden=True, excludes=False, depth=1)
            listing = await list_tree(ctx, query, "fdlbcps", details=True)
            if listing.tree.refusal not in ("", "special"):
                return refusal_of(listing.tree.refusal, args.path)
            found = listing.entries if not listing.tree.refusal else [await _itself(ctx, path)]
            return _result(args, found, ctx.shown, is_file=bool(listing.is_file or listing.tree.refusal))
        try:
            names = await ctx.execution.list_dir(path)
        except NotADirectory:
            return _result(args, [await _itself(ctx, path)], ctx.shown, is_file=True)
        return _result(args, [_of_name(entry) for entry in names], ctx.shown, is_file=False)


async def _itself(ctx: ToolContext, path: str) -> Entry:
    return _of_stat(await ctx.execution.stat(path), path)


def _of_name(entry: DirEntry) -> Entry:
    return Entry(entry.name, KINDS.get(entry.type, "o"), known_size(entry))


def _of_stat(stat: FileStat, path: str) -> Entry:
    kind = KINDS.get(stat.type, "o")
    return Entry(posixpath.basename(path), kind, known_size(stat), int(stat.mtime), f"{stat.mode:o}", owner_of(stat))


def _result(args: _Arguments, found: list[Entry], form: ShownForm, *, is_file: bool) -> ToolResult:
    visible = [entry for entry in found if args.all or is_file or not entry.path.startswith(".")]
    hidden = len(found) - len(visible)
    ordered = sorted(visible, key=lambda entry: entry.path)
    kept = ordered[:MOST]
    kept = kept[: count_fitting((_line(entry, long=args.long) for entry in kept), form)]
    notes = [f"{plural(hidden, 'name')} with a dot in front not shown"] if hidden else []
    if len(ordered) > len(kept):
        notes.insert(0, f"{len(ordered) - len(kept)} more of {plural(len(ordered), 'entry')} not shown; use glob")
    lines = [_line(entry, long=args.long) for entry in kept] or ["(empty directory)"]
    data: Json = {
        "path": args.path,
        "entries": [_facts(entry, long=args.long) for entry in kept],
        "count": len(ordered),
        "dropped": len(ordered) - len(kept),
        "hidden": hidden,
    }
    text = "\n".join([*lines, *(f"[{note}]" for note in notes)])
    return ToolResult.of(text, data=data, metadata={"count": len(ordered)})


def _line(entry: Entry, *, long: bool) -> str:
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
