"""Finding lines: by the programs of the target, or here; what the policy keeps back is left out."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.toolkit import ToolContext

from .frames import Tree, plain, read_tree, text_of
from .greplines import Counted, Line, counts_of, lines_of, stdin_of
from .grepscripts import LISTED, GrepQuery, grep_script, lines_limit
from .target import ask, can_search

__all__ = ["Found", "Wanted", "find_lines"]

Wanted = Callable[[str], bool]
"""Whether a path, relative to the top, is meant."""


@dataclass(slots=True)
class Found:
    """What was found: every file with its count, and the lines of the first ones.

    Of files that the policy keeps back nothing is told, and not how many there are: that would say whether the
    expression is in them. ``is_cut``: there are more files than could be carried.
    """

    engine: str
    tree: Tree
    files: list[Counted]
    lines: dict[str, list[Line]]
    is_cut: bool = False

    @property
    def is_file(self) -> bool:
        """Whether a single file was searched."""
        return "O" in self.tree.other

    @property
    def is_binary(self) -> bool:
        """Whether that file is not text."""
        return "B" in self.tree.other


async def find_lines(ctx: ToolContext, query: GrepQuery, wanted: Wanted) -> Found | None:
    """Search on the target; None when nothing there can.

    Raises:
        ToolError: it took too long.
    """
    if not can_search(ctx, "rg") and not can_search(ctx, "find", "grep"):
        return None
    tree = read_tree(await ask(ctx, grep_script(query)))
    if tree.refusal == "engine":
        return None
    engine = text_of(tree.other.get("V", [b""])[0])
    counted, is_cut = counts_of(tree, LISTED)
    files = await _kept(ctx, tree, _chosen(tree, counted, wanted, engine, query.tree.start))
    limit = lines_limit(query)
    lines = lines_of(tree.other.get("C", [b""])[0], limit)
    found = Found(engine, tree, files, {}, is_cut)
    missing = [file for file in _needed(files, query) if file.path not in lines] if query.lines else []
    if missing:  # what is left out took the room of what is shown
        again = replace(query, most=query.most)
        second = read_tree(await ask(ctx, grep_script(again, named=True), stdin_of(missing)))
        lines |= lines_of(second.other.get("C", [b""])[0], limit)
    found.lines = {file.path: lines.get(file.path, []) for file in _needed(files, query)}
    return found


def _chosen(tree: Tree, counted: list[Counted], wanted: Wanted, engine: str, start: Sequence[str]) -> list[Counted]:
    if "O" in tree.other:
        return counted
    ignored = tree.ignored
    if start and ignored.leaves_out("/".join(start), is_dir=True):
        return []
    if engine == "rg":  # it has done the rest itself
        return [file for file in counted if wanted(file.path)]
    return [file for file in counted if wanted(file.path) and not ignored.leaves_out(file.path)]


def _needed(files: list[Counted], query: GrepQuery) -> list[Counted]:
    """The first files, as many as can have lines that are shown."""
    taken, total = [], 0
    for file in files:
        if total >= query.most:
            break
        taken.append(file)
        total += file.count
    return taken


async def _kept(ctx: ToolContext, tree: Tree, files: list[Counted]) -> list[Counted]:
    holders = {posixpath.normpath(posixpath.join(tree.real, plain(name))) for name in tree.other.get("A", [])}
    real = {posixpath.join(tree.real, file.path): file for file in files}
    kept_back = await ctx.withheld(list(real), top=tree.real, holders=_certain(holders, files))
    return [file for path, file in real.items() if path not in kept_back]


def _certain(holders: set[str], files: list[Counted]) -> set[str] | None:
    """None when a directory's name may have kept the script from looking there."""
    return None if any("\n" in posixpath.dirname(file.path) for file in files) else holders
