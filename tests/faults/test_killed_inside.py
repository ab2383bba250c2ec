"""The harness is killed (-9) while it gives a command to a shell inside the pane's own, whose end nobody records."""

from __future__ import annotations

import anyio
import pytest
from tests.faults.children import child
from tests.faults.rig import Place, lines, opened, until

from harness import ExecutionContext, Status

pytestmark = pytest.mark.usefixtures("needs_tmux")

DELAYS = [0.0, 0.003, 0.02, 0.1, 5.5, 5.53, 5.56, 5.6]


async def test_a_command_in_a_shell_inside_is_over_once_the_next_one_ran(here: Place) -> None:
    async with opened(here) as ctx:
        await ctx.run_shell("bash --norc", timeout=1)
        filled = await ctx.run_shell("seq 1 20000")  # no mark of the pane's own shell is near the end of its log then
        assert filled.status is Status.COMPLETED
    for number, delay in enumerate(DELAYS):
        runs = here.path(f"runs-{number}")
        with child(here) as one:
            one.give(f"echo once >>{runs}")
            one.go()
            await anyio.sleep(delay)
            one.kill()
        async with opened(here) as ctx:
            await _next_runs(ctx)
            told = [job for job in await ctx.jobs() if str(runs) in job.command]
            assert len(told) <= 1
            assert len(lines(runs)) <= 1
            for job in told:
                assert job.status in (Status.COMPLETED, Status.UNKNOWN), (delay, job)
                assert (job.status, job.exit_code) != (Status.COMPLETED, 0) or lines(runs), (delay, job)
            assert [job.command for job in await ctx.jobs() if job.status is Status.RUNNING] == ["bash --norc"]


async def _next_runs(ctx: ExecutionContext) -> None:
    result = await ctx.run_shell("echo next", timeout=60)
    assert (result.status, result.stdout) == (Status.COMPLETED, "next\n"), result


async def test_a_command_that_a_killed_harness_never_typed_can_be_ended(here: Place) -> None:
    async with opened(here) as ctx:
        await ctx.run_shell("bash --norc", timeout=1)
        assert (await ctx.run_shell("echo $SHLVL")).status is Status.COMPLETED
        with child(here) as one:
            one.give("trap '' INT TERM HUP; sleep 77.7; sleep 77.7")
            one.go()
            await until(lambda: here.busy() != "", "the command is typed")
            job_id = here.busy()
            one.kill()
        killed = await ctx.kill(job_id)
        assert killed.status in (Status.INTERRUPTED, Status.UNKNOWN, Status.SHELL_EXITED), killed
        assert (await ctx.wait(job_id, timeout=20)).status is not Status.RUNNING


async def test_a_pane_that_is_started_anew_gives_the_keyboard_back(here: Place) -> None:
    with child(here) as one:
        one.give("sleep 77.8")
        one.go()
        await until(lambda: here.busy() != "" and not here.keyboard_is_free(), "the command is typed")
        one.kill()
    here.tmux("respawn-pane", "-k", "-t", "=harness:")
    await until(lambda: here.busy() == "" and here.keyboard_is_free(), "the pane is given back")
