"""Extraction of one job's output from a pane's log, including output that is written late."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import anyio

from ..jobs.output import StoredStream, read_range
from ..state_directory import JobRecord, RemoteLogStore
from .end_proof import imitates
from .prompt_markers import NewlineUnmapper, PromptMarker, PromptMarkerScanner

__all__ = [
    "LOG_LAG_TIMEOUT",
    "PaneLog",
    "PaneOutput",
    "follow_trailing_output",
    "lacks_end",
    "next_piece",
    "other_mark",
    "read_log",
]

LOG_LAG_TIMEOUT = 5.0
"""Seconds after the record of a job's exit code within which the rest of its output reaches the log.

The shell writes the record itself, but the output passes through tmux and a program that writes the log.
"""
FIRST_PAUSE, LAST_PAUSE = 0.02, 0.5
_ANY_MARK = re.compile(rb"\x1b\]133;(?:[CA];|[DX];-?\d{1,10};)[0-9a-f]{20}[;\x07]")
"""A harness marker of any shell."""


class PaneLog:
    """A filter that gets a pane's log from a job's offset, and returns the job's output."""

    def __init__(self, record: JobRecord, *, without_end: bool = False) -> None:
        """``without_end``: the end is not marked, so the output ends at a marker of another shell or job."""
        self._without_end = without_end
        self._scanner = PromptMarkerScanner(record.nonce)
        self._unmap = NewlineUnmapper()
        self._job = int(record.job_id or 0)
        self._proof = record.proof
        self._inside = False
        self._announced = False
        self.begun = False
        """True once the job's start was found."""
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """Return the job's output in the next bytes of the log."""
        out = b""
        for piece in self._scanner.feed(data):
            if self.ended:
                break
            if self._without_end and self._inside and (found := other_mark(piece, self._job)) is not None:
                self._inside, self.ended = False, True
                out += b"" if self._announced else found
            elif isinstance(piece, bytes):
                out += piece if self._inside and not self._announced else b""
            elif self._inside and not self._announced and imitates(piece, self._job, self._proof):
                out += piece.raw
            elif piece.job == self._job and piece.kind == "start":
                self.begun = self._inside = True
                self._announced = piece.soon
            elif piece.job == self._job and piece.kind == "over":
                self._inside = False
            elif piece.kind == "exit" or (piece.job == self._job and piece.kind == "end"):
                self.ended = True
        return self._unmap.feed(out)

    def flush(self, *, cut: bool = False) -> bytes:
        """Return the buffered rest at the end of the log.

        ``cut``: the log ends before the output does, so that a final ``\\r`` may be half of a ``\\r\\n``: dropped.
        """
        rest = b"" if self.ended or self._announced or not self._inside else self._scanner.flush()
        rest = self._unmap.feed(rest)
        return rest if cut and not self.ended else rest + self._unmap.flush()


def next_piece(path: str) -> str:
    """Return the piece of a pane's log that follows another; a path that is not ``.../log.N`` itself."""
    stem, _, number = path.rpartition(".")
    return f"{stem}.{int(number) + 1}" if number.isdecimal() else path


def other_mark(piece: bytes | PromptMarker, job: int) -> bytes | None:
    """Return the bytes before the marker of another job or shell in a piece of a log; None without such a marker."""
    if isinstance(piece, bytes):
        found = _ANY_MARK.search(piece)
        return piece[: found.start()] if found else None
    begun = piece.kind == "cwd" and piece.text.startswith("tty=")
    return b"" if begun or piece.kind == "prompt" or (piece.kind in ("start", "end") and piece.job != job) else None


@dataclass(frozen=True, slots=True)
class PaneOutput:
    """The available output of a job; if ``whole`` is False, the job has ended and the log lacks all from ``end`` on."""

    kept: StoredStream
    whole: bool
    end: int = 0


def lacks_end(start: int) -> str:
    """Return the notice for a job whose log ended before its output did."""
    return (
        f"the end of the output, from byte {start} on, was not recorded: the pane's log was full (job_log_max_bytes),"
        " or another program captured the pane's output, e.g. an operator's pipe-pane"
    )


async def read_log(place: RemoteLogStore, path: str, start: int) -> AsyncGenerator[bytes]:
    """Yield a log from byte ``start`` to its current end."""
    async for data in read_range(place.transport, place.shell, path, start):
        yield data


async def follow_trailing_output(place: RemoteLogStore, path: str, start: int, seconds: float) -> AsyncGenerator[bytes]:
    """Poll for what is written to a file beyond byte ``start``, for some seconds; nothing signals new data."""
    deadline, pause = anyio.current_time() + seconds, FIRST_PAUSE
    while anyio.current_time() < deadline:
        await anyio.sleep(pause)
        pause = min(LAST_PAUSE, 2 * pause)
        async for data in read_range(place.transport, place.shell, path, start):
            start += len(data)
            yield data
