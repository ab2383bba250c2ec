"""The events of a watched pane: its screen, its output, its jobs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass

from .command import DEFAULT_WATCH_BYTES

__all__ = [
    "DEFAULT_WATCH_BYTES",
    "Closed",
    "JobEnded",
    "JobStarted",
    "Output",
    "PaneEvent",
    "PaneWatch",
    "PaneWatches",
    "Resized",
    "Screen",
    "Typed",
]


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


@dataclass(frozen=True, slots=True)
class Typed:
    """Keys that :meth:`.ExecutionContext.send_keys` typed; what operators type is not known."""

    time: float
    data: bytes


PaneEvent = Screen | Output | Resized | JobStarted | JobEnded | Typed | Closed


@dataclass(frozen=True, slots=True)
class PaneWatch:
    """The events of one pane, by its name."""

    name: str
    events: AsyncIterator[PaneEvent]


class PaneWatches(AsyncIterator[PaneWatch]):
    """The watches of a session's panes, and of each new pane from its start."""

    @abstractmethod
    def end(self) -> None:
        """End all iterations once they have returned what has arrived."""
