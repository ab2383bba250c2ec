"""Who gets the keys: the line that is being typed, or a question that has come up. Pure but for its clock."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Keyboard"]

QUIET = 1.0
"""Seconds without a key after which a question may take the keyboard."""
PASTED = 40
"""Keys that come at once only when something is pasted."""


class Keyboard:
    """Keeps a question from taking what was meant for the line that is being typed.

    A question gets the keys at once when nothing is being typed; else when the operator asks for it, or when the line
    is empty and no key has come for a second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock() - QUIET
        self._pasting = False

    def pressed(self) -> None:
        """A key has come."""
        self._last = self._clock()

    def quiet_in(self) -> float:
        """Seconds until a question may take the keys, when the line is empty."""
        return max(0.0, self._last + QUIET - self._clock())

    def enter_ends_line(self, waiting: int) -> bool:
        """Whether an Enter only ends a line of what is pasted: ``waiting`` keys have come with it."""
        self._pasting = waiting > PASTED or (self._pasting and waiting > 0)
        return self._pasting
