"""Calls of two processes on the same panes, cancelled at random moments: each pane serves its next command."""

from __future__ import annotations

import random
from typing import Literal

import anyio
import pytest
from tests.faults.rig import Place, opened, within

from harness import ExecutionContext
from harness.errors import HarnessError

pytestmark = pytest.mark.usefixtures("needs_tmux")

PANES = ("main", "one", "two", "three")
CALLS = 12
"""Calls at the same time."""


async def call(ctx: ExecutionContext, pane: str, draw: random.Random) -> None:
    """One call, which may fail as others remove the pane or hold it, and is cancelled after up to 0.6 s."""
    with anyio.move_on_after(draw.choice((0.002, 0.02, 0.2, 0.6)) * draw.random()):
        try:
            match draw.randrange(10):
                case 0 | 1 | 2 | 3:
                    await ctx.run_shell("echo called", pane=pane, timeout=20)
                case 4:
                    await ctx.run_shell("sleep 0.05; echo background", wait=False)
                case 5:
                    await ctx.run_shell("echo out; echo err >&2", tty=False, pane=pane)
                case 6:
                    await ctx.capture_pane(pane=pane)
                case 7:
                    await ctx.list_panes()
                case 8 if pane != "main":
                    await ctx.kill_pane(pane)
                case _ if pane != "main":
                    await ctx.create_pane(pane)
        except HarnessError:
            return


async def check(ctx: ExecutionContext, pane: str, word: str) -> None:
    """The pane, created if it is missing, runs a command and returns its output and exit code."""
    if pane not in {known.name for known in await ctx.list_panes()}:
        await ctx.create_pane(pane)
    result = await within(25, ctx.run_shell(f"echo {word}; (exit 3)", pane=pane, timeout=20))
    assert (result.stdout, result.exit_code) == (f"{word}\n", 3), result


@pytest.mark.slow
@pytest.mark.parametrize(("control_mode", "rounds"), [("auto", 15), ("never", 6)])
async def test_calls_that_are_cancelled_at_any_moment_leave_all_panes_usable(
    here: Place, control_mode: Literal["auto", "never"], rounds: int
) -> None:
    options = {"control_mode": control_mode, "max_panes": 12}
    async with opened(here, **options) as ours, opened(here, **options) as theirs:
        for number in range(rounds):
            draw = random.Random(number)
            async with anyio.create_task_group() as tasks:
                for _ in range(CALLS):
                    tasks.start_soon(call, draw.choice((ours, theirs)), draw.choice(PANES), draw)
            for ctx in (ours, theirs):
                for pane in PANES:
                    await check(ctx, pane, f"{pane}-{number}")
