"""Writes one recording: the redacted events of a pane as an asciicast file, within a size."""

from __future__ import annotations

import codecs
import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..pane_events import Closed, JobEnded, JobStarted, Output, PaneEvent, Resized, Screen, Typed
from .asciicast import CastEvent, CastHeader, EventCode, event_line, header_line
from .directory import end_marker

__all__ = ["RecordingOptions", "RecordingWriter"]

COMMAND_CHARS = 200
CLEARED = "\x1bc"
"""Resets the terminal before a new screen."""
GAP = "gap: output was dropped, or the connection was lost"


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """How panes are recorded."""

    version: int = 2
    max_bytes: int = 64 << 20
    total_max_bytes: int = 1 << 30
    max_age: float = 30 * 86400.0
    with_input: bool = False
    """Whether what harness types is recorded, too."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """For the headers: ``target``, ``session``, ``owner``, and the ``host`` of a fleet."""
    watch_bytes: int = 8 << 20
    """Bytes of a pane that may wait to be redacted; a longer flood leaves a gap in the recording."""


class RecordingWriter:
    """A recording that is being written; the lock on its file tells others so. It blocks: use it in a thread.

    Args:
        path: The new file.
        about: What the header says about the target and the pane.
        title: The title for players.
        options: The format, and the limits.
    """

    def __init__(self, path: Path, about: dict[str, Any], title: str, options: RecordingOptions) -> None:
        self.path = path
        self._about = about
        self._title = title
        self._version = options.version
        self._max_bytes = options.max_bytes
        self._with_input = options.with_input
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._descriptor = -1
        self._begun = 0.0
        self._time = 0.0
        self._bytes = 0
        self._jobs: set[str] = set()
        self._size: tuple[int, int] | None = None
        self._is_resized = False
        self.is_full = False
        """True if nothing more is recorded, as the file has its maximum size."""

    def __enter__(self) -> Self:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_empty = os.fstat(self._descriptor).st_size == 0  # no screen arrived, or the disk is full
        os.close(self._descriptor)
        if is_empty:
            self.path.unlink(missing_ok=True)

    def write(self, event: PaneEvent) -> None:
        """Add an event of the pane; events before its first screen are not recorded.

        Raises:
            OSError: The file cannot be written.
        """
        if self._size is None and not isinstance(event, Screen):
            return
        match event:
            case Screen():
                self._screen(event)
            case Output():
                self._add(event.time, "o", self._decoder.decode(event.data))
            case Resized():
                self._is_resized = True
            case JobStarted():
                first = event.command.strip().split("\n")[0][:COMMAND_CHARS]
                self._jobs.add(event.job_id)
                self._add(event.time, "m", f"job {event.job_id}: {first}")
                self._add_input(event.time, f"{event.command}\r")
            case JobEnded():
                code = "" if event.exit_code is None else f", exit code {event.exit_code}"
                self._add(event.time, "m", f"job {event.job_id} ended: {event.status}{code}")
            case Typed():
                self._add_input(event.time, event.data.decode("utf-8", "replace"))
            case Closed():
                self.finish("the pane was closed", event.time)

    def finish(self, why: str = "", time: float = 0.0) -> None:
        """Add the last marker."""
        if self._size is not None and not self.is_full:
            self._add(time, "o", self._decoder.decode(b"", final=True))
            end = max(self._time, time - self._begun)
            self._end(end, why)

    def _screen(self, screen: Screen) -> None:
        size, before = (screen.columns, screen.rows), self._size
        self._decoder.reset()
        content = screen.content.decode("utf-8", "replace")
        self._size = size
        if before is None:
            self._begun = screen.time
            header = CastHeader(*size, self._version, int(screen.time), self._title, self._about)
            self._put(header_line(header))
            self._add(screen.time, "o", content)
            return
        if not self._is_resized:
            self._add(screen.time, "m", GAP)
        if size != before:
            self._add(screen.time, "r", f"{screen.columns}x{screen.rows}")
        self._is_resized = False
        self._add(screen.time, "o", CLEARED + content)

    def _add_input(self, time: float, text: str) -> None:
        if self._with_input:
            self._add(time, "i", text)

    def _add(self, time: float, code: EventCode, data: str) -> None:
        if self.is_full or not (data or code != "o"):
            return
        if self._bytes + len(data) > self._max_bytes:
            self._finish_full()
            return
        self._line(CastEvent(max(self._time, time - self._begun), code, data))

    def _finish_full(self) -> None:
        """Add the last marker of a recording that has its maximum size."""
        self._end(self._time, "record_max_bytes")

    def _end(self, time: float, why: str) -> None:
        self._line(CastEvent(time, "m", end_marker(why, time, len(self._jobs))))
        self.is_full = True

    def _line(self, event: CastEvent) -> None:
        self._put(event_line(event, self._time, self._version))
        self._time = max(self._time, event.time)

    def _put(self, line: str) -> None:
        data = line.encode("utf-8", "replace")
        self._bytes += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
