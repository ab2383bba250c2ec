"""Somebody removes harness's directory on the target while it is in use."""

from __future__ import annotations

import shutil

import anyio
import pytest
from tests.faults.rig import Place, opened, usable, within

from harness import Status
from harness.errors import TerminalError

BOUND = 20.0
REMADE = "has been recreated"


def remove(place: Place) -> None:
    """The whole directory at once, whoever is just writing in it."""
    away = place.path("away")
    place.state.rename(away)
    shutil.rmtree(away, ignore_errors=True)


@pytest.mark.parametrize("tmux", [True, False], ids=["tmux", "plain"])
async def test_commands_go_on_in_a_directory_that_is_made_anew(here: Place, tmux: bool) -> None:
    runs = here.path("runs")
    async with opened(here, tmux=tmux) as ctx:
        for number in range(3):
            await ctx.run_shell(f"cd /usr; A={number}")
        for kept in (True, False):
            remove(here)
            told = 0
            for number in range(4):
                result = await within(BOUND, ctx.run_shell(f"echo {number} | tee -a {runs}; (exit 4)", timeout=BOUND))
                assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 4, f"{number}\n"), result
                told += sum(REMADE in notice for notice in result.notices)
                assert (await ctx.job(result.job_id or "")).exit_code == 4
            assert told == 1, kept
        if tmux:
            assert (await ctx.run_shell('echo "$PWD $A"')).stdout == "/usr 2\n"
    assert runs.read_text() == 2 * "0\n1\n2\n3\n"


async def test_what_is_not_waited_for_runs_once_too_and_others_find_its_output(here: Place) -> None:
    runs = here.path("runs")
    async with opened(here) as ctx:
        await within(BOUND, ctx.wait((await ctx.run_shell("true", wait=False)).job_id or ""))
        remove(here)
        job = await within(BOUND, ctx.run_shell(f"echo out; echo ran >>{runs}", pane="bg-1", wait=False))
        assert any(REMADE in notice for notice in job.notices), job
        await usable(ctx)
        async with opened(here) as other:
            found = await within(BOUND, other.wait(job.job_id or ""))
            assert (found.status, found.exit_code, found.stdout) == (Status.COMPLETED, 0, "out\n"), found
    assert runs.read_text() == "ran\n"


async def test_the_next_harness_is_told_what_to_do_and_that_helps(here: Place) -> None:
    async with opened(here) as ctx:
        await usable(ctx)
    remove(here)
    with pytest.raises(TerminalError) as caught:
        async with opened(here):
            pass
    assert "harness sessions kill harness" in caught.value.hint
    here.tmux("kill-session", "-t", "=harness")
    with anyio.fail_after(BOUND):
        async with opened(here) as ctx:
            await usable(ctx)


async def test_the_next_harness_begins_a_new_log_at_once_where_that_of_a_pane_was_removed(here: Place) -> None:
    async with opened(here) as ctx:
        await ctx.run_shell("A=kept")
        for log in here.state.glob("panes/*/log.*"):
            log.unlink()
        async with opened(here) as other:
            result = await within(5, other.run_shell("echo $A"))
            assert (result.status, result.stdout) == (Status.COMPLETED, "kept\n"), result
            assert any("log of pane 'main' was removed" in notice for notice in result.notices), result
            async with opened(here, tmux=False) as reader:
                found = await within(BOUND, reader.wait(result.job_id or ""))
                assert (found.stdout, found.notices) == ("kept\n", ()), found
        async with opened(here) as third:
            assert not (await within(5, third.run_shell("true"))).notices
        await usable(ctx)
