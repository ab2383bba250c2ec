"""The target has no space left, or its sshd allows few sessions."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.faults.rig import Place, feed, opened, private_place, usable, within
from tests.support.disks import small_disk
from tests.support.sshd import MakeSshd

from harness import ExecutionContext, Status
from harness.errors import HarnessError, NoSpace


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("tmux", [True, False], ids=["tmux", "plain"])
async def test_a_full_disk_is_a_clear_error_or_a_right_result(here: Place, tmux: bool) -> None:
    with small_disk(here.state, size="4m"):
        async with opened(here, tmux=tmux) as ctx:
            await usable(ctx)
            filler = fill(here.state)
            for _ in range(3):
                await honest_when_full(ctx)
            if tmux:
                with pytest.raises(NoSpace):
                    await within(30, ctx.run_shell("echo never", wait=False))
            filler.unlink()
            await usable(ctx)
        here.end()


def fill(directory: Path) -> Path:
    """Leave no space there; returns the file that takes it."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as full:
        while True:
            try:
                full.write(b"x" * 4096)
            except OSError:
                return filler


@pytest.mark.usefixtures("needs_root")
async def test_a_job_whose_exit_code_found_no_space_is_unknown_and_not_waited_for(here: Place) -> None:
    go = here.path("go")
    os.mkfifo(go)
    with small_disk(here.state, size="4m"):
        async with opened(here) as ctx, opened(here) as other:
            job = await ctx.run_shell(f"read x <{go}; (exit 4)", wait=False)
            filler = fill(here.state)
            await feed(go, b"on\n")
            with anyio.fail_after(20):
                result = await other.wait(job.job_id or "", timeout=20)
            assert (result.status, result.exit_code) == (Status.UNKNOWN, None), result
            assert any("the target's disk was full" in notice for notice in result.notices), result
            assert [item.status for item in await other.jobs() if item.job_id == job.job_id] == [Status.UNKNOWN]
            filler.unlink()
            await usable(ctx)
        here.end()


async def honest_when_full(ctx: ExecutionContext) -> None:
    """A command has its right result, an unknown one, or an error that says what is missing."""
    try:
        result = await within(30, ctx.run_shell("echo right; (exit 4)", timeout=10))
    except HarnessError as error:
        if "space" not in str(error):
            raise
    else:
        assert (result.status, result.exit_code) in ((Status.COMPLETED, 4), (Status.UNKNOWN, None)), result


@pytest.mark.parametrize("sessions", [2, 10])
async def test_two_sessions_are_enough_for_a_terminal(far_with: Place, sessions: int) -> None:
    async with opened(far_with) as ctx:
        await usable(ctx)
        job = await ctx.run_shell("echo background", wait=False)
        assert (await within(20, ctx.wait(job.job_id or ""))).stdout == "background\n"
        assert (await ctx.read_file("/etc/hostname")).data


@pytest.fixture
async def far_with(home: Path, make_sshd: MakeSshd, engine: str, sessions: int) -> AsyncIterator[Place]:
    server = make_sshd(f"MaxSessions {sessions}")
    with private_place(home) as place:
        place.sshd = server
        place.target = server.target
        place.config = replace(server.config(ssh_engine=engine), connect_timeout=5)
        yield place


@pytest.mark.parametrize("sessions", [1])
async def test_one_session_is_enough_with_a_notice_about_what_it_costs(far_with: Place) -> None:
    async with opened(far_with, tmux=False) as ctx:
        await usable(ctx)
    with anyio.fail_after(12):
        async with opened(far_with) as ctx:
            first = await ctx.run_shell("cd /; echo here; (exit 3)")
            assert (first.status, first.exit_code, first.stdout) == (Status.COMPLETED, 3, "here\n"), first
            assert any("control mode" in notice for notice in first.notices), first
            assert (await ctx.run_shell("pwd")).stdout == "/\n"
            assert (await ctx.read_file("/etc/hostname")).data


@pytest.mark.parametrize("engine", ["openssh"], indirect=True)
@pytest.mark.parametrize("sessions", [4])
async def test_more_harnesses_than_sessions_on_one_connection_wait_for_each_other(far_with: Place) -> None:
    said: list[str] = []

    async def one(number: int) -> None:
        async with opened(far_with, tmux=number % 3 == 0) as ctx:
            result = await within(60, ctx.run_shell(f"echo {number}; sleep 0.3", timeout=50))
            assert (result.status, result.exit_code) == (Status.COMPLETED, 0), result
            said.append(result.stdout.strip())

    with anyio.fail_after(80):
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(one, number)
    assert sorted(map(int, said)) == list(range(12))
