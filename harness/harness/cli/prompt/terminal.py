"""The terminal that is written to: all of a text, however slowly it takes it, until it is gone."""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable

__all__ = ["Terminal"]

PATIENCE = 600.0
"""Seconds that a terminal which takes nothing, and was set non-blocking, is waited for."""
LOOK = 0.1
"""Seconds between two looks whether we are to stop while it is waited for."""


class Terminal:
    """A stream on a terminal. Once the terminal is gone, it takes everything and shows nothing.

    Who shares the terminal may have set it non-blocking: then it is waited for. One that blocks is written to through
    a description of our own that does not, or nothing could be stopped while it takes nothing.

    Args:
        gone: is called once, when the terminal is gone, or is non-blocking and takes nothing for ten minutes.
        stopped: says that we are to stop; from then on a terminal that takes nothing is not waited for.
    """

    encoding = "utf-8"

    def __init__(
        self, descriptor: int, gone: Callable[[], None], *, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._descriptor = descriptor
        self._own = _opened_again(descriptor)
        self._gone = gone
        self._stopped = stopped
        self._open = True

    def write(self, text: str) -> int:
        """Write all of it."""
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        try:
            while data and self._open:
                data = data[self._written(data) :]
        except OSError:
            self._open = False
            self._gone()
        return len(text)

    def _written(self, data: memoryview) -> int:
        """Bytes that it took now; at least one.

        Raises:
            OSError: it is gone.
        """
        until = time.monotonic() + (math.inf if os.get_blocking(self._descriptor) else PATIENCE)
        while True:
            try:
                return os.write(self._own, data)
            except BlockingIOError:
                if self._stopped() or time.monotonic() > until:
                    raise
                select.select([], [self._own], [], LOOK)

    def flush(self) -> None:
        """Nothing waits."""

    def fileno(self) -> int:
        """The terminal."""
        return self._descriptor

    def isatty(self) -> bool:
        """It is one."""
        return True


def _opened_again(descriptor: int) -> int:
    """The same terminal, non-blocking for us alone until we end; the descriptor itself where that cannot be had."""
    try:
        own = os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return descriptor
    if os.fstat(own).st_rdev == os.fstat(descriptor).st_rdev:
        return own
    os.close(own)
    return descriptor
