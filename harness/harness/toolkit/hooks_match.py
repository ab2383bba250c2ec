"""For which calls a hook runs."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .arguments import decode
from .permissions.globs import matches
from .values import Subject, ToolCall

if TYPE_CHECKING:
    from .context import ToolContext
    from .hooks import Occasion

__all__ = ["Matcher", "paths_of", "private_of", "subjects_of"]


@dataclass(frozen=True, slots=True)
class Matcher:
    """Patterns as in rules of the policy; one of each kind has to match, and none of a kind is any.

    ``tools`` are canonical names. ``targets`` are URLs with the target's identity. ``paths`` are absolute paths on the
    target that the call reads or writes, without links followed; a command has none. Where they cannot be known,
    the hook runs; so it does for a directory that may hold what a pattern from the root names, which ``grep`` and its
    like read below.
    """

    tools: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def covers(self, occasion: Occasion) -> bool:
        """Whether the hook runs."""
        name = occasion.call.name if occasion.call is not None else ""
        if not _any(self.tools, name) or not _any(self.targets, occasion.target):
            return False
        if not self.paths or occasion.paths is None:
            return True
        return any(
            matches(pattern, path, "path") or _may_hold(path, pattern)
            for pattern in self.paths
            for path in occasion.paths
        )


def _may_hold(path: str, pattern: str) -> bool:
    """Whether a directory of that name may have a file below that matches."""
    if not pattern.startswith("/"):
        return False
    names = pattern.split("/")
    return path == "/" or any(matches("/".join(names[:end]), path, "path") for end in range(2, len(names)))


def _any(patterns: tuple[str, ...], text: str) -> bool:
    return not patterns or any(matches(pattern, text) for pattern in patterns)


def subjects_of(call: ToolCall, ctx: ToolContext) -> tuple[Subject, ...] | None:
    """What a call would touch; None when that cannot be known."""
    try:
        tool = ctx.registry.lookup(call.name)
        return tool.subjects(tool.parse(decode(call.arguments, call.name)))
    except Exception:  # the hook runs, then
        return None


def private_of(call: ToolCall, ctx: ToolContext) -> frozenset[str]:
    """The arguments that may hold a password, of a call whose subjects are known."""
    tool = ctx.registry.lookup(call.name)
    return tool.private_arguments(tool.parse(decode(call.arguments, call.name)))


def paths_of(subjects: tuple[Subject, ...], ctx: ToolContext) -> tuple[str, ...]:
    """The files that are read or written, absolute."""
    home = ctx.execution.capabilities.home
    return tuple(
        _absolute(subject.text, subject.cwd or ctx.cwd or home, home)
        for subject in subjects
        if subject.kind in {"read", "write"}
    )


def _absolute(path: str, cwd: str, home: str) -> str:
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    found = posixpath.normpath(posixpath.join(cwd, path))
    return "/" + found.lstrip("/") if found.startswith("/") else found
