"""Groups of tasks whose errors are raised unchanged, and background tasks that belong to a resource."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVarTuple

import anyio
from anyio.abc import TaskGroup

Ts = TypeVarTuple("Ts")

__all__ = ["BackgroundTasks", "open_background_tasks", "open_task_group", "single_error"]


@asynccontextmanager
async def open_task_group() -> AsyncIterator[TaskGroup]:
    """Open a task group that raises the first failure of its body or of a task unchanged, not in an exception group."""
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as group:
            yield group
    except BaseExceptionGroup as error:
        failure = _first(error)
    if failure is not None:  # raised outside of the handler, which would replace its context
        raise failure


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in a group that is not itself an exception group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def single_error(error: Exception) -> Exception:
    """Return the only error of an exception group, and other errors unchanged."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class BackgroundTasks:
    """Tasks that run until their resource is closed; created by :func:`open_background_tasks`.

    A cancellation around the resource does not cancel them, because a cancelled user still needs the resource for its
    cleanup, such as interrupting a command on the target. They are cancelled when the resource is closed.
    """

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._scopes: set[anyio.CancelScope] = set()
        self._ended = False

    def start_soon(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """Run a coroutine function; if it fails, so does the resource's user."""
        self._group.start_soon(self._run, lambda: function(*args))

    async def _run(self, call: Callable[[], Awaitable[object]]) -> None:
        with anyio.CancelScope(shield=True) as scope:
            self._scopes.add(scope)
            try:
                if not self._ended:
                    await call()
            finally:
                self._scopes.discard(scope)

    def cancel(self) -> None:
        """Cancel all tasks; tasks started later do nothing."""
        self._ended = True
        for scope in self._scopes:
            scope.cancel()


@asynccontextmanager
async def open_background_tasks() -> AsyncIterator[BackgroundTasks]:
    """Open the tasks of a resource, which are cancelled when the context is left; as :func:`open_task_group`."""
    async with open_task_group() as group:
        tasks = BackgroundTasks(group)
        try:
            yield tasks
        finally:
            tasks.cancel()
