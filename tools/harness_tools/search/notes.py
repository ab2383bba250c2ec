"""What a search did not look at, in words and as data. Pure."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Sequence

from harness.toolkit import Json, OutputLimit
from harness.toolkit.values import ShownForm

from .frames import Tree

__all__ = ["LIMIT", "count_fitting", "plural", "shown_path", "skipped_note", "tree_data", "tree_notes"]

LIMIT = OutputLimit(30_000, 1_500)
"""Of a long result the notes at its end are shown, too: they say what is missing."""
NAMED = 100
"""Directories that are named in the data."""


def count_fitting(texts: Iterable[str], form: ShownForm) -> int:
    """How many of the texts, on lines of their own, can be shown with notes behind them; one at least.

    The rest is then counted with what is left out for other reasons, and nothing is cut afterwards.
    """
    room = min(LIMIT.characters, form.room)
    room -= min(LIMIT.tail, room // 5)
    count = 0
    for text in texts:
        room -= form.measure(text) + 1
        if room < 0 and count:
            break
        count += 1
    return count


def plural(count: int, what: str) -> str:
    """``1 file``, ``2 files``, ``3 matches``."""
    if count == 1:
        return f"1 {what}"
    if what.endswith("y"):
        return f"{count} {what[:-1]}ies"
    return f"{count} {what}{'es' if what.endswith('ch') else 's'}"


def shown_path(base: str, path: str) -> str:
    """A path below a directory, as the caller may give it to another tool."""
    if base in ("", "."):
        return path
    return f"{base.rstrip('/')}/{path}"


def skipped_note(skipped: Sequence[str]) -> str:
    """What default excludes left out, by name; empty when that is nothing."""
    if not skipped:
        return ""
    counts = Counter(posixpath.basename(path) for path in skipped)
    names = (f"{name} ({count})" if count > 1 else name for name, count in sorted(counts.items()))
    return f"not searched: {', '.join(names)} (no_default_excludes searches them)"


def tree_notes(tree: Tree, ignored: int) -> list[str]:
    """Sentences about what of a tree was not looked at."""
    notes = [skipped_note(tree.skipped)]
    if ignored:
        notes.append(f"{plural(ignored, 'entry')} left out by .gitignore (no_default_excludes shows them)")
    if tree.unreadable:
        notes.append(f"{plural(tree.unreadable, 'place')} could not be read")
    if tree.is_cut:
        notes.append("the tree is too large: what is beyond was not looked at; search a part of it")
    elif not tree.is_whole:
        notes.append("the search did not come to its end: there may be more")
    return [note for note in notes if note]


def tree_data(tree: Tree, ignored: int) -> dict[str, Json]:
    """The same as data."""
    return {
        "skipped": [*sorted(tree.skipped)[:NAMED]],
        "ignored": ignored,
        "unreadable": tree.unreadable,
        "complete": tree.is_whole and not tree.is_cut,
    }
