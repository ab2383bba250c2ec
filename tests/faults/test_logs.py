"""When the writer of a pane's log falls behind, a reader gets all of the output, or is told that it is not all."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest
from tests.faults.rig import Place, kill, opened, until

from harness import ExecutionContext, ShellResult, Status
from harness.errors import OutputDropped

COMMAND = "echo first; seq 1 2000; echo last"
WHOLE = "first\n" + "".join(f"{number}\n" for number in range(1, 2001)) + "last\n"
BEHIND = 1.0
"""Seconds by which the writer is behind the record of the exit code."""


def writers(place: Place) -> list[int]:
    """The processes that write panes' logs."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            out = os.readlink(process / "fd/1")
        except OSError:
            continue
        if out.startswith(f"{place.state}/panes/"):
            found.append(int(process.name))
    return found


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Processes that stand still meanwhile."""
    try:
        for pid in pids:
            kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            kill(pid, signal.SIGCONT)


@asynccontextmanager
async def ended_unwritten(here: Place) -> AsyncIterator[tuple[ExecutionContext, str]]:
    """Another harness, and a job whose exit code is recorded and whose output is not in its pane's log yet."""
    async with opened(here) as ctx, opened(here) as other:
        await ctx.run_shell("true")
        pids = writers(here)
        assert pids
        with stopped(pids):
            job = await ctx.run_shell(COMMAND, pane="main", wait=False)
            exit_file = here.state / f"jobs/{job.job_id}.exit"
            await until(lambda: exit_file.exists() and exit_file.stat().st_size > 0, "the job has ended")
            yield other, job.job_id or ""


async def waited(ctx: ExecutionContext, job_id: str) -> str:
    result = await ctx.wait(job_id, timeout=10)
    assert (result.status, result.exit_code, result.notices) == (Status.COMPLETED, 0, ()), result
    return result.stdout


async def followed(ctx: ExecutionContext, job_id: str) -> str:
    return b"".join([data async for data in ctx.follow(job_id)]).decode()


@pytest.mark.parametrize("read", [waited, followed])
async def test_the_last_output_is_waited_for_when_the_log_is_behind_the_exit_code(here: Place, read: object) -> None:
    got: list[str] = []
    async with ended_unwritten(here) as (other, job_id), anyio.create_task_group() as tasks:

        async def ask() -> None:
            got.append(await (waited if read is waited else followed)(other, job_id))

        tasks.start_soon(ask)
        await anyio.sleep(BEHIND)
        assert got == [], "nothing that is not whole is taken for the output"
        for pid in writers(here):
            kill(pid, signal.SIGCONT)
    assert got == [WHOLE]


async def test_a_log_whose_end_never_comes_is_said_to_lack_it(here: Place) -> None:
    async with ended_unwritten(here) as (other, job_id):
        with anyio.fail_after(15):
            result: ShellResult = await other.wait(job_id, timeout=10)
        assert (result.status, result.exit_code) == (Status.COMPLETED, 0), result
        assert any("the end of the output, from byte" in notice for notice in result.notices), result


async def follow_to_the_gap(ctx: ExecutionContext, job_id: str) -> tuple[bytes, OutputDropped]:
    found: list[bytes] = []

    async def follow() -> None:
        async for data in ctx.follow(job_id):
            found.append(data)  # what came before the error is looked at

    with pytest.raises(OutputDropped) as caught:
        await follow()
    return b"".join(found), caught.value


async def test_output_that_an_operators_own_pipe_took_is_said_to_be_missing_and_later_output_is_kept(
    here: Place,
) -> None:
    async with opened(here) as ctx, opened(here) as other:
        await ctx.run_shell("true")
        pane = here.tmux("display-message", "-p", "-t", "=harness:", "#{pane_id}")
        here.tmux("pipe-pane", "-t", pane, f"cat >>{here.path('operator')}")
        result = await ctx.run_shell("seq 1 5")
        assert result.stdout == "1\n2\n3\n4\n5\n"
        kept = await other.wait(result.job_id or "", timeout=10)
        assert (kept.status, kept.exit_code, kept.stdout) == (Status.COMPLETED, 0, "")
        assert kept.truncated > 0
        assert any("an operator's pipe-pane" in notice for notice in kept.notices), kept
        data, gap = await follow_to_the_gap(other, result.job_id or "")
        assert (data, gap.start, gap.end) == (b"", 0, 0)
        here.tmux("pipe-pane", "-t", pane)  # the operator's ends
        await ctx.run_shell("true")
        await until(lambda: here.tmux("display-message", "-p", "-t", pane, "#{pane_pipe}") == "1", "there is a log")
        again = await ctx.run_shell("echo kept; (exit 3)")
        kept = await other.wait(again.job_id or "", timeout=10)
        assert (kept.exit_code, kept.stdout, kept.truncated, kept.notices) == (3, "kept\n", 0, ())
    await until(lambda: "3" in here.path("operator").read_text().split(), "the operator's program has written it")


async def test_a_log_that_was_full_names_what_is_missing_and_how_much(here: Place) -> None:
    whole = "".join(f"{number}\n" for number in range(1, 500_001))
    async with opened(here, job_log_max_bytes=1 << 20) as ctx:
        result = await ctx.run_shell("seq 1 500000", max_output=1 << 23)
        assert result.stdout == whole
        size = here.state / f"jobs/{result.job_id}.size"
        await until(lambda: size.exists() and size.stat().st_size > 0, "its size is recorded")
        after = await ctx.run_shell("echo after")
    async with opened(here) as other:
        kept = await other.wait(result.job_id or "", timeout=10, max_output=1 << 23)
        assert len(kept.stdout) >= 1 << 20
        assert whole.startswith(kept.stdout)
        assert kept.truncated == len(whole) - len(kept.stdout)
        assert any(f"from byte {len(kept.stdout)} on, was not recorded" in notice for notice in kept.notices), kept
        data, gap = await follow_to_the_gap(other, result.job_id or "")
        assert (data, gap.start, gap.end) == (kept.stdout_bytes, len(kept.stdout), len(whole))
        assert (await other.wait(after.job_id or "", timeout=10)).stdout == "after\n"
