"""The end of a job that was left running is told by its own reply: waiting for it asks nothing of the target."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.desk import until
from tests.support.job_targets import JobTarget, open_job_target

from harness.results import ShellResult, Status
from harness_backends.posix.jobs import follow
from harness_backends.posix.jobs.shell_jobs import PosixJobs
from harness_backends.posix.persistent_shell import PendingReply, PersistentShell

pytestmark = pytest.mark.usefixtures("needs_process")


@pytest.fixture(params=["dash", "busybox"])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JobTarget]:
    async with open_job_target(request.param, tmp_path) as opened:
        os.mkfifo(opened.home / "gate")
        yield opened


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the held shell was sent."""
    sent: list[str] = []
    submit = PersistentShell.submit

    async def counted(self: PersistentShell, line: Callable[[int], str], *, acknowledged: bool = False) -> PendingReply:
        sent.append(line(0))
        return await submit(self, line, acknowledged=acknowledged)

    monkeypatch.setattr(PersistentShell, "submit", counted)
    return sent


def gated(target: JobTarget, more: str = "exit 3") -> str:
    return f"echo out; read x <{target.home}/gate; {more}"


async def open_gate(target: JobTarget) -> None:
    await anyio.to_thread.run_sync((target.home / "gate").write_text, "\n")


async def waiting(target: JobTarget, job: str, count: int = 1) -> None:
    """Wait until so many wait for the end."""
    assert isinstance(target.jobs, PosixJobs)
    end = target.jobs._ends._ends[job].event
    await until(lambda: end.statistics().tasks_waiting == count, 60)


async def wait(target: JobTarget, job: str, into: list[ShellResult]) -> None:
    with anyio.fail_after(60):
        into.append(await target.jobs.wait(job, 3600, 100))


@pytest.mark.parametrize("left", [{"wait": False}, {"timeout": 0.3, "on_timeout": "keep"}])
async def test_waiting_for_a_job_of_ours_asks_nothing(
    target: JobTarget, lines: list[str], left: dict[str, Any]
) -> None:
    job = (await target.run(gated(target), **left)).job_id or ""
    results: list[ShellResult] = []
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(wait, target, job, results)
        await waiting(target, job, 3)
        await open_gate(target)
    assert [(one.status, one.exit_code, one.stdout) for one in results] == [(Status.COMPLETED, 3, "out\n")] * 3
    assert [line for line in lines if "hx_wait" in line] == []


async def test_a_job_that_nobody_will_tell_of_is_found_to_be_gone(
    target: JobTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LOOK_FOR", 0.2)
    job = (await target.run(gated(target), wait=False)).job_id or ""
    record = target.state / "jobs" / f"{job}.pid"
    words = record.read_text().split()
    record.write_text(" ".join(["4194304", *words[1:3], "4194305", *words[4:]]) + "\n")  # no such processes
    results: list[ShellResult] = []
    await wait(target, job, results)
    assert (results[0].status, results[0].exit_code) == (Status.UNKNOWN, None)
    await open_gate(target)


async def test_a_lost_link_is_no_end_and_the_end_is_found_after_it(target: JobTarget) -> None:
    job = (await target.run(gated(target), wait=False)).job_id or ""
    results: list[ShellResult] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, target, job, results)
        await waiting(target, job)
        await target.transport.opened[0].aclose()
        assert isinstance(target.jobs, PosixJobs)
        ends = target.jobs._ends
        await until(lambda: not ends.tells(job), 60)
        assert results == []
        await open_gate(target)
    assert (results[0].status, results[0].exit_code) == (Status.COMPLETED, 3)
