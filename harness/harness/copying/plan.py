"""The plan of a copy: where each file and directory goes, and which small files are copied together."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..backend import Files
from ..errors import FileError, FileNotFound, NotADirectory
from ..results import DirEntry
from .sources import SourceEntry

__all__ = [
    "MAX_BATCH_BYTES",
    "CopyJob",
    "CopySide",
    "DestinationRoot",
    "KnownDirectory",
    "batches_of",
    "check_not_a_link",
    "check_not_into_itself",
    "is_small",
    "resolve_destination",
]

MAX_SMALL_BYTES = 256 << 10
"""Larger files are copied one at a time."""
MAX_BATCH_BYTES = 512 << 10
"""Bytes of the files of a batch, which are in memory."""
MAX_BATCH_FILES = 250
MAX_BATCH_PATH_BYTES = 32 << 10
"""Bytes of the paths of a batch, which are arguments of one program."""
MAX_NAME_BYTES = 90
"""Bytes of a name that every ``tar`` unpacks."""


# -- Where files go, by the rules of ``cp``: into a directory, to a file, or to a new name.


class DestinationRoot:
    """The destination of a copy.

    Args:
        path: The path that was named.
        is_parent: Whether what is copied gets its own name below it; else it becomes the path itself.
    """

    def __init__(self, path: str, *, is_parent: bool) -> None:
        self.path = path.rstrip("/") or "/"
        self.is_parent = is_parent

    def path_of(self, entry: SourceEntry) -> str:
        """Return where a file or a directory goes."""
        names = entry.names if self.is_parent else entry.names[1:]
        return posixpath.join(self.path, *names) if names else self.path


async def resolve_destination(files: Files, path: str, roots: Sequence[SourceEntry], count: int) -> DestinationRoot:
    """Return where the sources go.

    Args:
        files: The destination's target.
        path: The destination that was named.
        roots: What was found under the named paths.
        count: The number of paths that were named or matched.

    Raises:
        NotADirectory: Several sources, or a directory, would become one file.
        FileNotFound: The directory does not exist.
    """
    try:
        stat = await files.stat(path)
    except FileNotFound:
        stat = None
    if stat is not None and stat.type == "dir":
        return DestinationRoot(path, is_parent=True)
    if count > 1 or (stat is None and path.endswith("/") and not any(root.is_directory for root in roots)):
        if stat is None:
            raise FileNotFound(f"{path}: no such directory", hint="create it first")
        raise NotADirectory(f"{path}: is not a directory", hint="name a directory")
    if stat is not None and any(root.is_directory for root in roots):
        raise NotADirectory(f"{path}: is not a directory", hint="name a directory")
    # a directory without a name of its own has an empty tuple of names, which fits a parent
    nameless = any(not root.names for root in roots)
    return DestinationRoot(path, is_parent=nameless)


async def check_not_into_itself(files: Files, root: DestinationRoot, sources: Sequence[SourceEntry]) -> None:
    """Refuse to copy a directory to a place below it, as files would be replaced before they are read.

    Args:
        files: The target of the sources and of the destination.
        root: The destination.
        sources: What is copied.

    Raises:
        FileError: A directory would be copied into itself.
    """
    for source in sources:
        if source.is_directory:
            path = root.path_of(source)
            if (await _real_path(files, path)).startswith(source.real.rstrip("/") + "/"):
                raise FileError(f"{source.path}: cannot be copied into itself, {path}")


async def _real_path(files: Files, path: str) -> str:
    """Return a path without links; what does not exist keeps its names."""
    try:
        return (await files.stat(path)).path
    except FileNotFound:
        parent, name = posixpath.split(path)
        return path if parent == path else posixpath.join(await _real_path(files, parent or "."), name)


class KnownDirectory:
    """What a directory of the destination contains, as far as that matters for names that come from a source."""

    def __init__(self, entries: Sequence[DirEntry], *, is_new: bool) -> None:
        self.is_new = is_new
        self._entries = {entry.name: entry for entry in entries}

    def find(self, name: str) -> DirEntry | None:
        """Return what has this name."""
        return self._entries.get(name)


def check_not_a_link(path: str, found: DirEntry) -> None:
    """Refuse a link where a target chose the name, as it leads to where the operator did not say.

    Raises:
        FileError: It is a link.
    """
    if found.type == "link":
        raise FileError(f"{path}: is a link, and a name from a host is not followed", hint="remove the link")


# -- Files and directories with their places, and batches.


@dataclass(frozen=True, slots=True)
class CopySide:
    """A target that files are copied from or to.

    ``label`` is put before its paths in reports, such as ``web1:``; empty for this machine.
    """

    files: Files
    label: str = ""

    @property
    def is_here(self) -> bool:
        """Whether it is this machine."""
        return not self.label

    @property
    def where(self) -> str:
        """The target, for errors."""
        return self.label.removesuffix(":") or "this machine"

    def name(self, path: str) -> str:
        """Return a path as the operator would write it."""
        return f"{self.label}{path}"


@dataclass(frozen=True, slots=True)
class CopyJob:
    """A file or a directory with its place."""

    side: CopySide
    entry: SourceEntry
    path: str
    """The destination."""

    @property
    def name(self) -> str:
        """The source as the operator would write it."""
        return self.side.name(self.entry.path)

    @property
    def directory(self) -> str:
        """The directory of the destination."""
        return posixpath.dirname(self.path)


def is_small(job: CopyJob) -> bool:
    """Return whether a file may be copied together with others."""
    name = posixpath.basename(job.path)
    return 0 <= job.entry.size <= MAX_SMALL_BYTES and len(os.fsencode(name)) <= MAX_NAME_BYTES


def batches_of(jobs: Iterable[CopyJob], *, by_directory: bool) -> Iterator[Sequence[CopyJob]]:
    """Group consecutive small files of one target; ``by_directory`` puts only files of one directory together."""
    batch: list[CopyJob] = []
    size = paths = 0
    for job in jobs:
        cost = _path_bytes(job)
        is_full = len(batch) == MAX_BATCH_FILES or size + job.entry.size > MAX_BATCH_BYTES
        is_full = is_full or paths + cost > MAX_BATCH_PATH_BYTES
        is_other = bool(batch) and (
            batch[0].side is not job.side or (by_directory and batch[0].directory != job.directory)
        )
        if batch and (is_full or is_other):
            yield batch
            batch, size, paths = [], 0, 0
        batch.append(job)
        size += job.entry.size
        paths += cost
    if batch:
        yield batch


def _path_bytes(job: CopyJob) -> int:
    return max(len(os.fsencode(shlex.quote(path))) for path in (job.entry.path, job.path)) + 1
