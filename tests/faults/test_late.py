"""What was sent before the link was lost, and comes when nobody waits for it any more.

The server's end of the link is stopped: it still takes what is sent, as a network does that is down for a while. It
goes on when the harness has given the link up and has a new one.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import pytest
from tests.faults.rig import Place, alive, kill, lines, until, within

from harness import ExecutionContext, Status
from harness.errors import ConnectionLost, JobNotFound


class Stopped:
    """The server's ends of all links of the moment."""

    def __init__(self, place: Place) -> None:
        assert place.sshd is not None
        self._pids = place.sshd.session_pids()
        for pid in self._pids:
            kill(pid, signal.SIGSTOP)

    async def go_on(self) -> None:
        """Let them carry out what has come meanwhile, and end."""
        for pid in self._pids:
            kill(pid, signal.SIGCONT)
        await until(lambda: not any(map(alive, self._pids)), "the old sessions have ended")


@asynccontextmanager
async def used(place: Place, **options: object) -> AsyncIterator[ExecutionContext]:
    """A harness that has run commands before, so that the next one is sent at once."""
    with anyio.fail_after(90):
        async with place.connect(**options) as ctx:
            for _ in range(3):
                await ctx.run_shell("true")
            yield ctx


@pytest.mark.parametrize("wait", [True, False])
async def test_a_job_that_was_asked_for_in_vain_never_runs(far: Place, wait: bool) -> None:
    runs = far.path("runs")
    async with used(far, tmux=False) as ctx:
        stopped = Stopped(far)
        result = await within(30, ctx.run_shell(f"echo late >>{runs}", wait=wait, timeout=20))
        assert (result.status, result.exit_code) == (Status.UNKNOWN, None)
        async with far.connect(tmux=False) as other:  # such as harness jobs, in another process
            with pytest.raises(JobNotFound) as caught:
                await other.wait(result.job_id or "", timeout=1)
            assert "has not run, and will not" in caught.value.hint
            await stopped.go_on()
            assert (await other.run_shell(f"echo again >>{runs}")).exit_code == 0
        with pytest.raises(JobNotFound):
            await ctx.job(result.job_id or "")
        assert lines(runs) == ["again"]


async def test_a_number_that_was_asked_for_too_early_costs_no_command(far: Place) -> None:
    async with used(far, tmux=False) as ctx, far.connect(tmux=False) as other:
        last = int((await ctx.run_shell("true")).job_id or "0")
        for number in range(last + 1, last + 40):  # also those that this harness has taken for its next commands
            with pytest.raises(JobNotFound):
                await other.job(str(number))
        for number in range(3):
            ran = await ctx.run_shell(f"echo {number}; (exit {number})")
            assert (ran.status, ran.exit_code, ran.stdout) == (Status.COMPLETED, number, f"{number}\n")
        job = await ctx.run_shell("exit 5", wait=False)
        assert (await ctx.wait(job.job_id or "", timeout=30)).exit_code == 5
        assert (await other.job(job.job_id or "")).exit_code == 5


async def test_what_the_lost_shell_was_told_is_not_done_after_what_the_next_one_did(far: Place) -> None:
    path = str(far.path("file"))
    async with used(far, tmux=False) as ctx:
        stopped = Stopped(far)
        with pytest.raises(ConnectionLost):
            await within(60, ctx.write_file(path, b"late"))
        await ctx.write_file(path, b"new")
        await stopped.go_on()
        assert (await ctx.read_file(path)).data == b"new"


@pytest.mark.parametrize("control", ["auto", "never"])
async def test_in_a_pane_a_late_command_is_not_typed(far: Place, control: str) -> None:
    runs = far.path("runs")
    async with used(far, control_mode=control) as ctx:
        stopped = Stopped(far)
        status = None
        with suppress(ConnectionLost):  # it was not typed
            status = (await within(60, ctx.run_shell(f"echo ran >>{runs}", timeout=30))).status
        known = lines(runs)
        await stopped.go_on()
        assert (await within(40, ctx.run_shell(f"echo next >>{runs}"))).exit_code == 0
        assert status in (Status.COMPLETED, Status.UNKNOWN, None)
        assert known == ["ran"] * (status is Status.COMPLETED)
        assert lines(runs) == [*known, "next"]


@pytest.mark.parametrize("tmux", [False, True])
async def test_a_cancelled_command_is_ended_over_the_next_connection(far: Place, tmux: bool) -> None:
    runs = far.path("runs")
    async with used(far, tmux=tmux) as ctx, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(ctx.run_shell, f"echo begun >>{runs}; sleep 600", timeout=600))
        await until(lambda: lines(runs) == ["begun"], "the command runs")
        stopped = Stopped(far)
        tasks.cancel_scope.cancel()
    async with far.connect(tmux=tmux) as other:
        job = next(job for job in await other.jobs() if job.command.endswith("sleep 600"))
        assert job.status is Status.INTERRUPTED
        await stopped.go_on()
