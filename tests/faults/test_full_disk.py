"""Commands without a terminal on a target whose disk is full: records are in memory, nothing with a key runs twice."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import pytest
from tests.support.disks import small_disk
from tests.support.job_targets import SHELLS, JobTarget, open_job_target

from harness.config import Config
from harness.errors import HarnessError, JobNotFound
from harness.results import Status

pytestmark = [pytest.mark.usefixtures("needs_root"), pytest.mark.parametrize("shell", SHELLS)]

MEMORY = Path(f"/dev/shm/harness-{os.getuid()}")
NOTICE = "the target's disk is full: the job's record and output are in its memory"


def state_disk(directory: Path) -> AbstractContextManager[Callable[[], AbstractContextManager[None]]]:
    """A small disk with the state directory."""
    return small_disk(directory / "home/state")


def in_memory(target: JobTarget, job_id: str | None) -> Path:
    """Return the directory of a job's files in memory."""
    return (target.state / f"jobs/{job_id}.cmd").readlink().parent


async def test_a_command_runs_and_its_record_is_in_memory(tmp_path: Path, shell: str) -> None:
    with state_disk(tmp_path) as full:
        async with open_job_target(shell, tmp_path) as target:
            for _ in range(2):  # then a shell is prestarted
                assert (await target.run("echo before")).notices == ()
            with full():
                for number in (1, 2, 3):
                    result = await target.run(f"echo out {number}; echo err >&2; cat; exit {number}", stdin=b"in\n")
                    assert (result.status, result.exit_code) == (Status.COMPLETED, number)
                    assert (result.stdout, result.stderr) == (f"out {number}\nin\n", "err\n")
                    assert [notice.startswith(NOTICE) for notice in result.notices] == [True]
                directory = in_memory(target, result.job_id)
                for path in (MEMORY, directory):
                    assert stat.S_IMODE(path.stat().st_mode) == 0o700
                assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
                async with open_job_target(shell, tmp_path) as other:
                    again = await other.jobs.wait(result.job_id or "", 5, 1000)
                    assert (again.exit_code, again.stdout, again.stderr) == (3, "out 3\nin\n", "err\n")
            kept = await target.jobs.wait(result.job_id or "", 5, 1000)
            assert (kept.exit_code, kept.stdout) == (3, "out 3\nin\n")
            after = await target.run("echo after")
            assert (after.stdout, after.notices) == ("after\n", ())
            assert int(after.job_id or 0) > int(result.job_id or 0)
            assert len(await target.jobs.list()) == 6


async def test_a_background_job_is_found_and_killed_by_another_process(tmp_path: Path, shell: str) -> None:
    with state_disk(tmp_path) as full:
        async with open_job_target(shell, tmp_path) as target:
            with full():
                first = await target.run("echo begun; sleep 1000", wait=False)
                second = await target.run("echo begun; sleep 1000", timeout=1.0)
                assert [notice.startswith(NOTICE) for notice in first.notices] == [True]
                assert (second.status, second.stdout) == (Status.TIMED_OUT, "begun\n")
                async with open_job_target(shell, tmp_path) as other:
                    running = [job.job_id for job in await other.jobs.list() if job.status is Status.RUNNING]
                    assert running == [first.job_id]
                    killed = await other.jobs.kill(first.job_id or "")
                    assert killed.status is Status.INTERRUPTED
            kept = await target.jobs.wait(second.job_id or "", 5, 1000)
            assert (kept.status, kept.stdout) == (Status.TIMED_OUT, "begun\n")


async def test_a_command_with_a_key_runs_once(tmp_path: Path, shell: str) -> None:
    with state_disk(tmp_path) as full:
        async with open_job_target(shell, tmp_path) as target:
            with full():
                reserved = await target.jobs.reserve("once")
                assert reserved.state == "ours"
                result = await target.run("echo ran >> ~/ran", key="once", job_id=reserved.job_id)
                assert (result.exit_code, result.job_id) == (0, reserved.job_id)
                again = await target.jobs.reserve("once")
                assert (again.state, again.job_id) == ("started", result.job_id)
            assert await target.jobs.find_key("once") == result.job_id
            shutil.rmtree(in_memory(target, result.job_id))  # as a restart of the host does
            await target.jobs.clean()
            for _ in range(2):
                with pytest.raises(HarnessError, match="was in the target's memory, and is lost: it may have run"):
                    await target.jobs.reserve("once")
                with pytest.raises(HarnessError, match="it may have run"):
                    await target.jobs.find_key("once")
                with pytest.raises(JobNotFound):
                    await target.jobs.get(result.job_id or "")
        assert (tmp_path / "home/ran").read_text() == "ran\n"


async def test_the_memory_is_freed_with_the_job(tmp_path: Path, shell: str) -> None:
    with state_disk(tmp_path) as full:
        async with open_job_target(shell, tmp_path, Config(jobs_max_bytes=0)) as target:
            with full():
                result = await target.run("echo out")
                directory = in_memory(target, result.job_id)
                assert (directory / "cmd").exists()
            await target.run("head -c 100000 /dev/zero")
            await target.jobs.clean()
            assert not directory.exists()
            with pytest.raises(JobNotFound):
                await target.jobs.get(result.job_id or "")


async def test_records_that_were_lost_with_the_memory_hide_no_other_jobs(tmp_path: Path, shell: str) -> None:
    with state_disk(tmp_path) as full:
        async with open_job_target(shell, tmp_path) as target:
            await target.run("echo before")
            with full():
                lost = await target.run("echo out")
            directory = in_memory(target, lost.job_id)
            for path in directory.iterdir():
                path.unlink()
            after = await target.run("echo after")
            ids = [job.job_id for job in await target.jobs.list()]
            assert ids[-1] == after.job_id
            assert lost.job_id not in ids
            await target.jobs.clean()
            assert not list((target.state / "jobs").glob(f"{lost.job_id}.*"))
            directory.rmdir()
            with anyio.fail_after(20), pytest.raises(JobNotFound):
                await target.jobs.get(lost.job_id or "")
