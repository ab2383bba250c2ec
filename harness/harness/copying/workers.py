"""A function for each of many items, some at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from ..system.background_tasks import open_task_group

__all__ = ["for_each"]

T = TypeVar("T")


async def for_each(items: Iterable[T], call: Callable[[T], Awaitable[None]], *, at_once: int) -> None:
    """Call an async function with each item; the first exception cancels the others and is raised unwrapped."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await call(item)

    async with open_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(work)
