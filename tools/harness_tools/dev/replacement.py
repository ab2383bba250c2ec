"""Which files a replacement changes: they are found and read first, and nothing is written until all of them may be."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from anyio import to_thread

from harness.errors import FileError
from harness.results import FileContent
from harness.toolkit import ToolContext, ToolResult
from harness.toolkit.failures import failure_of
from harness.toolkit.reads import target_path

from .candidates import FILE_LIMIT, Candidates, candidates_in
from .replacing import Found, Replacement

__all__ = ["FILES", "Plan", "Problem", "Target", "ending_of", "plan_for", "problem_of"]

FILES = 500
"""Files that one call changes."""
CANDIDATES = 5_000
"""Files that one call fetches."""
SCHEME = "sha256:"
"""What the versions of most targets begin with."""
ALL_BYTES = 64 << 20
"""Bytes of all of them together, which are held here."""


@dataclass(frozen=True, slots=True)
class Target:
    """A file that changes, and what changes in it. ``named``: it was named, and not found in a directory."""

    content: FileContent
    found: Found
    named: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that could not be read or written."""

    path: str
    code: str
    message: str


@dataclass(slots=True)
class Plan:
    """What a call would change. Counters are files, but for ``excluded``, which counts places."""

    targets: list[Target] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    searched: int = 0
    binary: int = 0
    large: int = 0
    unreadable: int = 0
    excluded: int = 0

    def add(self, candidates: Candidates, kept_back: Collection[str]) -> None:
        """Count what a search left out, but for what the policy keeps back: that would say what is in it."""
        self.binary += sum(name not in kept_back for name in candidates.binary)
        self.large += sum(name not in kept_back for name in candidates.large)
        self.unreadable += candidates.unreadable

    def fail(self, path: str, error: Exception) -> None:
        """Note a file that could not be read."""
        self.problems.append(problem_of(path, error))


def problem_of(path: str, error: Exception) -> Problem:
    """A file of which the target says why it cannot be read or written."""
    result, _ = failure_of(error, "repfor")
    return Problem(path, result.error_code, result.text)


def ending_of(ext: str) -> str:
    """How names end with this extension: the dot may be left out."""
    return ext if not ext or ext.startswith(".") else f".{ext}"


async def plan_for(
    ctx: ToolContext,
    change: Replacement,
    *,
    files: tuple[str, ...],
    directories: tuple[str, ...],
    ext: str,
    recursive: bool,
) -> Plan | ToolResult:
    """Find and read what would change; or the refusal, when that is too much for one call.

    Raises:
        FileError: a directory cannot be read.
        ToolError: a search did not come to its end.
    """
    plan = Plan()
    found = await _found(ctx, plan, change, directories, ending_of(ext), recursive=recursive)
    names, texts = list(found), {path: text for path, text in found.items() if text is not None}
    if len(names) > CANDIDATES:
        text = (
            f"{len(names)} files hold the text, more than {CANDIDATES}: name a smaller directory. Nothing was changed"
        )
        return ToolResult.failure("too_many", text, data={"files": len(names)})
    named = [(target_path(ctx, path), path, True) for path in files if path.endswith(ending_of(ext))]
    reader = _Reader(ctx, texts)
    return await _read(reader, plan, change, [*named, *((path, path, False) for path in names)])


@dataclass(slots=True)
class _Reader:
    """Reads files; what came with the search is not fetched again, once it is known how the target makes versions."""

    ctx: ToolContext
    texts: dict[str, bytes]
    hashes: bool = False

    async def read(self, path: str) -> FileContent:
        """All of a file, if it is not too long to be changed."""
        text = self.texts.get(path) if self.hashes else None
        if text is not None:
            return FileContent(text, len(text), 0, f"{SCHEME}{hashlib.sha256(text).hexdigest()}", path)
        content = await self.ctx.execution.read_file(path, limit=FILE_LIMIT + 1)
        self.hashes = content.version.startswith(SCHEME)
        return content


async def _found(
    ctx: ToolContext, plan: Plan, change: Replacement, directories: tuple[str, ...], ending: str, *, recursive: bool
) -> dict[str, bytes | None]:
    """The files of the directories that may change, by their real paths, without those that the policy keeps back.

    With each its content, where it came with the search.
    """
    names: dict[str, bytes | None] = {}
    for directory in directories:
        real = (await ctx.execution.stat(target_path(ctx, directory))).path
        found = await candidates_in(ctx, real, change.part, ending, folds=change.folds, recursive=recursive)
        paths = {posixpath.join(real, name): name for name in (*found.names, *found.binary, *found.large)}
        kept_back = {paths[path] for path in await ctx.withheld(list(paths), top=real)}
        plan.add(found, kept_back)
        names |= {posixpath.join(real, name): found.texts.get(name) for name in found.names if name not in kept_back}
    return names


async def _read(
    reader: _Reader, plan: Plan, change: Replacement, paths: list[tuple[str, str, bool]]
) -> Plan | ToolResult:
    known: set[str] = set()
    room = ALL_BYTES
    for path, given, named in paths:
        try:
            content = await reader.read(path)
        except FileError as error:
            plan.fail(given, error)
            continue
        if content.path in known:
            continue
        known.add(content.path)
        plan.searched += 1
        target = await _target(plan, change, given, content, named=named)
        if target is None:
            continue
        plan.targets.append(target)
        room -= max(content.size, target.found.size)
        if room < 0 or len(plan.targets) > FILES:
            text = (
                f"more than {FILES} files, or {ALL_BYTES >> 20} MiB, would change: name fewer files, or a smaller "
                "directory. Nothing was changed"
            )
            return ToolResult.failure("too_many", text)
    return plan


async def _target(plan: Plan, change: Replacement, given: str, content: FileContent, *, named: bool) -> Target | None:
    if content.size > FILE_LIMIT:
        plan.large += 1
        if named:
            plan.problems.append(Problem(given, "too_big", f"{given} holds more than {FILE_LIMIT >> 20} MiB"))
        return None
    if b"\0" in content.data:
        plan.binary += 1
        if named:
            plan.problems.append(Problem(given, "binary", f"{given} is no text: it holds NUL bytes"))
        return None
    found = await to_thread.run_sync(change.find, content.data)
    plan.excluded += found.excluded
    if found.too_big:
        plan.problems.append(Problem(given, "too_big", f"{given} would grow to {found.size} bytes"))
        return None
    if found.too_many:
        plan.problems.append(Problem(given, "too_many", f"{given} holds the text too often"))
        return None
    return replace(Target(content, found), named=named) if found.changes else None
