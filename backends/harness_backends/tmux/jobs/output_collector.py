"""Collecting a command's output: head and tail within a bound, the rest counted."""

from __future__ import annotations

from collections.abc import Callable

from harness.command import Command

from ...posix.jobs.output import HeadTail, StoredStream
from ...posix.pane_jobs.prompt_markers import NewlineUnmapper

__all__ = ["OutputCollector", "collector_for"]

MAX_HELD_BYTES = 16384
"""Maximum bytes after a first start marker that are held back from ``on_output``."""


class OutputCollector:
    """A collector of raw terminal output that keeps head and tail of it, at most ``limit`` bytes.

    The first ``skip`` bytes are kept but not reported to ``on_output``, as they were reported before a gap.
    """

    def __init__(self, limit: int, on_output: Callable[[bytes], None] | None = None, skip: int = 0) -> None:
        self._limit = limit
        self._kept = HeadTail(limit)
        self._on_output = on_output
        self.reported = skip
        """The number of bytes of this output that ``on_output`` has received."""
        self.callback_error: Exception | None = None
        """The exception that ``on_output`` raised; it is not called again."""
        self._started = False
        self._held: bytearray | None = None
        """Unreported output, which is the trace of harness's own commands if a second start marker follows."""
        self._newlines = NewlineUnmapper()

    @property
    def total(self) -> int:
        """The number of bytes of the output so far."""
        return self._kept.size

    @property
    def settled(self) -> bool:
        """True if the output so far is the command's: after its start marker, or after too much output for one."""
        return self._started and self._held is None

    def restart(self, *, soon: bool = False) -> None:
        """Drop the output so far: it starts here or, with ``soon``, at the next start marker."""
        self._started = True
        self._held = bytearray() if soon else None
        if self.reported <= self.total:
            self.reported = 0
        self._newlines = NewlineUnmapper()
        self._kept = HeadTail(self._limit)

    def feed(self, data: bytes) -> None:
        """Add raw bytes."""
        self._add(self._newlines.feed(data))

    def finish(self) -> None:
        """Handle the end of the output."""
        self._add(self._newlines.flush())
        self._release()

    def _add(self, data: bytes) -> None:
        if not data:
            return
        if self._held is not None and len(self._held) + len(data) > MAX_HELD_BYTES:
            self._release()
        self._kept.feed(data)
        if self._held is not None:
            self._held += data
        else:
            self._report(data)

    def _release(self) -> None:
        held, self._held = self._held, None
        if held:
            self._report(bytes(held))

    def _report(self, data: bytes) -> None:
        if self._on_output is None or self.callback_error is not None:
            return
        fresh = data[max(0, self.reported - self.total + len(data)) :]
        self.reported = max(self.reported, self.total)
        try:
            if fresh:
                self._on_output(fresh)
        except Exception as error:  # any exception of a callback belongs to its caller, not to the reader of the pane
            self.callback_error = error

    def kept(self) -> StoredStream:
        """Return the current head and tail."""
        return self._kept.kept()

    @property
    def data(self) -> bytes:
        """The kept output: the head and the tail."""
        return self.kept().data

    @property
    def held(self) -> int:
        """The number of bytes in memory."""
        return self._kept.held


def collector_for(command: Command, skip: int = 0, *, tell: bool = True) -> OutputCollector:
    """Return the collector of a command's terminal output; separate streams are reported from their files.

    Args:
        tell: whether to call the command's callback.
    """
    return OutputCollector(command.max_output, command.on_output if tell and command.tty is not False else None, skip)
