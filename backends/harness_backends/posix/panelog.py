"""A pane's log: the part of it that is one job's output, and what is written to it late."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import anyio

from .end_proof import imitates
from .jobs.output import StoredStream, read_range
from .markers import NewlineUnmapper, PromptMarker, PromptMarkerScanner
from .state_directory import JobRecord, RemoteLogStore

__all__ = ["LOG_LAG_TIMEOUT", "PaneLog", "PaneOutput", "follow_trailing_output", "lacks_end", "other_mark", "read_log"]

LOG_LAG_TIMEOUT = 5.0
"""Seconds after the record of a job's exit code in which the end of its output must have come to the log.

A shell writes the record itself. Its output goes through tmux and a program that writes the log, which may be behind.
"""
FIRST_PAUSE, LAST_PAUSE = 0.02, 0.5
_ANY_MARK = re.compile(rb"\x1b\]133;(?:[CA];|[DX];-?\d{1,10};)[0-9a-f]{20}[;\x07]")
"""A mark of ours, whatever shell wrote it."""


class PaneLog:
    """Takes a pane's log from a job's offset on, and gives the job's output."""

    def __init__(self, record: JobRecord, *, without_end: bool = False) -> None:
        """``without_end``: nobody marked its end, so that it reaches to what another shell or job has marked."""
        self._without_end = without_end
        self._scanner = PromptMarkerScanner(record.nonce)
        self._unmap = NewlineUnmapper()
        self._job = int(record.job_id or 0)
        self._proof = record.proof
        self._inside = False
        self._announced = False
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """The output in the next bytes of the log."""
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
                self._inside, self._announced = True, piece.soon
            elif piece.job == self._job and piece.kind == "over":
                self._inside = False
            elif piece.kind == "exit" or (piece.job == self._job and piece.kind == "end"):
                self.ended = True
        return self._unmap.feed(out)

    def flush(self) -> bytes:
        """What was held back; the log has ended."""
        rest = b"" if self.ended or self._announced or not self._inside else self._scanner.flush()
        return self._unmap.feed(rest) + self._unmap.flush()


def other_mark(piece: bytes | PromptMarker, job: int) -> bytes | None:
    """What stands before the mark of another job or shell, in a piece of a log; None when there is none."""
    if isinstance(piece, bytes):
        found = _ANY_MARK.search(piece)
        return piece[: found.start()] if found else None
    begun = piece.kind == "cwd" and piece.text.startswith("tty=")
    return b"" if begun or piece.kind == "prompt" or (piece.kind in ("start", "end") and piece.job != job) else None


@dataclass(frozen=True, slots=True)
class PaneOutput:
    """What was had of a job's output. ``whole`` False: the job has ended, and the log has nothing from ``end`` on."""

    kept: StoredStream
    whole: bool
    end: int = 0


def lacks_end(start: int) -> str:
    """What to say of a job whose log ends before it did."""
    return (
        f"the end of its output, from byte {start} on, was not kept: the log of its pane was full (job_log_max_bytes),"
        " or something else took the pane's output, as an operator's pipe-pane does"
    )


async def read_log(place: RemoteLogStore, path: str, start: int) -> AsyncGenerator[bytes]:
    """A log from byte ``start`` to its present end."""
    async for data in read_range(place.transport, place.shell, path, start):
        yield data


async def follow_trailing_output(place: RemoteLogStore, path: str, start: int, seconds: float) -> AsyncGenerator[bytes]:
    """What is written to a file beyond byte ``start`` within some seconds; it is looked for, as nothing tells of it."""
    deadline, pause = anyio.current_time() + seconds, FIRST_PAUSE
    while anyio.current_time() < deadline:
        await anyio.sleep(pause)
        pause = min(LAST_PAUSE, 2 * pause)
        async for data in read_range(place.transport, place.shell, path, start):
            start += len(data)
            yield data
