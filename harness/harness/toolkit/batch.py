"""Several calls of one response: which run at once, and in which order their results come back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import anyio

from .values import CallOutcome, ToolCall

__all__ = ["CONCURRENCY", "Order", "groups", "run_batch"]

Order = Literal["in_order", "parallel_first"]
CONCURRENCY = 8
"""Calls that run at once, at most: a host's sshd gives ten channels by default, and we hold two."""


def groups(parallel: Sequence[bool], order: Order) -> list[list[int]]:
    """The numbers of the calls that run together, group after group. Pure."""
    if order == "parallel_first":
        first = [number for number, at_once in enumerate(parallel) if at_once]
        return [first] * bool(first) + [[number] for number, at_once in enumerate(parallel) if not at_once]
    found: list[list[int]] = []
    for number, at_once in enumerate(parallel):
        if at_once and number and parallel[number - 1]:
            found[-1].append(number)
        else:
            found.append([number])
    return found


async def run_batch(
    run: Callable[[ToolCall], Awaitable[CallOutcome]],
    calls: Sequence[ToolCall],
    parallel: Sequence[bool],
    order: Order,
    concurrency: int,
) -> list[CallOutcome]:
    """Run the calls as :func:`groups` says; outcomes in the order of the calls."""
    outcomes: dict[int, CallOutcome] = {}
    limiter = anyio.CapacityLimiter(concurrency)

    async def one(number: int) -> None:
        async with limiter:
            outcomes[number] = await run(calls[number])

    for group in groups(parallel, order):
        async with anyio.create_task_group() as tasks:
            for number in group:
                tasks.start_soon(one, number)
    return [outcomes[number] for number in range(len(calls))]
