"""The events of a watched pane: its screen, its output, its jobs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "DEFAULT_WATCH_BYTES",
    "Closed",
    "JobEnded",
    "JobStarted",
    "Output",
    "PaneEvent",
    "Resized",
    "Screen",
]

DEFAULT_WATCH_BYTES = 1 << 20
"""Bytes that a watcher may leave untaken before they are dropped and replaced by a :class:`Screen`."""


@dataclass(frozen=True, slots=True)
class Screen:
    """The whole screen, with cursor and modes, for a terminal emulator of that size that was just reset.

    The first event of each watcher, and the first one after output was dropped or lost. Each line starts with
    ``ESC [ ROW ; 1 H``; a line that is longer than the screen is wide continues in the next rows.
    """

    time: float
    """Seconds since the epoch, as in all events."""
    columns: int
    rows: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes that programs wrote to the pane, without harness's own markers."""

    time: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Resized:
    """The pane has another size; a :class:`Screen` of that size follows."""

    time: float
    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A job has started; also reported after the first screen for a job that was already running."""

    time: float
    job_id: str
    command: str


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job has ended; ``status`` is that of its result, and ``exit_code`` is None if it is unknown."""

    time: float
    job_id: str
    exit_code: int | None
    status: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The pane was closed; the last event."""

    time: float


PaneEvent = Screen | Output | Resized | JobStarted | JobEnded | Closed
