"""Bounded waits that a blocked event loop does not use up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from .background_tasks import open_task_group

__all__ = ["run_within", "wait_within"]

STEP = 0.1
T = TypeVar("T")


async def wait_within(seconds: float, wait: Callable[[], Awaitable[object]]) -> bool:
    """Wait for an event that another task reports, and return whether it was reported in time.

    While the event loop is blocked, for example because a callback writes to a slow pipe, no event can be reported; so
    only a short part of such a time counts.

    Args:
        seconds: maximum time, without what a blocked event loop adds.
        wait: waits for the event; it is cancelled and called again.
    """
    for _ in range(max(1, round(seconds / STEP))):
        with anyio.move_on_after(STEP):
            await wait()
            return True
    return False


async def run_within(seconds: float, call: Callable[[], Awaitable[T]]) -> T:
    """Run a call, and cancel it after some seconds, as counted by :func:`wait_within`.

    Args:
        seconds: as for :func:`wait_within`.
        call: is called once.

    Returns:
        The call's result.

    Raises:
        TimeoutError: it was cancelled.
        Exception: the call raised it.
    """
    results: list[T] = []
    done = anyio.Event()

    async def run() -> None:
        results.append(await call())
        done.set()

    async with open_task_group() as tasks:
        tasks.start_soon(run)
        if not await wait_within(seconds, done.wait):
            tasks.cancel_scope.cancel()
    if not results:
        raise TimeoutError
    return results[0]
