"""Where the program begins: a C-c ends it without a word from its first moment to its last."""

from __future__ import annotations

import gc
import os
import signal
from types import FrameType
from typing import NoReturn

__all__ = ["InterruptGuard", "main"]

INTERRUPTED = 130
COLLECTED_AFTER = 5_000
"""New objects until the garbage collector looks for cycles among them: Python's 700 make imports 10 % slower."""


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """There is nothing to undo yet, or no more."""
    os._exit(INTERRUPTED)


class InterruptGuard:
    """Inside it a C-c raises, so that what was begun is undone; a signal that somebody else handles stays theirs."""

    def __enter__(self) -> None:
        self._ours = signal.getsignal(signal.SIGINT) is _leave
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *error: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, _leave)


def main() -> NoReturn:
    """The entry point of ``harness``."""
    gc.set_threshold(COLLECTED_AFTER)
    if (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):  # nohup, and a shell's background, stay as they are
        signal.signal(signal.SIGINT, _leave)
    from .main import main as program

    program()
