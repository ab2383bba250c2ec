"""Jobs whose shell or harness was gone before it could say how they ended: they are over, with no made-up code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, desk, open_desk, until

from harness import Job, Status, connect

__all__ = ["desk", "open_desk"]

MODES = ["auto", "never"]
SHELLS = ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/bin/mksh", "/usr/bin/fish", "busybox"]


async def told(desk: Desk, job_id: str) -> Job:
    """The job, as a harness says that knows nothing but what the target keeps."""
    async with connect(str(desk.ctx.target), tmux=False, config=desk.config) as other:
        return await other.job(job_id)


@pytest.mark.parametrize("control_mode", MODES)
async def test_a_pane_that_a_person_starts_anew_ends_the_command_as_unknown(
    open_desk: OpenDesk, control_mode: str
) -> None:
    desk = await open_desk(control_mode=control_mode)
    result = await desk.ctx.run_shell("A=1; echo a; sleep 420.1", wait=1.0)
    assert result.status is Status.RUNNING
    await until(lambda: desk.processes("sleep 420.1"))
    job_id = result.job_id or ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_respawn, desk)
        done = await desk.ctx.wait(job_id, timeout=20)
    assert (done.status, done.exit_code, done.stdout) == (Status.UNKNOWN, None, "a\n"), done
    found = await told(desk, job_id)
    assert (found.status, found.exit_code) == (Status.UNKNOWN, None), found
    await until(lambda: not desk.processes("sleep 420.1"))
    after = await desk.ctx.run_shell("echo next$A")
    assert (after.status, after.exit_code, after.stdout) == (Status.COMPLETED, 0, "next\n"), after
    assert (await desk.ctx.run_shell("echo again")).stdout == "again\n"
    killed = await desk.ctx.kill(job_id)
    assert (killed.status, killed.exit_code) == (Status.UNKNOWN, None), killed


async def _respawn(desk: Desk) -> None:
    await anyio.sleep(0.1)
    desk.tmux.cmd("respawn-pane", "-k", "-t", "=harness:main")


@pytest.mark.parametrize("shell", SHELLS)
async def test_every_shell_comes_back_in_a_pane_that_was_started_anew(open_desk: OpenDesk, shell: str) -> None:
    desk = await open_desk(shell=shell)
    await desk.ctx.run_shell("true")
    for number in range(3):
        desk.tmux.cmd("respawn-pane", "-k", "-t", "=harness:main")
        result = await desk.ctx.run_shell(f"echo {number}")
        assert (result.status, result.stdout) == (Status.COMPLETED, f"{number}\n"), result
        assert any("respawn-pane" in notice for notice in result.notices), result.notices


async def test_another_program_in_the_place_of_the_shell_ends_the_command(desk: Desk) -> None:
    result = await desk.ctx.run_shell("echo a; sleep 421.1", wait=0.5)
    await until(lambda: desk.processes("sleep 421.1"))
    desk.tmux.cmd("respawn-pane", "-k", "-t", "=harness:main", "exec sleep 422.1")
    await until(lambda: desk.processes("sleep 422.1"))
    async with connect(str(desk.ctx.target), tmux=True, config=desk.config) as other:
        done = await other.wait(result.job_id or "", timeout=20)
    assert (done.status, done.exit_code) == (Status.UNKNOWN, None), done


async def test_a_pane_that_is_kept_without_a_program_ends_its_command(desk: Desk) -> None:
    result = await desk.ctx.run_shell("sleep 423.1", wait=0.5)
    await until(lambda: desk.processes("sleep 423.1"))
    desk.tmux.cmd("set-option", "-w", "-t", "=harness:main", "remain-on-exit", "on")
    wrapper = desk.show("#{pane_pid}")
    subprocess.run(["kill", "-9", wrapper], check=True)
    await until(lambda: desk.show("#{pane_dead}") == "1")
    await until(lambda: not desk.processes("sleep 423.1"))
    found = await told(desk, result.job_id or "")
    assert (found.status, found.exit_code) == (Status.UNKNOWN, None), found


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("end", [("respawn-pane", "-k"), ("kill-pane",)])
async def test_what_fails_for_want_of_its_terminal_has_no_exit_code(
    open_desk: OpenDesk, shell: str, end: tuple[str, ...]
) -> None:
    desk = await open_desk(shell=shell)
    waits = "trap '' HUP; " if shell != "/usr/bin/fish" else "trap 'true' HUP; "
    first = await desk.ctx.run_shell(f"{waits}sleep 427.1; echo end", wait=1.0)
    assert first.status is Status.RUNNING
    await until(lambda: desk.processes("sleep 427.1"))
    program = desk.processes("sleep 427.1")
    desk.tmux.cmd(*end, "-t", "=harness:main")
    await until(lambda: desk.show("#{pane_id}") == "" or end == ("respawn-pane", "-k"))
    for pid in program:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert (await desk.ctx.run_shell("echo next", timeout=20)).stdout == "next\n"
    async with connect(str(desk.ctx.target), tmux=False, config=desk.config) as other:
        found = await other.wait(first.job_id or "", timeout=20)
    assert (found.status, found.exit_code) == (Status.UNKNOWN, None), found


@pytest.mark.parametrize("shell", SHELLS)
async def test_a_shell_that_stops_itself_goes_on(open_desk: OpenDesk, shell: str) -> None:
    desk = await open_desk(shell=shell)
    await desk.ctx.run_shell("A=kept" if not shell.endswith("fish") else "set A kept")
    own = "$fish_pid" if shell.endswith("fish") else "$$"
    for _ in range(3):
        stopped = await desk.ctx.run_shell(f"kill -STOP {own}; echo on", timeout=20)
        assert (stopped.status, stopped.exit_code, stopped.stdout) == (Status.COMPLETED, 0, "on\n"), stopped
    assert (await desk.ctx.run_shell("echo $A")).stdout == "kept\n"
    left = await desk.ctx.run_shell("exit 147", timeout=20)
    assert (left.status, left.exit_code) == (Status.SHELL_EXITED, 147), left


@pytest.mark.parametrize("control_mode", MODES)
async def test_the_last_pane_is_ended_beside_another_session(open_desk: OpenDesk, control_mode: str) -> None:
    desk = await open_desk(max_sessions=2, control_mode=control_mode)
    await desk.ctx.create_session("other")
    for number in range(3):
        assert (await desk.ctx.run_shell(f"echo {number}")).stdout == f"{number}\n"
        await desk.ctx.kill_pane("main", force=True)
    await desk.ctx.create_pane("beside")
    await desk.ctx.kill_pane("main", force=True)
    await desk.ctx.kill_pane("beside")
    assert [pane.name for pane in await desk.ctx.list_panes()] == ["main"]
    assert (await desk.ctx.run_shell("echo after")).stdout == "after\n"


@pytest.mark.parametrize("control_mode", MODES)
async def test_every_new_pane_begins_in_the_directory_of_the_connection(open_desk: OpenDesk, control_mode: str) -> None:
    desk = await open_desk(max_sessions=2, control_mode=control_mode)
    target, config = str(desk.ctx.target), desk.config
    async with connect(target, tmux=True, cwd="/usr", pane="p1", config=config) as ctx:
        await ctx.create_pane("p2")
        await ctx.create_pane("p3", cwd="/var")
        for pane, expected in (("p1", "/usr\n"), ("p2", "/usr\n"), ("p3", "/var\n")):
            assert (await ctx.run_shell("pwd", pane=pane)).stdout == expected, pane
            await ctx.run_shell("cd /; exit 3", pane=pane, timeout=20)
            assert (await ctx.run_shell("pwd", pane=pane)).stdout == expected, pane
    async with connect(target, tmux="fresh", cwd="/usr", config=config) as ctx:
        job = await ctx.run_shell("pwd", wait=False)  # before the default pane has run anything
        assert (await ctx.wait(job.job_id or "", timeout=20)).stdout == "/usr\n"
        await ctx.kill_pane("main", force=True)
        assert (await ctx.run_shell("pwd")).stdout == "/usr\n"
