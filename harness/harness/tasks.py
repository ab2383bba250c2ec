"""Background tasks that belong to a resource."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

__all__ = ["background_tasks"]


@asynccontextmanager
async def background_tasks() -> AsyncIterator[TaskGroup]:
    """A task group for the tasks of a resource: cancelled when it is left, and invisible to its user.

    A plain task group wraps whatever the body raises into an exception group; here the body's own exception comes out
    as it was raised, and so does the first failure of a task.
    """
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield tasks
            finally:
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in a group that is not a mere exception group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
