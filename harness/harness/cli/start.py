"""The start of the program, which makes C-c end it silently before and after its work."""

from __future__ import annotations

import gc
import os
import signal
from types import FrameType
from typing import NoReturn

__all__ = ["main"]

INTERRUPTED = 130
COLLECTED_AFTER = 50_000
"""Threshold of the garbage collector's youngest generation; 5,000 makes imports 5 % slower, the default of 700 15 %."""


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exit immediately; there is nothing to clean up."""
    os._exit(INTERRUPTED)


class InterruptGuard:
    """Context in which C-c raises ``KeyboardInterrupt``, for cleanup; foreign signal handlers are kept."""

    def __enter__(self) -> None:
        self._ours = signal.getsignal(signal.SIGINT) is _leave
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *error: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, _leave)


def main() -> NoReturn:
    """Run the ``harness`` program and exit."""
    gc.set_threshold(COLLECTED_AFTER)
    if (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):  # else C-c is ignored: nohup, or a shell's background job
        signal.signal(signal.SIGINT, _leave)
    from .main import main as program

    program(interruptible=InterruptGuard())
