"""Collecting a command's output: head and tail within a bound, the rest counted."""

from __future__ import annotations

from collections.abc import Callable

from harness.command import Command

from ...posix.pane_jobs.prompt_markers import NewlineUnmapper

__all__ = ["OutputCollector", "clip", "collector_for"]

MAX_HELD_BYTES = 16384
"""Maximum bytes after a first start marker that are held back from ``on_output``."""


def clip(data: bytes, limit: int) -> tuple[bytes, int]:
    """Return the head and tail of ``data`` within ``limit`` bytes, and the number of omitted bytes between them."""
    if len(data) <= limit:
        return data, 0
    head = limit - limit // 2
    tail = limit // 2
    return data[:head] + data[len(data) - tail :], len(data) - limit


class OutputCollector:
    """A collector of raw terminal output that keeps at most ``limit`` bytes, half head and half tail.

    The first ``skip`` bytes are kept but not reported to ``on_output``, as they were reported before a gap.
    """

    def __init__(self, limit: int, on_output: Callable[[bytes], None] | None = None, skip: int = 0) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._on_output = on_output
        self.reported = skip
        """The number of bytes of this output that ``on_output`` has received."""
        self.callback_error: Exception | None = None
        """The exception that ``on_output`` raised; it is not called again."""
        self._started = False
        self._held: bytearray | None = None
        """Unreported output, which is the trace of harness's own commands if a second start marker follows."""
        self._newlines = NewlineUnmapper()
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

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
        self._head.clear()
        self._tail.clear()
        self.total = 0

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
        self.total += len(data)
        if self._held is not None:
            self._held += data
        else:
            self._report(data)
        self._keep(data)

    def _keep(self, data: bytes) -> None:
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit + 65536:
            del self._tail[: len(self._tail) - self._tail_limit]

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

    @property
    def data(self) -> bytes:
        """The kept output: the head and the tail."""
        return bytes(self._head + self._tail[max(0, len(self._tail) - self._tail_limit) :])

    @property
    def held(self) -> int:
        """The number of bytes in memory."""
        return len(self._head) + len(self._tail)

    @property
    def omission(self) -> tuple[int, int] | None:
        """The position of the omitted bytes in :attr:`data` and their number; None if nothing is omitted."""
        return (len(self._head), self.truncated) if self.truncated else None

    @property
    def truncated(self) -> int:
        """The number of bytes that are not in :attr:`data`."""
        return self.total - len(self._head) - min(len(self._tail), self._tail_limit)


def collector_for(command: Command, skip: int = 0, *, tell: bool = True) -> OutputCollector:
    """Return the collector of a command's terminal output; separate streams are reported from their files.

    Args:
        tell: whether to call the command's callback.
    """
    return OutputCollector(command.max_output, command.on_output if tell and command.tty is not False else None, skip)
