"""Searching here what was fetched from the target: where nothing there can, and for matches over several lines."""

from __future__ import annotations

import bisect
import posixpath
from collections.abc import Callable

from anyio import to_thread

from harness.toolkit import ToolContext, ToolResult

from .contents import Contents, fetch
from .entries import Listing, list_tree
from .frames import Tree
from .greplines import Counted, Line
from .grepping import Found, Wanted
from .grepscripts import GrepQuery
from .linear import Matcher
from .target import can_search

__all__ = ["matching_lines", "search_here"]

MOST_FILES = 5_000
"""Files that are fetched."""
UNALIKE = "no_default_excludes (ripgrep is there, and would read an ignore file otherwise than git)"


async def search_here(ctx: ToolContext, query: GrepQuery, wanted: Wanted) -> Found | ToolResult:
    """Find lines as the programs of the target would.

    Raises:
        FileError: the directory cannot be looked at.
        ToolError: it took too long.
    """
    listing = await list_tree(ctx, query.tree, "f")
    if listing.tree.refusal:
        return Found("here", listing.tree, [], {})
    paths = [entry.path for entry in listing.entries if listing.is_file or wanted(entry.path)]
    if len(paths) > MOST_FILES:
        text = f"{len(paths)} files would have to be fetched and searched here, {MOST_FILES} at most: give a smaller "
        more = UNALIKE if can_search(ctx, "rg") else "install ripgrep there"
        return ToolResult.failure("too_many_files", f"{text}path, an include or a type, or {more}")
    holders = [posixpath.join(listing.tree.real, path) for path in paths]
    kept_back = await ctx.withheld(holders, top=listing.tree.real)
    kept = [path for path, real in zip(paths, holders, strict=True) if real not in kept_back]
    contents = await fetch(ctx, listing.tree.real, [_encoded(path) for path in kept])
    return await to_thread.run_sync(_search, query, listing, contents)


def _encoded(path: str) -> bytes:
    return b"./" + path.encode("utf-8", "surrogateescape")


def _search(query: GrepQuery, listing: Listing, contents: Contents) -> Found:
    matcher = Matcher(query.expression)
    files: list[Counted] = []
    lines: dict[str, list[Line]] = {}
    total = 0
    for name in sorted(contents.texts):
        count, numbers = matching_lines(matcher, contents.texts[name], multiline=query.expression.multiline)
        if not count:
            continue
        path = name.removeprefix(b"./").decode("utf-8", "surrogateescape")
        files.append(Counted(path, count, name))
        if total < query.most:
            lines[path] = _beside(contents.texts[name], numbers, query.before, query.after)
        total += count
    return Found("here", _tree(listing, contents), files, lines, contents.is_cut)


def _tree(listing: Listing, contents: Contents) -> Tree:
    tree = listing.tree
    tree.unreadable += len(contents.unreadable) + len(contents.large)
    if listing.is_file:
        tree.other["O"] = [b""]
        if contents.binary:
            tree.other["B"] = [b""]
    return tree


def matching_lines(matcher: Matcher, text: bytes, *, multiline: bool) -> tuple[int, list[int]]:
    """How many matches there are, or lines with one, and the numbers of the lines that they are in. Pure."""
    if not multiline:
        found = [number for number, line in enumerate(_split(text), 1) if matcher.found_in(line)]
        return len(found), found
    ends = [at for at, byte in enumerate(text) if byte == 10]
    spans = list(matcher.spans(text)) if _anywhere(matcher, text) else []
    numbers: set[int] = set()
    for start, end in spans:
        numbers.update(range(bisect.bisect_left(ends, start) + 1, bisect.bisect_left(ends, max(end - 1, start)) + 2))
    return len(spans), sorted(numbers)


def _anywhere(matcher: Matcher, text: bytes) -> bool:
    search: Callable[[bytes], bool] = matcher.found_in
    return search(text)


def _split(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def _beside(text: bytes, numbers: list[int], before: int, after: int) -> list[Line]:
    lines = _split(text)
    hits = set(numbers)
    shown = sorted(
        {at for number in numbers for at in range(max(1, number - before), min(len(lines), number + after) + 1)}
    )
    return [Line.of(at, lines[at - 1], is_match=at in hits) for at in shown]
