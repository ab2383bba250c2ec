"""A pane's log: the part of it that is one job's output, and what is written to it late."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import anyio

from .joboutput import Kept, read_range
from .markers import MarkerScanner, NewlineUnmapper
from .state import JobRecord, LogPlace

__all__ = ["LAG", "PaneLog", "PaneOutput", "late_bytes", "read_log"]

LAG = 5.0
"""Seconds after the record of a job's exit code in which the end of its output must have come to the log.

A shell writes the record itself. Its output goes through tmux and a program that writes the log, which may be behind.
"""
FIRST_PAUSE, LAST_PAUSE = 0.02, 0.5


class PaneLog:
    """Takes a pane's log from a job's offset on, and gives the job's output."""

    def __init__(self, record: JobRecord) -> None:
        self._scanner = MarkerScanner(record.nonce)
        self._unmap = NewlineUnmapper()
        self._job = int(record.job_id or 0)
        self._inside = False
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """The output in the next bytes of the log."""
        out = b""
        for piece in self._scanner.feed(data):
            if self.ended:
                break
            if isinstance(piece, bytes):
                out += piece if self._inside else b""
            elif piece.job == self._job and piece.kind in ("start", "over"):
                self._inside = piece.kind == "start"
            elif piece.kind == "exit" or (piece.job == self._job and piece.kind == "end"):
                self.ended = True
        return self._unmap.feed(out)

    def flush(self) -> bytes:
        """What was held back; the log has ended."""
        rest = b"" if self.ended or not self._inside else self._scanner.flush()
        return self._unmap.feed(rest) + self._unmap.flush()


@dataclass(frozen=True, slots=True)
class PaneOutput:
    """What was had of a job's output. ``whole`` False: the job has ended, and its end is not in the log."""

    kept: Kept
    whole: bool


async def read_log(place: LogPlace, path: str, start: int) -> AsyncGenerator[bytes]:
    """A log from byte ``start`` to its present end."""
    async for data in read_range(place.transport, place.shell, path, start):
        yield data


async def late_bytes(place: LogPlace, path: str, start: int, seconds: float) -> AsyncGenerator[bytes]:
    """What is written to a file beyond byte ``start`` within some seconds; it is looked for, as nothing tells of it."""
    deadline, pause = anyio.current_time() + seconds, FIRST_PAUSE
    while anyio.current_time() < deadline:
        await anyio.sleep(pause)
        pause = min(LAST_PAUSE, 2 * pause)
        async for data in read_range(place.transport, place.shell, path, start):
            start += len(data)
            yield data
