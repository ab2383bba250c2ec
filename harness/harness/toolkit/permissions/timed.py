"""``/approve ask|all|none|15m``: answers in advance, for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, cast, get_args

from ...command import parse_duration

__all__ = ["TimedApproval", "TimedState", "elapsed"]

TimedState = Literal["ask", "all", "none"]
LONGEST = 86400.0
"""Seconds that an approval in advance may last."""


def elapsed() -> float:
    """Seconds that only grow, also while the machine sleeps: a laptop that wakes up has not saved its 15 minutes."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops the monotonic one in sleep; macOS has only that, and does not."""


class TimedApproval:
    """What would be asked is allowed for a time (``all``), or denied (``none``).

    It answers questions, and nothing else: what is denied stays denied, and what must be asked each time is asked.

    Args:
        clock: seconds that only grow, whoever sets the time of day.
    """

    def __init__(self, clock: Callable[[], float] = elapsed) -> None:
        self._clock = clock
        self._state: TimedState = "ask"
        self._until: float | None = None
        self._target = ""

    def set(self, text: str, target: str = "") -> None:
        """``ask``, ``all`` (until it is changed), ``none``, or a time such as ``15m``, for which all is approved.

        Args:
            target: the one, with its identity, on which all is approved; empty for any.

        Raises:
            ValueError: the text is none of these, or a time longer than a day.
        """
        if text in get_args(TimedState):
            self._state, self._until, self._target = cast(TimedState, text), None, target
            return
        seconds = parse_duration(text)
        if not 0 < seconds <= LONGEST:
            raise ValueError(f"{text!r} is no time to approve for: write 15m, 1h, and a day at most")
        self._state, self._until, self._target = "all", self._clock() + seconds, target

    def approves(self, target: str) -> bool:
        """Whether what would be asked on that target runs unasked now."""
        return self.state == "all" and self._target in ("", target)

    @property
    def state(self) -> TimedState:
        """What holds now."""
        if self._until is not None and self._clock() >= self._until:
            self._state, self._until = "ask", None
        return self._state

    @property
    def remaining(self) -> float | None:
        """Seconds until the state is ``ask`` again; None when it has no end."""
        return None if self.state == "ask" or self._until is None else self._until - self._clock()
