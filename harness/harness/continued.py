"""What a shell's job control does to a program that has changed its terminal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["when_continued"]


@contextmanager
def when_continued(terminal: int, again: Callable[[], None]) -> Iterator[None]:
    """Call ``again`` each time that this process was stopped and goes on in the foreground of a terminal.

    A shell gives the terminal back as it likes it: keys are shown, and lines are edited. ``again`` is called between
    any two instructions of the main thread, so it only sets the terminal. In other threads it is never called.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def continued(number: int, frame: FrameType | None) -> None:
        if _is_ours(terminal):
            again()

    before = signal.signal(signal.SIGCONT, continued)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, before if before is not None else signal.SIG_DFL)


def _is_ours(terminal: int) -> bool:
    """We are in its foreground: another process group would be stopped for changing it."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
