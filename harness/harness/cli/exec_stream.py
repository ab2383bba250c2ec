"""The lines of ``harness exec --json`` on standard output: whole ones, in order, and the last one also at the end."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping

from anyio import to_thread

from .output import as_json
from .streams import Interruption, StreamWriter

__all__ = ["JsonStream"]

LAST_LIMIT = 2.0
"""Seconds that a reader has to take the last line, when we are to stop."""
STDOUT = 1


class JsonStream:
    """Writes JSON objects, one in each line. A reader that went away trips the interruption."""

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption
        self._writer = StreamWriter(STDOUT, interruption)
        self._handed = 0

    async def put(self, document: Mapping[str, object]) -> None:
        """Write one, in a thread: a slow reader holds up nothing else."""
        data = _line(document)
        self._handed += len(data)
        await to_thread.run_sync(self._writer.write, data, abandon_on_cancel=True)

    def last(self, document: Mapping[str, object]) -> None:
        """Write one more, after a signal too, as far as somebody reads."""
        if not self._interruption.tripped:
            self._writer.write(_line(document))
        elif self._interruption.signal != signal.SIGPIPE:
            cut = b"\n" if self._writer.written < self._handed else b""  # that line was not written to its end
            _write_within(LAST_LIMIT, cut + _line(document))


def _line(document: Mapping[str, object]) -> bytes:
    return f"{as_json(document)}\n".encode()


def _write_within(seconds: float, data: bytes) -> None:
    """Write what can be written in that time."""
    ready = select.poll()
    ready.register(STDOUT, select.POLLOUT)
    end = time.monotonic() + seconds
    view = memoryview(data)
    try:
        while view and (left := end - time.monotonic()) > 0:
            if ready.poll(left * 1000):
                view = view[os.write(STDOUT, view[: select.PIPE_BUF]) :]
    except OSError:
        return  # nobody reads it
