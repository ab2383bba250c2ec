"""What a copy reports: each file as it ends, and the counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from ..errors import HarnessError

__all__ = ["CopyObserver", "CopyStatus", "CopySummary", "FileCopy"]

CopyStatus = Literal["copied", "unchanged", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class FileCopy:
    """One file or directory: where it was copied to, and how that ended.

    ``unchanged``: the destination had the same content. ``skipped``: it is a pipe, a socket or a device.
    ``resumed_at`` bytes were there from an earlier copy. ``path`` and ``destination`` name it with its host.
    """

    path: str
    destination: str
    status: CopyStatus
    size: int = 0
    resumed_at: int = 0
    error: HarnessError | None = None
    consequence: bool = False
    """Whether it failed only because its directory did, which was reported."""


@dataclass(slots=True)
class CopySummary:
    """The counts of a copy, and the files that were not copied."""

    counts: Counter[str] = field(default_factory=Counter)
    transferred: int = 0
    """Bytes that were transferred for files that were copied."""
    problems: list[FileCopy] = field(default_factory=list)

    def add(self, ended: FileCopy) -> None:
        """Count a file."""
        self.counts[ended.status] += 1
        if ended.status == "copied":
            self.transferred += ended.size - ended.resumed_at
        elif ended.status != "unchanged" and not ended.consequence:
            self.problems.append(ended)

    @property
    def failed(self) -> int:
        """The number of files and directories that failed."""
        return self.counts["failed"]


class CopyObserver:
    """Receives what happens during a copy; the default ignores it."""

    def planned(self, files: int, size: int) -> None:
        """Take the number of files that may be copied and of their bytes."""

    def started(self, name: str) -> None:
        """Take the name of a file whose content is transferred next."""

    def advanced(self, size: int) -> None:
        """Take a number of bytes that were transferred; negative if they are transferred again."""

    def left_out(self, size: int) -> None:
        """Take a number of planned bytes that need not be transferred."""

    def ended(self, ended: FileCopy) -> None:
        """Take a file that has ended."""

    def reconnecting(self, error: HarnessError) -> None:
        """Take a lost connection, after which the copy continues."""
