"""The interface of copies between targets: a file opened on one target, which another one receives in pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

__all__ = ["ReceiveRequest", "ReceivedFile", "SourceFile"]


class SourceFile(ABC):
    """A regular file of a target, opened to be copied.

    ``size`` and ``mtime`` (seconds since the epoch) are those of the time when it was opened. ``data`` is its content
    if that is small, else None.
    """

    path: str
    size: int
    mode: int
    mtime: float
    data: bytes | None

    @abstractmethod
    async def copy(self, offset: int, sink: Callable[[bytes], Awaitable[None]]) -> None:
        """Pass the content from byte ``offset`` to a sink.

        Raises:
            FileError: It cannot be read, or it has less content than ``size``.
            ConnectionLost: The connection broke.
        """

    @abstractmethod
    async def version(self, length: int, scheme: str) -> str | None:
        """Return the version (hash) of the first ``length`` bytes; None if the target has no program for the scheme."""

    @abstractmethod
    async def check_unchanged(self) -> None:
        """Compare the size and the time of the file with those from when it was opened.

        Raises:
            FileError: It has changed.
        """


@dataclass(frozen=True, slots=True)
class ReceiveRequest:
    """What a target does with the content of a :class:`SourceFile`."""

    path: str
    """The file; links are followed. Its directory must exist."""
    permissions: int | None = None
    """Mode bits that the file gets in any case; None keeps those of an existing file."""
    new_permissions: int | None = None
    """Mode bits of a file that does not exist, less those of the umask; None is 0666."""
    mtime: float | None = None
    """The time of the last change that the file gets."""
    nonce: str = ""
    """Letters and digits that name the partial files of one copy, so that it finds its own again."""
    force: bool = False
    """Replace even a file that its owner made read-only."""


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """The result of a received file, whose hash on the target is that of the content."""

    size: int
    created: bool
    resumed_at: int = 0
    """The number of bytes that an earlier copy had left there, which were not transferred again."""
