"""Directory trees and glob patterns."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from harness.errors import FileError, FileNotFound, NotADirectory
from harness.patterns.wildcards import NameMatcher, glob_names, names_match
from harness.results import DirEntry

from ..persistent_shell import ShellReply
from .file_calls import EntryParser, FileCalls, display_path, file_error, tolerable
from .shell_library import INLINE_READ, call
from .transfer import drain

__all__ = [
    "Search",
    "glob_paths",
    "list_entries",
    "plan_glob",
    "search",
]


# -- Glob patterns as ``glob.glob(recursive=True)`` reads them: as matchers of names and a plan for the target. Pure.
#
# ``*``, ``?`` and ``[...]`` stay within one name; ``**`` as a whole component is any number of directories. A name
# that starts with a dot matches only a component that starts with a dot. A pattern with ``**`` follows no links;
# any other one does, as a shell would.


_MAGIC = re.compile(r"[*?[]")
_SIMPLE = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class GlobPlan:
    """The plan for one pattern: search below ``prefix`` and keep what ``readings`` match.

    ``prefix`` is the literal start, with its ``/``. ``readings`` are empty for a pattern without wildcards.
    ``expansion`` is a pattern that a shell expands to a superset of the matches, None if the whole tree must be
    searched; ``hidden`` says whether that search must include names that start with a dot.
    """

    prefix: str
    readings: tuple[tuple[NameMatcher | None, ...], ...]
    expansion: str | None
    hidden: bool
    directories_only: bool

    @property
    def shape(self) -> str:
        """The library's name for the search."""
        if self.expansion is not None:
            return "expand"
        return "search" if self.hidden else "visible"

    @property
    def includes_prefix(self) -> bool:
        """True if the literal prefix is itself a result, as ``a/`` is of ``a/**``."""
        return bool(self.prefix) and self._matches("")

    def match(self, entry: DirEntry) -> list[str]:
        """Return the results of one entry: usually none or its path."""
        found = []
        if not self.directories_only and self._matches(entry.name):
            found.append(self.prefix + entry.name)
        if entry.type == "dir" and self._matches(entry.name + "/"):
            found.append(self.prefix + entry.name + "/")
        return found

    def _matches(self, name: str) -> bool:
        names = name.split("/")
        return any(names_match(reading, names, visible_only=True) for reading in self.readings)


