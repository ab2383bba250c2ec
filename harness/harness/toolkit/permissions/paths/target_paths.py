"""Resolution of paths on the target: ``..``, links, ``~`` and wildcards as the kernel and shell there resolve them."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from ....context import ExecutionContext
from ....errors import FileError, FileNotFound, NotADirectory, UnsupportedOperation
from ....results import FileStat

__all__ = [
    "PathResolver",
    "RealPath",
    "at_home",
    "expand_pattern",
    "find_cwd",
    "links_among",
    "reads_like_bash",
    "tools_start",
]

LINKS = 40
"""Maximum number of links followed for one path, as in kernels."""
MATCHES = 2000
"""Maximum number of names that a wildcard of a command may match."""
SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "busybox"})
"""Shells that parse a text as bash does, or reject it."""
DIRECTORIES = 32
"""Maximum number of directories listed to find links."""


@dataclass(frozen=True, slots=True)
class RealPath:
    """A path of a call: as given, absolute, and resolved by the target.

    ``is_known``: False if the target could not resolve it; then nothing about it is certain.
    """

    given: str
    absolute: str
    real: str
    is_known: bool = True
    is_dir: bool = False
    only_named: bool = False
    """The call neither shows nor changes its content."""

    @property
    def forms(self) -> tuple[str, ...]:
        """All its names, the real path first."""
        return tuple(dict.fromkeys((self.real, posixpath.normpath(self.absolute), self.absolute)))


class PathResolver:
    """Resolves real paths for one decision; each missing directory is resolved once."""

    def __init__(self, execution: ExecutionContext) -> None:
        self._execution = execution
        self._home = execution.capabilities.home
        self._directories: dict[str, str] = {}

    async def find(self, path: str, base: str) -> RealPath:
        """Resolve a path; a missing file is resolved from its nearest directory or a dangling link.

        Args:
            path: the path.
            base: the directory of a relative path; empty for the home.

        Returns:
            The resolved path; ``is_known`` is False if the target could not resolve it.

        Raises:
            ValueError: the path contains a NUL.
            HarnessError: the connection was lost.
        """
        absolute = _absolute(path, base, self._home)
        try:
            real, is_dir = await self._real(absolute, LINKS)
        except (FileError, UnsupportedOperation):
            return RealPath(path, absolute, posixpath.normpath(absolute), is_known=False)
        return RealPath(path, absolute, real, is_dir=is_dir)

    async def _real(self, path: str, links: int) -> tuple[str, bool]:
        """Return the real path and whether it is a directory; one query if it exists and is not a link."""
        try:
            stat = await self._execution.stat(path.rstrip("/") or "/", follow=False)
        except (FileNotFound, NotADirectory):
            return await self._missing(path, links), False
        if stat.type != "link":
            return stat.path, stat.type == "dir"
        try:
            found = await self._execution.stat(path)
        except (FileNotFound, NotADirectory):
            return await self._behind(stat, links), False
        return found.path, found.type == "dir"

    async def _missing(self, path: str, links: int) -> str:
        """Return the path at which a missing file would be created."""
        directory, name = posixpath.split(path.rstrip("/"))
        if directory in ("", path):
            return path
        if directory not in self._directories:
            self._directories[directory] = await self._made(directory, links)
        return posixpath.normpath(posixpath.join(self._directories[directory], name))

    async def _made(self, directory: str, links: int) -> str:
        """Return the real path of a directory, existing or not, by binary search for the deepest existing one."""
        names = directory.split("/")
        low, high = 1, len(names)
        count = high
        while high - low >= 1:
            if await self._is_there("/".join(names[:count]) or "/"):
                low = count
            else:
                high = count - 1
            count = (low + high + 1) // 2
        real, _ = await self._real("/".join(names[:low]) or "/", links)
        return posixpath.normpath(posixpath.join(real, *names[low:])) if names[low:] else real

    async def _is_there(self, path: str) -> bool:
        try:
            await self._execution.stat(path.rstrip("/") or "/", follow=False)
        except (FileNotFound, NotADirectory):
            return False
        return True

    async def _behind(self, link: FileStat, links: int) -> str:
        """Return the path at which a file would be created through a dangling link."""
        if not links:
            raise FileError(f"{link.path}: too many links")
        if link.target is None:
            return link.path  # it was created at this moment
        return (await self._real(posixpath.join(posixpath.dirname(link.path), link.target), links - 1))[0]


def at_home(path: str, home: str) -> str:
    """Return the path with the user's ``~`` replaced by the home. Pure."""
    return home + path[1:] if home and (path == "~" or path.startswith("~/")) else path


