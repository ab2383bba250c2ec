"""Groups of tasks that raise what failed in them, and nothing around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import anyio
import pytest
from anyio.abc import TaskGroup

from harness.errors import FileError
from harness.system.background_tasks import BackgroundTasks, open_background_tasks, open_task_group, single_error


async def fail() -> None:
    await anyio.lowlevel.checkpoint()
    try:
        raise OSError("why")
    except OSError as error:
        raise FileError("what") from error


Open = Callable[[], AbstractAsyncContextManager[TaskGroup | BackgroundTasks]]


async def fail_in_body(open_group: Open) -> None:
    async with open_group():
        await fail()


async def fail_in_task(open_group: Open) -> None:
    async with open_group() as group:
        group.start_soon(fail)
        await anyio.sleep_forever()


@pytest.mark.parametrize("open_group", [open_task_group, open_background_tasks])
@pytest.mark.parametrize("fail_within", [fail_in_body, fail_in_task])
async def test_a_failure_is_raised_with_its_cause(
    open_group: Open, fail_within: Callable[[Open], Awaitable[None]]
) -> None:
    with pytest.raises(FileError, match="what") as raised:
        await fail_within(open_group)
    assert isinstance(raised.value.__cause__, OSError)
    assert not isinstance(raised.value.__context__, BaseExceptionGroup)


def test_the_only_error_of_a_group_is_found() -> None:
    error = ValueError("one")
    assert single_error(ExceptionGroup("g", [ExceptionGroup("g", [error])])) is error
    both = ExceptionGroup("g", [error, ValueError("two")])
    assert single_error(both) is both
