"""Commands in a pane on a target whose disk is full: their records are in memory, and nothing runs twice."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.disks import small_disk

import harness
from harness.config import Config
from harness.errors import NoSpace
from harness.results import Status
from harness_backends.tmux.jobs.pane_job import PaneJob
from harness_backends.tmux.jobs.runner import PaneRunner
from harness_backends.tmux.pane.pane_state import Pane

pytestmark = pytest.mark.usefixtures("needs_root", "needs_tmux")

SOCKET = "hx-full-disk"
NOTICE = "the target's disk is full: the job's record is in its memory"
Full = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Full]:
    """A small disk with the state directory."""
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    with small_disk(state) as fill:
        yield fill
        subprocess.run(["tmux", "-L", SOCKET, "kill-server"], capture_output=True)


@asynccontextmanager
async def pane() -> AsyncIterator[harness.ExecutionContext]:
    async with harness.connect("local:", tmux=True, config=Config(tmux_socket=SOCKET)) as context:
        yield context


def in_memory(tmp_path: Path, job_id: str | None) -> bool:
    return (tmp_path / f"state/harness/jobs/{job_id}.cmd").is_symlink()


async def test_a_command_in_a_pane_runs_and_its_record_is_in_memory(full: Full, tmp_path: Path) -> None:
    async with pane() as context:
        assert (await context.run_shell("echo before")).notices == ()
        with full():
            for number in (1, 2):
                result = await context.run_shell(f"echo x >> {tmp_path}/ran; seq 1 2000; (exit {number})")
                assert (result.status, result.exit_code) == (Status.COMPLETED, number)
                assert result.stdout.splitlines() == [str(line) for line in range(1, 2001)]
                assert [notice.startswith(NOTICE) for notice in result.notices] == [True]
                assert in_memory(tmp_path, result.job_id)
            given = await context.run_shell("cat; echo err >&2", stdin=b"in\n", tty=False)
            assert (given.stdout, given.stderr) == ("in\n", "err\n")
            async with pane() as other:
                job = await other.job(result.job_id or "")
                assert (job.status, job.exit_code) == (Status.COMPLETED, 2)
        assert (tmp_path / "ran").read_text() == "x\n" * 2
        after = await context.run_shell("echo after")
        assert (after.stdout, after.notices) == ("after\n", ())
        assert not in_memory(tmp_path, after.job_id)


async def test_a_running_command_is_killed_by_another_process(full: Full) -> None:
    async with pane() as context:
        await context.run_shell("true")
        with full():
            running = await context.run_shell("sleep 1000", timeout=1.0)
            assert running.status is Status.RUNNING
            async with pane() as other:
                with anyio.fail_after(60):
                    killed = await other.kill(running.job_id or "")
            assert killed.status is Status.INTERRUPTED


async def test_a_command_with_a_key_is_refused_and_its_key_is_free(full: Full, tmp_path: Path) -> None:
    async with pane() as context:
        await context.run_shell("true")
        with full(), pytest.raises(NoSpace, match="nothing ran"):
            await context.run_shell(f"echo x >> {tmp_path}/ran", key="once")
        assert not (tmp_path / "ran").exists()
        assert (await context.run_shell(f"echo x >> {tmp_path}/ran", key="once")).ok
        assert (tmp_path / "ran").read_text() == "x\n"


async def test_a_command_in_memory_waits_for_another_harness_and_keeps_its_files(
    full: Full, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, held = PaneRunner._send, list[str]()

    async def hold_once(runner: PaneRunner, pane: Pane, job: PaneJob, *rest: Any) -> str | None:
        if in_memory(tmp_path, job.job_id) and not held:
            held.append(job.job_id)
            return "1"  # as if the job of another harness had come first
        return await send(runner, pane, job, *rest)

    async with pane() as context:
        await context.run_shell("echo before")
        with full():
            monkeypatch.setattr(PaneRunner, "_send", hold_once)
            result = await context.run_shell("pwd; (exit 4)", cwd="/usr", timeout=30)
    assert held == [result.job_id]
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 4, "/usr\n"), result
