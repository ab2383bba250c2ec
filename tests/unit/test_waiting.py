"""Bounded waits that a blocked event loop does not use up."""

from __future__ import annotations

import time

import anyio
import pytest

from harness.system.waiting import run_within, wait_within


async def test_an_event_that_is_reported_after_a_blocked_loop_is_in_time() -> None:
    event = anyio.Event()

    async def block_and_report() -> None:
        time.sleep(1.0)  # noqa: ASYNC251  # what a slow pipe does
        await anyio.lowlevel.checkpoint()
        await anyio.sleep(0.05)
        event.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(block_and_report)
        assert await wait_within(0.5, event.wait)


async def test_a_wait_for_nothing_ends() -> None:
    begun = time.monotonic()
    assert not await wait_within(0.3, anyio.Event().wait)
    assert 0.2 < time.monotonic() - begun < 5


async def test_a_call_gives_its_result_or_its_error_or_runs_out_of_time() -> None:
    async def failing() -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError("its own")

    async def answer() -> int:
        await anyio.lowlevel.checkpoint()
        return 4

    assert await run_within(5, answer) == 4
    with pytest.raises(ValueError, match="its own"):
        await run_within(5, failing)
    with pytest.raises(TimeoutError):
        await run_within(0.2, anyio.sleep_forever)
