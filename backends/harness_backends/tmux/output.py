"""Collecting a command's output: head and tail within a bound, the rest counted."""

from __future__ import annotations

from collections.abc import Callable

from harness.command import Command

from ..posix.markers import NewlineUnmapper

__all__ = ["OutputCollector", "clip", "collector_for"]

MAX_HELD_BYTES = 16384
"""Bytes after a first start mark that are held back from ``on_output``."""


def clip(data: bytes, limit: int) -> tuple[bytes, int]:
    """Head and tail of ``data`` within ``limit`` bytes, and how many bytes were left out between them."""
    if len(data) <= limit:
        return data, 0
    head = limit - limit // 2
    tail = limit // 2
    return data[:head] + data[len(data) - tail :], len(data) - limit


class OutputCollector:
    """Takes raw terminal output in pieces; keeps at most ``limit`` bytes of it, half head and half tail.

    ``skip`` bytes of output are kept but not reported to ``on_output``: they were reported before a gap.
    """

    def __init__(self, limit: int, on_output: Callable[[bytes], None] | None = None, skip: int = 0) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._on_output = on_output
        self.reported = skip
        """Bytes of this output that ``on_output`` has had."""
        self.callback_error: Exception | None = None
        """What ``on_output`` raised; it is not called again."""
        self._started = False
        self._held: bytearray | None = None
        """Not reported: it is the trace of what leads to the command, unless no second start mark comes."""
        self._newlines = NewlineUnmapper()
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    @property
    def settled(self) -> bool:
        """What came so far is the command's: its start mark has come, or so much that none will."""
        return self._started and self._held is None

    def restart(self, *, soon: bool = False) -> None:
        """Forget what came so far: the output begins here, or, with ``soon``, at the next start mark."""
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
        """The output has ended."""
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
        except Exception as error:  # whatever a callback raises is for who gave it, and not for who reads the pane
            self.callback_error = error

    @property
    def data(self) -> bytes:
        """What is kept: the head, and the tail that follows it or ends the output."""
        return bytes(self._head + self._tail[max(0, len(self._tail) - self._tail_limit) :])

    @property
    def held(self) -> int:
        """How many bytes it takes in memory."""
        return len(self._head) + len(self._tail)

    @property
    def truncated(self) -> int:
        """How many bytes are not in :attr:`data`."""
        return self.total - len(self._head) - min(len(self._tail), self._tail_limit)


def collector_for(command: Command, skip: int = 0, *, tell: bool = True) -> OutputCollector:
    """Return the collector of what a pane shows of a command; separate streams are reported from their files.

    Args:
        tell: whether the command's callback is to be called.
    """
    return OutputCollector(command.max_output, command.on_output if tell and command.tty is not False else None, skip)
