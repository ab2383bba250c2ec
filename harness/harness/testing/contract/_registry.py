"""Checks of the contract: their type, registry and execution."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal

import anyio

from ...context import ExecutionContext
from ...errors import HarnessError

__all__ = ["CHECK_TIMEOUT", "Check", "Needs", "check", "checks", "run_check", "scratch", "until"]

CHECK_TIMEOUT = 90.0
"""Maximum seconds for one check on a slow machine."""

Needs = Literal["any", "plain", "terminal"]
Run = Callable[[ExecutionContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """One requirement of the contract and the function that verifies it.

    ``needs`` selects the contexts to which it applies: any, only those without a terminal, or only those with one.
    """

    name: str
    requirement: str
    run: Run
    needs: Needs = "any"

    def applies_to(self, *, terminal: bool) -> bool:
        """Return whether the requirement applies to contexts with (or without) a terminal."""
        return self.needs == "any" or (self.needs == "terminal") == terminal


_registry: list[Check] = []


def check(requirement: str, needs: Needs = "any") -> Callable[[Run], Run]:
    """Add a function to the contract under its own name."""

    def register(run: Run) -> Run:
        _registry.append(Check(run.__name__, requirement, run, needs))
        return run

    return register


def checks() -> tuple[Check, ...]:
    """Return every check, in the order of definition."""
    return tuple(_registry)


async def run_check(item: Check, ctx: ExecutionContext) -> None:
    """Run one check within :data:`CHECK_TIMEOUT`; it raises if the requirement is not met."""
    with anyio.fail_after(CHECK_TIMEOUT):
        await item.run(ctx)


@asynccontextmanager
async def scratch(ctx: ExecutionContext) -> AsyncIterator[str]:
    """Create a directory on the target, and remove it afterwards."""
    path = f"/tmp/hx-check-{secrets.token_hex(6)}"
    await ctx.mkdir(path)
    try:
        yield path
    finally:
        with anyio.CancelScope(shield=True), suppress(HarnessError):
            await ctx.remove(path, recursive=True)


async def until(condition: Callable[[], Awaitable[bool]], what: str, timeout: float = 20.0) -> None:
    """Poll a condition on the target that cannot be signalled, such as the state of a process or a screen."""
    with anyio.move_on_after(timeout):
        while not await condition():  # noqa: ASYNC110  # the target cannot signal it
            await anyio.sleep(0.05)
        return
    raise AssertionError(f"not within {timeout:g} s: {what}")
