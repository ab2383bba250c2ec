"""The files and directories of a copy with their places, and batches of small files that are copied together."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..backend import Files
from .sources import SourceEntry

__all__ = ["MAX_BATCH_BYTES", "CopyJob", "CopySide", "batches_of", "is_small"]

MAX_SMALL_BYTES = 256 << 10
"""Larger files are copied one at a time."""
MAX_BATCH_BYTES = 512 << 10
"""Bytes of the files of a batch, which are in memory."""
MAX_BATCH_FILES = 250
MAX_BATCH_PATH_BYTES = 32 << 10
"""Bytes of the paths of a batch, which are arguments of one program."""
MAX_NAME_BYTES = 90
"""Bytes of a name that every ``tar`` unpacks."""


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
