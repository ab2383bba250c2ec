"""A command that has ended keeps its own status, also if this process hears of the end after the time limit.

A callback that blocks, as a write to a slow pipe does, stops the event loop: afterwards the time limit has passed, and
the report of the end has not been read.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest
from tests.support.desk import until
from tests.support.job_targets import SHELLS, JobTarget, open_job_target

from harness.results import ShellResult, Status
from harness_backends.posix.jobs.shell_jobs import PosixJobs
from harness_backends.posix.jobs.shell_library import ENDED_BEFORE
from harness_backends.tmux.jobs.kill_script import PaneKill

pytestmark = pytest.mark.usefixtures("needs_process")

LIMIT = 2.0
FILL = "i=0; while [ $i -lt 300 ]; do echo $i; i=$((i + 1)); done"
FILLED = "".join(f"{number}\n" for number in range(300))


@pytest.fixture(params=SHELLS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JobTarget]:
    with anyio.fail_after(60):
        async with open_job_target(request.param, tmp_path) as opened:
            os.mkfifo(opened.home / "gate")
            yield opened


class SlowReader:
    """A callback that blocks from the first output until a job's end is recorded and its time limit has passed."""

    def __init__(self, target: JobTarget) -> None:
        self._jobs = target.state / "jobs"
        self._gate = os.open(target.home / "gate", os.O_RDWR)  # opening it does not wait for a reader
        self.data = b""

    def __call__(self, data: bytes) -> None:
        if not self.data:
            os.write(self._gate, b"\n")  # the command ends while this blocks
            begun = time.monotonic()
            while time.monotonic() < begun + 30 and not self._is_recorded():
                time.sleep(0.01)
            time.sleep(max(0.0, begun + LIMIT + 0.1 - time.monotonic()))
            os.close(self._gate)
        self.data += data

    def _is_recorded(self) -> bool:
        last = max((path for path in self._jobs.glob("*.cmd") if path.stat().st_size), key=lambda path: int(path.stem))
        return last.with_suffix(".exit").exists() and last.with_suffix(".exit").stat().st_size > 0


def gated(target: JobTarget) -> str:
    return f"{FILL}; read x <{target.home}/gate; echo end; exit 3"


@pytest.mark.parametrize("on_timeout", ["kill", "keep"])
@pytest.mark.parametrize("earlier", [0, 3])
async def test_an_end_before_the_time_limit_that_is_read_after_it_is_the_commands_own(
    target: JobTarget, on_timeout: str, earlier: int
) -> None:
    for _ in range(earlier):  # a shell that was started early
        await target.run("true")
    reader = SlowReader(target)
    result = await target.run(gated(target), timeout=LIMIT, on_timeout=on_timeout, on_output=reader)
    assert (result.status, result.exit_code) == (Status.COMPLETED, 3)
    assert result.stdout == f"{FILLED}end\n" == reader.data.decode()
    job = await target.jobs.get(result.job_id or "")
    assert (job.status, job.exit_code) == (Status.COMPLETED, 3)


async def test_what_an_ended_command_left_running_is_not_killed_by_its_late_time_limit(target: JobTarget) -> None:
    reader = SlowReader(target)
    left = f"{gated(target).rpartition('; exit')[0]}; sleep 50 >/dev/null 2>&1 & echo $! >{target.home}/pid; exit 3"
    command = left.replace("; sleep", "\nsleep")
    result = await target.run(command, timeout=LIMIT, on_output=reader)
    pid = int((target.home / "pid").read_text())
    os.kill(pid, 9)  # it is there
    assert (result.status, result.exit_code) == (Status.COMPLETED, 3)


async def test_a_command_that_is_killed_in_time_is_timed_out_however_it_exits(target: JobTarget) -> None:
    result = await target.run_to_limit("trap 'exit 0' TERM; echo out", "while :; do sleep 0.05; done")
    assert (result.status, result.exit_code, result.stdout) == (Status.TIMED_OUT, None, "out\n")
    assert (await target.jobs.get(result.job_id or "")).status is Status.TIMED_OUT


async def test_a_cancelled_caller_does_not_change_the_end_of_a_command_that_had_ended(target: JobTarget) -> None:
    reader = SlowReader(target)
    with anyio.CancelScope() as scope:

        def cancel_late(data: bytes) -> None:
            reader(data)
            scope.cancel()

        await target.run(gated(target), on_output=cancel_late)
    assert scope.cancelled_caught
    [job] = await target.jobs.list()
    assert (job.status, job.exit_code) == (Status.COMPLETED, 3)


async def end(target: JobTarget, job_id: str, into: list[int]) -> None:
    assert isinstance(target.jobs, PosixJobs)
    reply = await target.jobs._end(job_id, None, Status.TIMED_OUT, ("TERM", 2.0), ("KILL", 2.0))
    into.append(reply.exit_code)


async def test_a_kill_that_comes_between_the_end_and_its_record_leaves_the_end_alone(target: JobTarget) -> None:
    """The keeper has seen the end, and waits for a kill that is still undecided."""
    job_id = (await target.run(f"read x <{target.home}/gate; exit 3", wait=False)).job_id or ""
    why = target.state / "jobs" / f"{job_id}.why"
    why.touch()  # as a kill does before it looks
    await anyio.to_thread.run_sync((target.home / "gate").write_text, "\n")
    pid = (target.state / "jobs" / f"{job_id}.pid").read_text().split()[0]
    await until(lambda: not Path(f"/proc/{pid}").exists(), 10)
    assert not (target.state / "jobs" / f"{job_id}.exit").exists()
    why.unlink()  # as a kill does that has found the end
    result = await target.jobs.wait(job_id, 20, 100)
    assert (result.status, result.exit_code) == (Status.COMPLETED, 3)


async def test_a_kill_at_the_moment_of_the_end_agrees_with_the_record(target: JobTarget) -> None:
    """Many ends at about the moment of a kill: what the kill says is what is recorded."""
    gate: Callable[[str], int] = (target.home / "gate").write_text
    for delay in range(12):
        command = f"trap '' TERM; read x <{target.home}/gate; exit 3"
        job_id = (await target.run(command, wait=False)).job_id or ""
        codes: list[int] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, gate, "\n")
            await anyio.sleep(delay * 0.005)
            tasks.start_soon(end, target, job_id, codes)
        result: ShellResult = await target.jobs.wait(job_id, 20, 100)
        own = (Status.COMPLETED, 3)
        assert (result.status, result.exit_code) == (own if codes == [ENDED_BEFORE] else (Status.TIMED_OUT, None))


async def test_a_panes_job_that_ends_while_its_processes_are_looked_for_is_not_signalled(target: JobTarget) -> None:
    """The script has seen no end, and waits for the process id of the pane's shell."""
    home, record = target.home / "pane", target.state / "jobs" / "900.exit"
    home.mkdir()
    os.mkfifo(home / "pid")
    kill = PaneKill(exit_path=str(record), pane_dir=str(home), uid="none", command="true", age=9)

    def end_meanwhile() -> None:
        with (home / "pid").open("w") as pid:  # the script reads it
            record.write_text("3 completed\n")
            pid.write("\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, end_meanwhile)
        ended = await kill.run(target.shell, Status.TIMED_OUT, "TERM", 1.0)
    assert ended.before
    assert ended.outcome is not None
    assert (ended.outcome.status, ended.outcome.exit_code) == (Status.COMPLETED, 3)
