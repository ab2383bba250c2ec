"""The end of a job's whole tree, through real shells on this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.support.job_targets import SHELLS, JobTarget, open_job_target, processes_of

from harness.results import Status
from harness_backends.posix import process_scripts

pytestmark = pytest.mark.usefixtures("needs_process")

TIME = 40.0
STUBBORN = "trap '' HUP INT TERM; echo up; while :; do sleep 1; done"


@pytest.fixture(params=SHELLS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JobTarget]:
    with anyio.fail_after(TIME):
        async with open_job_target(request.param, tmp_path) as opened:
            yield opened


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """A program whose name is that of another process, on a line of its own."""
    sleep = shutil.which("sleep")
    assert sleep
    program = tmp_path / "x\n1 (y) S 1 1"
    shutil.copy(os.path.realpath(sleep), program)
    return program


async def test_what_a_command_put_into_a_session_of_its_own_ends_with_it(target: JobTarget) -> None:
    tree = "setsid sleep 87 & (setsid sh -c 'setsid sleep 86 & sleep 85'; true) & sleep 84"
    result = await target.run(tree, timeout=0.5)
    assert result.status is Status.TIMED_OUT
    assert processes_of(result.job_id or "", target.state) == []


async def test_a_session_of_its_own_that_minds_no_signal_is_killed_after_its_parent(target: JobTarget) -> None:
    command = f"setsid sh -c {shlex.quote(STUBBORN)} & wait"
    started = await target.run(command, wait=False)
    async for data in target.jobs.follow(started.job_id or ""):
        assert data == b"up\n"
        break
    killed = await target.jobs.kill(started.job_id or "", grace=0.3)
    assert killed.status is Status.INTERRUPTED
    assert processes_of(killed.job_id, target.state) == []


async def test_a_job_that_starts_one_session_after_the_other_ends_with_all_of_them(tmp_path: Path) -> None:
    async with open_job_target("dash", tmp_path) as target:
        result = await target.run("trap '' TERM; while :; do setsid sleep 83 & sleep 0.01; done", timeout=0.3)
        assert result.status is Status.TIMED_OUT
        assert processes_of(result.job_id or "", target.state) == []


async def test_a_daemon_that_was_detached_before_the_end_lives_on(target: JobTarget) -> None:
    daemon_command = "setsid sh -c 'echo $$ >daemon; exec sleep 82'"
    starts = f"rm -f daemon; ({daemon_command} &); until [ -s daemon ]; do sleep 0.01; done; echo up"
    result = await target.run_to_limit(starts, "setsid sleep 81 & sleep 80", cwd="~")
    (daemon,) = processes_of(result.job_id or "", target.state)
    try:
        assert result.status is Status.TIMED_OUT
        assert daemon == int((target.home / "daemon").read_text())
    finally:
        os.kill(daemon, signal.SIGKILL)


@pytest.mark.parametrize("quick", [True, False])
async def test_a_name_cannot_pass_for_another_process(target: JobTarget, strange: Path, quick: bool) -> None:
    async with await anyio.open_process([str(strange), "60"]) as process:
        hide = "" if quick else "command() { return 1; }\n"
        reply = await target.shell.call(f"{hide}{process_scripts.LIST}hx_list")
        process.kill()
    rows = [tuple(map(str, line.split())) for line in reply.text.splitlines()]
    assert {len(row) for row in rows} == {6}
    assert len({row[0] for row in rows}) == len(rows)
    ours = next(row for row in rows if row[0] == str(process.pid))
    assert ours[2:4] == (str(os.getpid()), str(os.getpgrp())), ours
    assert next(row for row in rows if row[0] == "1")[2] == "0"


async def test_following_a_job_that_ends_at_once_ends_too(target: JobTarget) -> None:
    async def follow(number: int) -> None:
        job = await target.run(f"echo {number}", wait=False)
        assert b"".join([data async for data in target.jobs.follow(job.job_id or "")]) == b"%d\n" % number

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(follow, number)
