"""The lines of ``harness exec --json`` on standard output: whole ones and in order, also when a signal ends the run."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Mapping

from anyio import to_thread

from .output import as_json
from .streams import Interruption

__all__ = ["JsonStream"]

POLL = 0.1
"""How soon a write that waits for a slow reader notices that we are to stop, in seconds."""
PATIENCE = 2.0
"""Seconds for which a slow reader is waited for, all in all, from when we are to stop."""
CHUNK = select.PIPE_BUF  # poll() promises that this much can be written at once


class JsonStream:
    """Writes JSON objects, one in each line. A reader that went away trips the interruption."""

    def __init__(self, interruption: Interruption, descriptor: int = 1) -> None:
        self._interruption = interruption
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._one = threading.Lock()
        self._waited = 0.0
        self._lost = False

    async def put(self, document: Mapping[str, object]) -> None:
        """Write one, in a thread: a slow reader holds up nothing else."""
        await to_thread.run_sync(self.last, document, abandon_on_cancel=True)

    def last(self, document: Mapping[str, object]) -> None:
        """Write one; it blocks."""
        with self._one:
            self._write(memoryview(f"{as_json(document)}\n".encode()))

    def _write(self, view: memoryview) -> None:
        try:
            while view and not self._lost:
                if self._is_ready():
                    view = view[os.write(self._descriptor, view[:CHUNK]) :]
        except BlockingIOError:
            self._write(view)
        except OSError as error:
            self._lost = True
            self._interruption.trip(signal.SIGPIPE, None if isinstance(error, BrokenPipeError) else error)

    def _is_ready(self) -> bool:
        """Whether it can be written to now; gives up for good when we are to stop and nobody reads."""
        started = time.monotonic()
        ready = bool(self._poll.poll(POLL * 1000))
        if not ready and self._interruption.tripped:
            self._waited += time.monotonic() - started
            self._lost = self._waited >= PATIENCE
        return ready