def _absolute(path: str, base: str, home: str) -> str:
    path, base = at_home(path, home), at_home(base, home)
    if path.startswith("~"):
        return path  # another user's home, resolved by the target
    joined = posixpath.join(base or home or "/", path)
    return joined if joined.startswith("/") else posixpath.join(home or "/", joined)


async def expand_pattern(pattern: str, base: str, execution: ExecutionContext) -> tuple[str, ...] | None:
    """Return the names that a word with wildcards matches on the target now; None if too many, or unknown."""
    absolute = _absolute(pattern, base, execution.capabilities.home)
    try:
        return tuple(await execution.glob(absolute, max_entries=MATCHES))
    except (FileError, ValueError, UnsupportedOperation):
        return None


async def links_among(paths: Sequence[str], execution: ExecutionContext) -> set[str] | None:
    """Return the absolute paths that are links, with one query per directory; None if too many, or unknown."""
    directories = {posixpath.dirname(path.rstrip("/")) for path in paths}
    if len(directories) > DIRECTORIES:
        return None
    found: set[str] = set()
    for directory in directories:
        try:
            entries = await execution.list_dir(directory or "/")
        except (FileError, UnsupportedOperation):
            return None
        found |= {posixpath.join(directory, entry.name) for entry in entries if entry.type == "link"}
    return found & {path.rstrip("/") for path in paths}


async def find_cwd(pane: str | None, execution: ExecutionContext, *, named: bool = False) -> str | None:
    """Return the start directory of a command, in a terminal that of the pane's shell; None if unknown.

    Args:
        pane: the pane; None for the default one.
        execution: the target.
        named: the command gives a relative directory, to be resolved from the result.
    """
    if not execution.has_terminal:
        return _start_of(execution) if named else _plain_start(execution)
    for info in await execution.list_panes():
        if pane in (info.name, info.pane_id) or (pane is None and info.default):
            return info.cwd or None
    return None


def tools_start(execution: ExecutionContext) -> str | None:
    """Return the base directory of relative files of tools: that of plain commands, locally harness's own.

    In a terminal the directory of the pane's shell may change, so it is not used.

    Returns:
        The directory; None for the home.
    """
    here = execution.target.hops[-1].scheme == "local"
    if execution.has_terminal or not (here or execution._config.cwd):
        return None
    try:
        return _plain_start(execution)
    except OSError:  # the current directory of harness was deleted
        return None


def _plain_start(execution: ExecutionContext) -> str | None:
    """Return the start directory of a plain command that gives none; None if unknown."""
    setting = execution._config.cwd or ""  # of plain commands; not public, as no tool needs it
    start, cwd = _start_of(execution), at_home(setting, execution.capabilities.home)
    return posixpath.join(start, cwd) if start is not None else cwd if cwd.startswith("/") else None


def _start_of(execution: ExecutionContext) -> str | None:
    """Return the initial directory: locally harness's own, after a login the home; None for images."""
    scheme = execution.target.hops[-1].scheme
    if scheme == "local":
        return os.getcwd()
    return execution.capabilities.home or None if scheme in ("ssh", "memory") else None


def reads_like_bash(execution: ExecutionContext) -> bool:
    """Return whether commands run in a shell with the grammar of bash: ``sh`` without a terminal, else the pane's."""
    if not execution.has_terminal:
        return True
    shell = execution._config.shell or execution.capabilities.shell  # of panes; not public, as no tool needs it
    return posixpath.basename(shell) in SHELLS
