"""What was sent before the link was lost, and comes when nobody waits for it any more.

The server's end of the link is stopped: it still takes what is sent, as a network does that is down for a while. It
goes on when the harness has given the link up and has a new one.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import pytest
from tests.faults.rig import Place, alive, kill, lines, until, within

from harness import ExecutionContext, Status
from harness.errors import ConnectionLost, JobNotFound

pytestmark = pytest.mark.usefixtures("needs_tmux")


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
            assert "did not run and will not run" in caught.value.hint
            await stopped.go_on()
            assert (await other.run_shell(f"echo again >>{runs}")).exit_code == 0
        with pytest.raises(JobNotFound):
            await ctx.job(result.job_id or "")
        assert lines(runs) == ["again"]


@pytest.mark.parametrize("where", ["plain", "files", "bash", "zsh", "dash", "mksh", "fish"])
async def test_a_number_that_was_asked_for_too_early_costs_no_command(far: Place, where: str) -> None:
    ways: dict[str, dict[str, Any]] = {"plain": {"tmux": False}, "files": {"control_mode": "never"}}
    options = ways.get(where) or {"shell": shutil.which(where)}
    async with used(far, **options) as ctx, far.connect(tmux=False) as other:
        last = int((await ctx.run_shell("true")).job_id or "0")
        ran = {job.job_id for job in await ctx.jobs()}  # a command may have a lower number than one before it
        for number in range(last + 1, last + 40):  # also those that this harness has taken for its next commands
            if str(number) not in ran:
                with pytest.raises(JobNotFound):
                    await other.job(str(number))
        for number in range(3):
            ran = await ctx.run_shell(f"echo {number}; sh -c 'exit {number}'")
            assert (ran.status, ran.exit_code, ran.stdout) == (Status.COMPLETED, number, f"{number}\n")
        job = await ctx.run_shell("exit 5", wait=False)
        assert (await ctx.wait(job.job_id or "", timeout=30)).exit_code == 5
        assert (await other.job(job.job_id or "")).exit_code == 5


@pytest.mark.parametrize(("shell", "control"), [("bash", "auto"), ("fish", "auto"), ("dash", "never")])
async def test_what_a_harness_had_typed_that_has_ended_does_not_run_once_it_was_asked_for(
    far: Place, shell: str, control: str
) -> None:
    assert far.sshd is not None
    runs, options = far.path("runs"), {"shell": shutil.which(shell), "control_mode": control}
    async with used(far, **options) as ctx:
        job_id = str(int((await ctx.run_shell("true")).job_id or "0") + 1)
        stopped = Stopped(far)
        kill(far.sshd.pid, signal.SIGSTOP)  # no new connection, which would end what the old one has
        with suppress(ConnectionLost):
            await within(60, ctx.run_shell(f"echo late >>{runs}", timeout=2))
    kill(far.sshd.pid, signal.SIGCONT)
    async with far.connect(**options) as other:
        with pytest.raises(JobNotFound):
            await other.job(job_id)
        await stopped.go_on()
        assert (await within(40, other.run_shell(f"echo next >>{runs}"))).exit_code == 0
        with pytest.raises(JobNotFound):
            await other.job(job_id)
    assert lines(runs) == ["next"]


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


@pytest.mark.parametrize("ending", ["cancelled", "timed out"])
async def test_a_command_that_could_not_be_ended_while_the_link_was_down_is_ended_when_it_is_back(
    far: Place, ending: str
) -> None:
    assert far.sshd is not None
    runs, stopped = far.path("runs"), []
    async with used(far) as ctx:
        async with anyio.create_task_group() as tasks:
            limit = {"timeout": 600} if ending == "cancelled" else {"timeout": 2, "on_timeout": "kill"}
            tasks.start_soon(partial(ctx.run_shell, f"echo begun >>{runs}; sleep 601", **limit))
            await until(lambda: lines(runs) == ["begun"], "the command runs")
            job = next(job for job in await ctx.jobs() if job.command.endswith("sleep 601"))
            stopped.append(Stopped(far))
            kill(far.sshd.pid, signal.SIGSTOP)
            if ending == "cancelled":
                tasks.cancel_scope.cancel()
        kill(far.sshd.pid, signal.SIGCONT)
        expected = Status.INTERRUPTED if ending == "cancelled" else Status.TIMED_OUT
        assert (await within(40, ctx.wait(job.job_id, timeout=30))).status is expected
        await stopped[0].go_on()


@pytest.mark.parametrize("before", [True, False])
async def test_without_a_terminal_who_is_cancelled_or_leaves_does_not_wait_for_a_dead_link(
    far: Place, before: bool
) -> None:
    """The server takes no new connection, and keep-alives are too slow to help."""
    assert far.sshd is not None
    runs, took = far.path("runs"), []
    command = f"echo $$ >>{runs}; exec sleep 60"
    async with used(far, tmux=False, keepalive_interval=60, connect_timeout=15, control_persist=1) as ctx:
        async with anyio.create_task_group() as tasks:
            if before:
                stopped = Stopped(far)
            tasks.start_soon(partial(ctx.run_shell, command, timeout=600))
            if not before:
                await until(lambda: bool(lines(runs)), "the command runs")
                stopped = Stopped(far)
            kill(far.sshd.pid, signal.SIGSTOP)
            await anyio.sleep(0.5)
            took.append(anyio.current_time())
            tasks.cancel_scope.cancel()
        took.append(anyio.current_time())
    took.append(anyio.current_time())
    kill(far.sshd.pid, signal.SIGCONT)
    await stopped.go_on()
    for pid in lines(runs):
        kill(int(pid))
    cancelling, leaving = took[1] - took[0], took[2] - took[1]
    assert cancelling < 4
    assert leaving < 10