def plan_glob(pattern: str) -> GlobPlan:
    """Parse a pattern.

    Raises:
        ValueError: the pattern is empty, or has ``..`` after a wildcard.
    """
    if not pattern:
        raise ValueError("the glob pattern is empty")
    parts = pattern.split("/")
    first = next((index for index, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    prefix = "/".join(parts[:first]) + ("/" if 0 < first < len(parts) else "")
    rest = [part for part in parts[first:-1] if part not in ("", ".")] + (parts[-1:] if first < len(parts) else [])
    if ".." in rest:
        raise ValueError(f"{pattern!r}: '..' may not follow a wildcard")
    if not rest:
        return GlobPlan(pattern, (), None, False, pattern.endswith("/"))
    names = [part for part in rest if part]
    return GlobPlan(
        prefix,
        glob_names(rest),
        None if "**" in names else "/".join(map(_expansion, names)),
        any(part.startswith(".") for part in names),
        not rest[-1],
    )


def _expansion(part: str) -> str:
    if _SIMPLE.fullmatch(part):
        return part
    return ".*" if part.startswith(".") else "*"


# -- Directory searches: one search program on the target, whose output is parsed and matched here.
#
# A small search takes one round trip of the persistent shell. A search with a larger result is repeated in a separate
# process, where it can be stopped at any time.


MAX_LISTED = 1_000_000


@dataclass(frozen=True, slots=True)
class Search:
    """A search below ``path``: the library's ``shape``, and for ``expand`` the pattern."""

    path: str
    shape: str
    pattern: str = ""

    def script(self, mark: str, cap: int) -> str:
        """Return the call, with at most ``cap`` bytes of answer (0: unlimited)."""
        return call("hxf_tree", self.path, self.shape, mark, cap, self.pattern)


class _TooMany(Exception):
    pass


class _SearchResults:
    """The results of a search so far; ``choose`` converts an entry to results."""

    def __init__(self, mark: str, choose: Callable[[DirEntry], list[DirEntry]], maximum: int) -> None:
        self.results: list[DirEntry] = []
        self._parser = EntryParser(mark)
        self._choose = choose
        self._maximum = maximum

    async def feed(self, data: bytes) -> None:
        self._add(self._parser.feed(data))

    def finish(self) -> list[DirEntry]:
        self._add(self._parser.finish())
        return self.results

    def _add(self, entries: list[DirEntry]) -> None:
        for entry in entries:
            self.results += self._choose(entry)
        if len(self.results) > self._maximum:
            raise _TooMany


async def search(
    calls: FileCalls, wanted: Search, maximum: int, choose: Callable[[DirEntry], list[DirEntry]] = lambda entry: [entry]
) -> list[DirEntry]:
    """Run a search, and return its results sorted by name.

    Raises:
        FileError: more than ``maximum`` results; or the matching error of the directory.
    """
    mark = secrets.token_hex(12)
    try:
        return sorted(
            await _search(calls, wanted, _SearchResults(mark, choose, maximum), mark), key=lambda entry: entry.name
        )
    except _TooMany:
        raise FileError(
            f"{display_path(wanted.path)}: more than {maximum} entries",
            target=calls.where,
            hint="search a smaller part, or raise max_entries",
        ) from None


async def _search(calls: FileCalls, wanted: Search, kept: _SearchResults, mark: str) -> list[DirEntry]:
    reply = await calls.run(wanted.path, wanted.script(mark, INLINE_READ))
    if len(reply.stdout) < INLINE_READ:
        _check(calls, wanted.path, reply)
        return await _whole(calls, wanted, kept, reply)
    with calls.understanding(wanted.path, reply.stdout):
        EntryParser(mark).feed(reply.stdout)
    process = await calls.open_script(wanted.script(mark, 0))
    if process is None:
        reply = await calls.run(wanted.path, wanted.script(mark, 0))
        _check(calls, wanted.path, reply)
        return await _whole(calls, wanted, kept, reply)
    with calls.understanding(wanted.path, b"..."):
        _check(calls, wanted.path, await drain(process, kept.feed))
        return kept.finish()


async def _whole(calls: FileCalls, wanted: Search, kept: _SearchResults, reply: ShellReply) -> list[DirEntry]:
    with calls.understanding(wanted.path, reply.stdout):
        await kept.feed(reply.stdout)
        return kept.finish()


def _check(calls: FileCalls, path: str, reply: ShellReply) -> None:
    """Raise an error, except for directories that the search cannot enter."""
    if reply.exit_code >= 70 or not tolerable(reply.stderr):
        raise file_error(path, reply.exit_code, reply.stderr, calls.where)


async def list_entries(calls: FileCalls, path: str) -> list[DirEntry]:
    """Return the entries of a directory."""
    return await search(calls, Search(path, "list"), MAX_LISTED)


async def glob_paths(calls: FileCalls, pattern: str, root: str, maximum: int) -> list[str]:
    """Return the paths that match a pattern below ``root``, or anywhere for an absolute or ``~`` pattern."""
    plan = plan_glob(pattern)
    if not plan.readings:
        return [pattern] if await _exists(calls, _join(root, pattern)) else []

    def choose(entry: DirEntry) -> list[DirEntry]:
        return [DirEntry(name, entry.type, entry.size) for name in plan.match(entry)]

    wanted = Search(_join(root, plan.prefix), plan.shape, plan.expansion or "")
    try:
        found = await search(calls, wanted, maximum, choose)
    except (FileNotFound, NotADirectory):
        if not plan.prefix:
            raise
        return []
    return sorted(([plan.prefix] if plan.includes_prefix else []) + [entry.name for entry in found])


def _join(root: str, path: str) -> str:
    return path if path.startswith(("/", "~")) else f"{root}/{path}" if path else root


async def _exists(calls: FileCalls, path: str) -> bool:
    try:
        await calls.run(path, call("hxf_status", path, 0))
    except (FileNotFound, NotADirectory):
        return False
    return True
