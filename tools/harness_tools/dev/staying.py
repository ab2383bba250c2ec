"""What in a directory keeps it out of the trash: files that the policy keeps back where they are, and not there."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Sequence

from harness.errors import FileError
from harness.toolkit import Json, ToolContext, ToolResult

from .trash import Place

__all__ = ["MOST", "kept_in"]

MOST = 200_000
"""Names in a directory that are looked at."""
SHOWN = 5
EXCLUDES = ".aiexclude"
SOME_NAME = "x"
"""For the directory's name in the trash, which may have a number behind it: what is a secret by that name is none."""


async def kept_in(ctx: ToolContext, directory: str, trashes: Sequence[Place]) -> ToolResult | None:
    """The refusal to move a directory, by its real path, because of what is in it; None when there is no such thing.

    A file that is withheld by its place (an ``.aiexclude`` above it, a rule, ``.aws/credentials``) could be read in the
    trash; one that is withheld by its name is withheld there, too.

    Raises:
        HarnessError: it could not be found out.
    """
    try:
        entries = await ctx.execution.walk(directory, max_entries=MOST)
    except FileError as error:
        text = f"what is in {directory} could not be looked at, so it was not moved: {error.message}. Use a command"
        return ToolResult.failure("not_judged", text)
    names = [entry.name for entry in entries if entry.type != "dir"]
    holders = [posixpath.dirname(name) for name in names if posixpath.basename(name) == EXCLUDES]
    real = {posixpath.join(directory, name): name for name in names}
    locked = await ctx.locked(list(real), tool="delete")
    around = {posixpath.normpath(posixpath.join(directory, name)) for name in holders}
    withheld = await ctx.withheld(list(real), top=directory, holders=around)
    shown = await _not_kept_back(ctx, [real[path] for path in withheld], trashes)
    staying = sorted({real[path] for path in locked} | shown)
    return _refusal(directory, staying) if staying else None


async def _not_kept_back(ctx: ToolContext, names: Collection[str], trashes: Sequence[Place]) -> set[str]:
    """Those that could be read in one of the trashes."""
    shown: set[str] = set()
    for place in trashes if names else ():
        there = {posixpath.join(place.directory, "files", SOME_NAME, name): name for name in names}
        kept = await ctx.withheld(list(there), top=place.directory, holders=())
        shown |= {name for path, name in there.items() if path not in kept}
    return shown


def _refusal(directory: str, names: Sequence[str]) -> ToolResult:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    text = (
        f"{directory} does not go to the trash: the policy keeps files in it where they are ({', '.join(names[:SHOWN])}"
        f"{more}). Nothing was moved. Delete what is beside them, or ask a person"
    )
    listed: list[Json] = list(names[:SHOWN])
    return ToolResult.failure("protected", text, data={"kept": listed, "kept_count": len(names)})
