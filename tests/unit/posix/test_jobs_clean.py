"""What cleaning removes and keeps, where panes are gone: jobs, their logs, the panes' directories."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from tests.support.job_targets import open_job_target

from harness.config import Config
from harness_backends.posix.state_directory import JobRecord, render_record

pytestmark = pytest.mark.usefixtures("needs_process")

TIME = 60.0
LONG_AGO = (1, 1)
SHELLS = pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])


@dataclass(frozen=True)
class State:
    """A state directory, filled by hand."""

    root: Path

    def pane(self, uid: str, *logs: bytes, old: bool = False, log_old: bool = False) -> Path:
        """The directory of a pane that is gone."""
        folder = self.root / "panes" / uid
        folder.mkdir()
        (folder / "nonce").write_text("n\n")
        (folder / "socket").write_text("harness-none\n")
        for number, log in enumerate(logs):
            (folder / f"log.{number}").write_bytes(log)
            if log_old:
                os.utime(folder / f"log.{number}", LONG_AGO)
        if old:
            os.utime(folder, LONG_AGO)
        return folder

    def job(self, number: int, log: str, *, ended: bool = True, old: bool = False) -> None:
        """The record of a job in a pane."""
        record = JobRecord(str(number), "true #| x", "pane", 1.0, pane="%1", log=log, offset=0, nonce="n")
        path = self.root / "jobs" / f"{number}.cmd"
        path.write_text(render_record(record, "true #% log: panes/other/log.0 #%"))
        if ended:
            path.with_suffix(".exit").write_text("0\n")
        for file in self.root.glob(f"jobs/{number}.*"):
            if old:
                os.utime(file, LONG_AGO)

    def left(self) -> list[str]:
        """Jobs, logs and panes that are there."""
        jobs = [path.stem for path in self.root.glob("jobs/*.cmd") if path.stat().st_size]
        panes = list((self.root / "panes").iterdir())
        logs = [f"{path.name}/{log.name}" for path in panes for log in path.glob("log.*")]
        return sorted([*jobs, *(path.name for path in panes), *logs])


@SHELLS
async def test_a_log_stays_as_long_as_a_job_that_is_kept(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path, Config()) as target:
            state = State(target.state)
            state.pane("aa", b"one", b"two", old=True, log_old=True)
            state.job(101, "panes/aa/log.0")
            state.job(102, "panes/aa/log.1", old=True)
            assert await target.jobs.clean() == 1
            assert state.left() == ["101", "aa", "aa/log.0"]
            state.job(101, "panes/aa/log.0", old=True)
            os.utime(state.root / "panes/aa", LONG_AGO)
            assert await target.jobs.clean() == 1
            assert state.left() == []


@SHELLS
async def test_what_no_job_refers_to_goes_by_its_age(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path, Config()) as target:
            state = State(target.state)
            state.pane("empty", old=True)
            state.pane("new")
            state.pane("young", b"x", old=True)
            state.pane("oldlog", b"x", old=True, log_old=True)
            (state.root / "panes" / "not ours.d").mkdir()
            os.utime(state.root / "panes" / "not ours.d", LONG_AGO)
            assert await target.jobs.clean() == 0
            assert state.left() == ["new", "not ours.d", "young", "young/log.0"]


@SHELLS
async def test_logs_count_towards_the_limit_of_size(tmp_path: Path, shell: str) -> None:
    config = Config(jobs_max_bytes=3 << 20)
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path, config) as target:
            state = State(target.state)
            for number, uid in ((101, "aa"), (102, "bb")):
                state.pane(uid, b"x" * (2 << 20), old=True)
                state.job(number, f"panes/{uid}/log.0")
            state.pane("orphan", b"x", old=True)
            assert await target.jobs.clean() == 1
            assert state.left() == ["102", "bb", "bb/log.0"]


@SHELLS
async def test_a_job_whose_pane_went_before_its_end_goes_by_its_age(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path, Config()) as target:
            state = State(target.state)
            state.pane("aa", b"x", old=True)
            state.job(101, "panes/aa/log.0", ended=False, old=True)
            state.pane("bb", b"x", old=True)
            state.job(102, "panes/bb/log.0", ended=False)
            running = await target.run("sleep 88", wait=False)
            for file in state.root.glob(f"jobs/{running.job_id}.*"):
                os.utime(file, LONG_AGO)
            assert await target.jobs.clean() == 1
            assert state.left() == sorted([running.job_id or "", "102", "bb", "bb/log.0"])
            await target.jobs.kill(running.job_id or "")
