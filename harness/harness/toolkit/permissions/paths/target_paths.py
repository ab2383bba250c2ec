"""What a path really is, asked of the target: what the kernel there makes of ``..``, links, ``~`` and wildcards."""

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
"""Links in a row, as kernels follow them."""
MATCHES = 2000
"""Names that a wildcard of a command may stand for and still be judged."""
SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "busybox"})
"""Shells that read a text as bash does, or refuse it."""
DIRECTORIES = 32
"""Directories in which these may be."""


@dataclass(frozen=True, slots=True)
class RealPath:
    """A path of a call: as it was given, made absolute, and as the target has it.

    ``is_known`` is False when the target would not say what it is: then nothing about it is certain.
    """

    given: str
    absolute: str
    real: str
    is_known: bool = True
    is_dir: bool = False
    only_named: bool = False
    """The call shows and changes nothing of what is in it."""

    @property
    def forms(self) -> tuple[str, ...]:
        """Every name that it has, the real one first."""
        return tuple(dict.fromkeys((self.real, posixpath.normpath(self.absolute), self.absolute)))


class PathResolver:
    """Finds real paths for one decision; a directory is asked about once."""

    def __init__(self, execution: ExecutionContext) -> None:
        self._execution = execution
        self._home = execution.capabilities.home
        self._directories: dict[str, str] = {}

    async def find(self, path: str, base: str) -> RealPath:
        """The real path. One that is not there is what its nearest directory, or a dangling link, makes of it.

        Args:
            base: where a relative path starts; empty is the home.

        Raises:
            ValueError: it holds a NUL.
            HarnessError: the link was lost.
        """
        absolute = _absolute(path, base, self._home)
        try:
            real, is_dir = await self._real(absolute, LINKS)
        except (FileError, UnsupportedOperation):
            return RealPath(path, absolute, posixpath.normpath(absolute), is_known=False)
        return RealPath(path, absolute, real, is_dir=is_dir)

    async def _real(self, path: str, links: int) -> tuple[str, bool]:
        """The real path, and whether it is a directory. One question for what is there and is no link."""
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
        """Where a file would come to be that is not there."""
        directory, name = posixpath.split(path.rstrip("/"))
        if directory in ("", path):
            return path
        if directory not in self._directories:
            self._directories[directory] = await self._made(directory, links)
        return posixpath.normpath(posixpath.join(self._directories[directory], name))

    async def _made(self, directory: str, links: int) -> str:
        """What a directory is, or would be once it was made: the deepest one that is there is found by halving."""
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
        """Where a file would come to be by a link that leads to none."""
        if not links:
            raise FileError(f"{link.path}: too many links")
        if link.target is None:
            return link.path  # it came to be in this moment
        return (await self._real(posixpath.join(posixpath.dirname(link.path), link.target), links - 1))[0]


def at_home(path: str, home: str) -> str:
    """The path with its ``~`` undone, when it is that of the user. Pure."""
    return home + path[1:] if home and (path == "~" or path.startswith("~/")) else path


def _absolute(path: str, base: str, home: str) -> str:
    path, base = at_home(path, home), at_home(base, home)
    if path.startswith("~"):
        return path  # another user's home: the target knows
    joined = posixpath.join(base or home or "/", path)
    return joined if joined.startswith("/") else posixpath.join(home or "/", joined)


async def expand_pattern(pattern: str, base: str, execution: ExecutionContext) -> tuple[str, ...] | None:
    """What a word with wildcards stands for on the target now; None when that are too many names to judge."""
    absolute = _absolute(pattern, base, execution.capabilities.home)
    try:
        return tuple(await execution.glob(absolute, max_entries=MATCHES))
    except (FileError, ValueError, UnsupportedOperation):
        return None


async def links_among(paths: Sequence[str], execution: ExecutionContext) -> set[str] | None:
    """Those of some absolute paths that are links, with one question for each directory; None: too many of them."""
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
    """Where a command starts: where the pane's shell is; None when that is not known.

    Args:
        named: it names a directory, which is then found from there.
    """
    if not execution.has_terminal:
        return _start_of(execution) if named else _plain_start(execution)
    for info in await execution.list_panes():
        if pane in (info.name, info.pane_id) or (pane is None and info.default):
            return info.cwd or None
    return None


def tools_start(execution: ExecutionContext) -> str | None:
    """Where the files of tools start: where plain commands do, here in our own directory. None is the home.

    In a terminal commands start where the pane's shell is, which moves.
    """
    here = execution.target.hops[-1].scheme == "local"
    if execution.has_terminal or not (here or execution._config.cwd):
        return None
    try:
        return _plain_start(execution)
    except OSError:  # our own directory is gone
        return None


def _plain_start(execution: ExecutionContext) -> str | None:
    """Where a plain command starts that names no directory."""
    setting = execution._config.cwd or ""  # of plain commands; no tool needs it
    start, cwd = _start_of(execution), at_home(setting, execution.capabilities.home)
    return posixpath.join(start, cwd) if start is not None else cwd if cwd.startswith("/") else None


def _start_of(execution: ExecutionContext) -> str | None:
    """A plain command starts in our own directory here, in the home behind a login, and where an image says."""
    scheme = execution.target.hops[-1].scheme
    if scheme == "local":
        return os.getcwd()
    return execution.capabilities.home or None if scheme in ("ssh", "memory") else None


def reads_like_bash(execution: ExecutionContext) -> bool:
    """Whether commands run in a shell with the grammar of bash: plain ones run in ``sh``, others in the pane's."""
    if not execution.has_terminal:
        return True
    shell = execution._config.shell or execution.capabilities.shell  # of panes; no tool needs it
    return posixpath.basename(shell) in SHELLS
