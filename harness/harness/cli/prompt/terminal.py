"""The terminal that is written to: all of a text, however slowly it takes it, until it is gone.

A terminal takes nothing while its emulator or its link stands, or somebody has pressed Ctrl-S. What is written then is
kept, and a task of its own writes it later: the time limits of commands must not stand still with the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import anyio

__all__ = ["Terminal"]

MOST = 1 << 20
"""Bytes that are kept for a terminal that takes nothing; what comes then is not shown."""
FAREWELL = 1.0
"""Seconds that the last words may take."""


class Terminal:
    """A stream on a terminal. Once the terminal is gone, it takes everything and shows nothing.

    Who shares the terminal finds it as it was: one that blocks is written to through a description of our own that
    does not.

    Args:
        gone: is called once, when the terminal is gone.
        caught_up: is called when all that waited was written.
    """

    encoding = "utf-8"

    def __init__(
        self, descriptor: int, gone: Callable[[], None], *, caught_up: Callable[[], None] = lambda: None
    ) -> None:
        self._descriptor = descriptor
        self._own = _opened_again(descriptor)
        self._gone = gone
        self._caught_up = caught_up
        self._open = True
        self._waiting = bytearray()
        self._left_out = 0
        self._more = anyio.Event()
        self._looked = anyio.Event()

    @property
    def behind(self) -> bool:
        """It has not taken all yet."""
        return bool(self._waiting)

    def write(self, text: str) -> int:
        """Write what it takes now, and keep the rest for :meth:`run`."""
        if len(self._waiting) > MOST:
            self._left_out += text.count("\n")
        elif self._open:
            self._waiting += text.encode("utf-8", "backslashreplace")
            self._push()
        return len(text)

    async def run(self) -> None:
        """Write what waits, as the terminal takes it."""
        while True:
            while not self._waiting:
                self._more = anyio.Event()
                await self._more.wait()
            await anyio.wait_writable(self._own)
            self._push()
            if not self._waiting:
                self._caught_up()

    async def drained(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until all is written, the terminal is gone, or ``given_up``, which :meth:`look` asks."""
        while self._waiting and not given_up():
            await self._looked.wait()

    def look(self) -> None:
        """Let everybody who waits see whether there is a reason any more."""
        self._looked.set()
        self._looked = anyio.Event()

    async def finish(self) -> None:
        """Write the last words, after :meth:`run` was ended; a terminal that takes nothing is not waited for."""
        with anyio.move_on_after(FAREWELL, shield=True):
            while self._waiting:
                await anyio.wait_writable(self._own)
                self._push()
        self._waiting.clear()

    def _push(self) -> None:
        """Write as much as it takes."""
        try:
            while self._waiting:
                del self._waiting[: os.write(self._own, self._waiting)]
                self._say_what_is_missing()
        except BlockingIOError:
            self._more.set()
            return
        except OSError:
            self._open = False
            self._waiting.clear()
            self._gone()
        self.look()

    def _say_what_is_missing(self) -> None:
        if self._left_out and not self._waiting:
            self._waiting += f"· {self._left_out} lines are not shown: the terminal took nothing\r\n".encode()
            self._left_out = 0

    def flush(self) -> None:
        """What waits is written by :meth:`run`."""

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
