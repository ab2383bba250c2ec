"""The files that a copy reads: paths and patterns of one target, and everything below its directories.

Links are followed, as ``scp`` does: the copy has the content of the files that they name. A link to a directory that it
is itself in is a failure, not an endless tree.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field

from ..backend import Files
from ..errors import FileError, FileNotFound, HarnessError, IsADirectory
from ..results import DirEntry
from .workers import for_each

__all__ = ["MAX_ENTRIES", "SourceEntry", "SourceList", "SourceProblem", "list_sources"]

MAX_ENTRIES = 1_000_000
MAX_DEPTH = 200
_AT_ONCE = 16
"""Directories that are listed at the same time."""
_MAGIC = re.compile(r"[*?[]")
_TEMPORARY = re.compile(r"\.hx-tmp-|\.hx-lock$")
"""Names of files that harness makes while it writes; a copy of one would be removed as a remainder."""
_IS_TEMPORARY = "is a temporary file of harness"
_IS_SPECIAL = "is a pipe, a socket or a device"


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """A file or a directory to copy.

    ``names`` lead from the destination to it; they are empty for a directory without a name of its own, such as ``.``.
    ``from_target``: the target chose its name, which is that of a match of a pattern, or below a directory. ``real`` is
    the path of a directory without links.
    """

    path: str
    names: tuple[str, ...]
    is_directory: bool
    size: int = 0
    mode: int = 0
    mtime: float = 0.0
    from_target: bool = False
    real: str = ""


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """What is not copied: with an error, or skipped because it is not a file."""

    path: str
    error: HarnessError
    skipped: bool = False


@dataclass(slots=True)
class SourceList:
    """What was found, directories before their content."""

    entries: list[SourceEntry] = field(default_factory=list)
    problems: list[SourceProblem] = field(default_factory=list)
    roots: list[SourceEntry] = field(default_factory=list)
    """What was named or matched."""
    root_count: int = 0
    """The number of paths that were named or matched, also of those that were not found."""


@dataclass(frozen=True, slots=True)
class _Directory:
    entry: SourceEntry
    above: tuple[str, ...]
    """The real paths of the directories that it is in, and its own."""


async def list_sources(files: Files, paths: list[str], *, recursive: bool) -> SourceList:
    """Find what paths and patterns name.

    Args:
        files: The target.
        paths: Paths, and patterns as :meth:`Files.glob` reads them. A file whose name looks like a pattern comes first.
        recursive: Descend into directories; without it, they are problems.

    Raises:
        ConnectionLost: The connection broke.
    """
    return await _Lister(files, recursive=recursive).run(paths)


class _Lister:
    """One search."""

    def __init__(self, files: Files, *, recursive: bool) -> None:
        self._files = files
        self._recursive = recursive
        self._found = SourceList()
        self._waiting: list[_Directory] = []

    async def run(self, paths: list[str]) -> SourceList:
        for path in paths:
            try:
                for root, matched in await self._roots(path):
                    self._found.root_count += 1
                    await self._add_root(root, matched=matched)
            except FileError as error:
                self._fail(path, error)
        self._found.roots = list(self._found.entries)
        while self._waiting:
            batch, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            await for_each(batch, self._descend, at_once=_AT_ONCE)
        self._found.entries.sort(key=lambda entry: (len(entry.names), entry.names))
        return self._found

    async def _roots(self, path: str) -> list[tuple[str, bool]]:
        if not _MAGIC.search(path):
            return [(path, False)]
        try:
            await self._files.stat(path, follow=False)
            return [(path, False)]
        except FileError:
            found = await self._files.glob(path, max_entries=MAX_ENTRIES)
        if not found:
            raise FileNotFound(f"{path}: nothing matches", hint="check the pattern; quote it against your own shell")
        return [(match.rstrip("/") or "/", True) for match in found]

    async def _add_root(self, path: str, *, matched: bool) -> None:
        name = _name_of(path)
        try:
            if matched:
                _check_name(name or "", path)
            if _TEMPORARY.match(name or ""):
                raise FileError(f"{path}: {_IS_TEMPORARY}", hint="rename it")
            await self._add(path, (name,) if name else (), (), from_target=matched)
        except FileError as error:
            self._fail(path, error)

    async def _add(self, path: str, names: tuple[str, ...], above: tuple[str, ...], *, from_target: bool) -> None:
        """Add a path of unknown type, which may be a link."""
        stat = await self._files.stat(path)
        if stat.type == "dir":
            entry = SourceEntry(path, names, True, 0, stat.mode, stat.mtime, from_target, stat.path)
            self._add_directory(entry, above)
        elif stat.type == "file":
            self._keep(SourceEntry(path, names, False, stat.size, stat.mode, stat.mtime, from_target))
        elif names and above:
            self._skip(path, _IS_SPECIAL)
        else:
            raise FileError(f"{path}: {_IS_SPECIAL}", hint="read it with a command")

    def _add_directory(self, entry: SourceEntry, above: tuple[str, ...]) -> None:
        if not self._recursive:
            raise IsADirectory(f"{entry.path}: is a directory", hint="copy directories with -r")
        if entry.real in above:
            raise FileError(f"{entry.path}: is a link to a directory that it is in", hint="it is not copied")
        if len(above) >= MAX_DEPTH:
            raise FileError(f"{entry.path}: more than {MAX_DEPTH} directories deep")
        self._keep(entry)
        self._waiting.append(_Directory(entry, (*above, entry.real)))

    async def _descend(self, directory: _Directory) -> None:
        entry = directory.entry
        try:
            listed = await self._files.list_dir(entry.path)
        except FileError as error:
            self._fail(entry.path, error)
            return
        for item in listed:
            path = posixpath.join(entry.path, item.name)
            try:
                _check_name(item.name, entry.path)
                await self._add_entry(directory, item, path)
            except FileError as error:
                self._fail(path, error)

    async def _add_entry(self, directory: _Directory, item: DirEntry, path: str) -> None:
        names = (*directory.entry.names, item.name)
        if _TEMPORARY.match(item.name):
            self._skip(path, _IS_TEMPORARY)
        elif item.type == "file" and item.size >= 0:
            self._keep(SourceEntry(path, names, False, item.size, from_target=True))
        elif item.type == "other":
            self._skip(path, _IS_SPECIAL)
        else:
            await self._add(path, names, directory.above, from_target=True)

    def _keep(self, entry: SourceEntry) -> None:
        self._check_count()
        self._found.entries.append(entry)

    def _fail(self, path: str, error: FileError, *, skipped: bool = False) -> None:
        self._check_count()
        self._found.problems.append(SourceProblem(path, error, skipped))

    def _check_count(self) -> None:
        if len(self._found.entries) + len(self._found.problems) >= MAX_ENTRIES:
            raise HarnessError(f"more than {MAX_ENTRIES:,} files", hint="copy a smaller part")

    def _skip(self, path: str, why: str) -> None:
        self._fail(path, FileError(f"{path}: {why}"), skipped=True)


def _name_of(path: str) -> str | None:
    """Return the name that a copy of the path gets; None if the path has none, as ``.``, ``..``, ``/`` and ``~``."""
    name = posixpath.basename(path.rstrip("/"))
    return None if name in {"", ".", ".."} or (name.startswith("~") and "/" not in path.rstrip("/")) else name


def _check_name(name: str, place: str) -> None:
    """Refuse what a target answers as the name of a file, and is not one.

    Raises:
        FileError: It would leave the destination.
    """
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise FileError(f"{place}: the target answers with {name!r}, which is not the name of a file")
