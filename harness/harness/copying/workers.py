"""A function for each of many items, some at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

__all__ = ["for_each"]

T = TypeVar("T")


async def for_each(items: Iterable[T], call: Callable[[T], Awaitable[None]], *, at_once: int) -> None:
    """Call an async function with each item; the first exception cancels the others and is raised unwrapped."""
    waiting = iter(items)
    failure: Exception | None = None

    async def work() -> None:
        nonlocal failure
        for item in waiting:
            try:
                await call(item)
            except Exception as error:  # raised below, outside of the task group, which would wrap it
                failure = failure or error
                tasks.cancel_scope.cancel()
                return

    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(work)
    if failure is not None:
        raise failure
