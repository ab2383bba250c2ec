"""Bounded waits that a blocked event loop does not use up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

__all__ = ["wait_within"]

STEP = 0.1


async def wait_within(seconds: float, wait: Callable[[], Awaitable[object]]) -> bool:
    """Wait for an event that another task reports, and return whether it was reported in time.

    While the event loop is blocked, for example because a callback writes to a slow pipe, no event can be reported; so
    only a short part of such a time counts.

    Args:
        wait: waits for the event; it is cancelled and called again.
    """
    for _ in range(max(1, round(seconds / STEP))):
        with anyio.move_on_after(STEP):
            await wait()
            return True
    return False
