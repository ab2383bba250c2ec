"""The harness is killed (-9) at any point of a command's life; the next one finds everything."""

from __future__ import annotations

import os
import signal
import time

import anyio
import pytest
from tests.faults.children import child
from tests.faults.rig import Place, lines, opened, until, usable, within

from harness import Status

pytestmark = pytest.mark.usefixtures("needs_tmux")

DELAYS = [0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3]


async def test_a_killed_harness_loses_nothing_and_the_next_one_can_go_on(here: Place) -> None:
    expected = "".join(f"{number}\n" for number in range(1, 20001))
    for number, delay in enumerate(DELAYS):
        runs = here.path(f"runs-{number}")
        with child(here) as one:
            one.give(f"echo once >>{runs}; seq 1 10000; sleep 0.1; seq 10001 20000; (exit 9)")
            one.go()
            await anyio.sleep(delay)
            one.kill()
        async with opened(here) as ctx:
            jobs = await ctx.jobs()
            started = [job for job in jobs if str(runs) in job.command]
            assert len(started) <= 1
            for job in started:
                result = await within(45, ctx.wait(job.job_id, timeout=40))
                if lines(runs):
                    assert (result.status, result.exit_code) == (Status.COMPLETED, 9), (delay, result)
                    assert result.stdout == expected, (delay, len(result.stdout))
            await usable(ctx)
            assert len(lines(runs)) <= 1
            await until(lambda: len(here.clients()) == 1, "the dead harness's control client goes", 5)
            await until(lambda: here.busy() == "" and here.keyboard_is_free(), "the pane is given back")
    assert len(here.drainers()) == 1
    await until(lambda: here.leftovers() == [], "no pipes and buffers are left")


async def test_a_command_that_runs_on_is_named_as_the_holder_and_its_end_frees_the_pane(here: Place) -> None:
    gate = here.path("gate")
    with child(here) as one:
        one.give(f"echo begin; until [ -e {gate} ]; do sleep 0.05; done; echo end")
        one.go()
        await until(lambda: here.busy() != "", "the command is typed")
        one.kill()
    async with opened(here) as ctx:
        (job,) = [job for job in await ctx.jobs() if "begin" in job.command]
        assert job.status is Status.RUNNING
        with pytest.raises(Exception, match=f"job {job.job_id}"):
            await ctx.run_shell("true", timeout=20)
        gate.touch()
        result = await within(45, ctx.wait(job.job_id, timeout=40))
        assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 0, "begin\nend\n")
        await usable(ctx)


async def test_a_command_that_ended_unobserved_gives_the_keyboard_back_at_the_next_start(here: Place) -> None:
    gate = here.path("gate")
    with child(here) as one:
        one.give(f"until [ -e {gate} ]; do sleep 0.05; done")
        one.go()
        await until(lambda: here.busy() != "", "the command is typed")
        job_id = here.busy()
        one.kill()
    (keeper,) = (here.state / "panes").glob("*/keeper")
    os.kill(int(keeper.read_text()), signal.SIGKILL)  # it would give the keyboard back at once
    gate.touch()
    await until((here.state / "jobs" / f"{job_id}.exit").exists, "it ends")
    assert not here.keyboard_is_free()
    async with opened(here):
        assert here.keyboard_is_free()
        assert here.busy() == ""


async def test_a_harness_that_ends_normally_leaves_the_session_and_its_reader_only(here: Place) -> None:
    async with opened(here) as ctx:
        await usable(ctx)
        await usable(ctx)
        server = here.server_pid()
    await until(lambda: here.clients() == [], "no control client is left", 3)
    assert here.tmux("list-sessions", "-F", "#{session_name}") == "harness"
    assert len(here.drainers()) == 1
    await until(lambda: here.leftovers() == [], "no pipes and buffers are left")
    began = time.monotonic()
    here.tmux("kill-server")
    await until(lambda: not here.tmux("list-sessions"), f"server {server} ends", 3)
    assert time.monotonic() - began < 3
