"""The log limit of jobs without a terminal: kept by the target itself, and never at the cost of a reader's bytes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.job_targets import JobTarget, open_job_target

from harness import Status
from harness.command import LiveView
from harness.config import Config
from harness.errors import OutputDropped
from harness_backends.posix.jobs.follow import JobFollower

pytestmark = pytest.mark.usefixtures("needs_process")

LIMIT = 2 << 20
TIME = 60
SHELLS = ("dash", "bash", "mksh", "busybox")


@pytest.fixture
async def limited(tmp_path: Path) -> AsyncIterator[JobTarget]:
    with anyio.fail_after(TIME):
        async with open_job_target("dash", tmp_path, Config(job_log_max_bytes=LIMIT)) as target:
            yield target


def on_disk(state: Path, job_id: str | None) -> int:
    """What the longer one of its streams takes."""
    sizes = [0]
    for path in (state / "jobs").glob(f"{job_id}.[oe]*"):
        with suppress(FileNotFoundError):  # a file that was just renamed
            sizes.append(path.stat().st_blocks * 512)
    return max(sizes)


def size_of(state: Path, job_id: str | None) -> int:
    """How long the longer one is, with what the limit has taken out of it."""
    return max(path.stat().st_size for path in (state / "jobs").glob(f"{job_id}.[oe]*"))


async def until_small(state: Path, job_id: str | None) -> None:
    """Nothing but the file system tells of it."""
    while on_disk(state, job_id) > LIMIT + 65536:  # noqa: ASYNC110  # another process makes it true
        await anyio.sleep(0.05)


def pattern(size: int) -> bytes:
    """What :data:`COUNT` writes; a thousand lines at a time, as there are millions of them."""
    lines = b"".join(b"@%03d\n" % number for number in range(1000))
    return b"".join(lines.replace(b"@", b"%06d" % number) for number in range(size // 10_000 + 1))[: size // 10 * 10]


COUNT = "awk 'BEGIN {{ for (i = 0; i < {lines}; i++) printf \"%09d\\n\", i }}'"


@pytest.mark.parametrize("shell", SHELLS)
async def test_the_target_keeps_the_limit_when_no_harness_is_there(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path, Config(job_log_max_bytes=LIMIT)) as target:
            gate, written = target.home / "gate", target.home / "written"
            os.mkfifo(gate)
            flood = "head -c 30000000 /dev/zero >&2; head -c 20000000 /dev/zero"
            job_id = (await target.run(f"{flood}; : >{written}; read x <{gate}; echo end; exit 3", wait=False)).job_id
            state = target.state
        while not written.exists():  # noqa: ASYNC110  # another process makes it
            await anyio.sleep(0.05)
        await until_small(state, job_id)
        await anyio.to_thread.run_sync(gate.write_text, "on\n")
        async with open_job_target(shell, tmp_path, Config(job_log_max_bytes=LIMIT)) as other:
            result = await other.jobs.wait(job_id or "", 30, 1 << 30)
    assert (result.status, result.exit_code) == (Status.COMPLETED, 3)
    assert result.stdout_bytes.endswith(b"end\n")
    assert 0 < len(result.stdout_bytes) + len(result.stderr_bytes) <= 2 * LIMIT + 4
    assert len(result.stdout_bytes) + len(result.stderr_bytes) + result.truncated == 50_000_004
    assert sum("dropped" in notice for notice in result.notices) == 2, result.notices


async def test_the_limit_is_kept_from_the_first_moment_of_a_waited_command(limited: JobTarget) -> None:
    """Without a word from harness: it may have been killed as soon as it had sent the command."""
    gate = limited.home / "gate"
    os.mkfifo(gate)
    for _ in range(3):
        await limited.run("true")  # the next ones run in a shell that waited for them
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(limited.run, f"head -c 30000000 /dev/zero; read x <{gate}")
        while not (files := [path for path in (limited.state / "jobs").glob("*.out") if path.stat().st_size > 1 << 20]):  # noqa: ASYNC110  # another process makes it true
            await anyio.sleep(0.01)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limited.shell, "submit", None)  # nothing more is sent
            await until_small(limited.state, files[0].stem)
        await anyio.to_thread.run_sync(gate.write_text, "on\n")


def limiters_of(state: Path) -> list[Path]:
    """The processes, as /proc has them, that work in the directory of the jobs; commands work in the home directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "cwd") == str(state / "jobs"):
                found.append(process)
    return found


async def test_a_limiter_that_was_killed_is_replaced_with_the_next_command(limited: JobTarget) -> None:
    await limited.run("true")
    await limited.shell.call(":")  # the limiter is started after the command
    while not (found := limiters_of(limited.state)):  # noqa: ASYNC110  # it cannot signal us
        await anyio.sleep(0.01)
    for limiter in found:  # and its timer
        os.kill(int(limiter.name), signal.SIGKILL)
    limiter = found[0]
    while limiter.exists() and limiter.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z":  # noqa: ASYNC110  # it cannot signal us
        await anyio.sleep(0.01)
    await limited.run("true")
    job_id = (await limited.run("head -c 30000000 /dev/zero; sleep 60", wait=False)).job_id
    while size_of(limited.state, job_id) < 1 << 20:  # noqa: ASYNC110  # another process makes it true
        await anyio.sleep(0.01)
    await until_small(limited.state, job_id)
    await limited.jobs.kill(job_id or "", "KILL", 1)


async def test_the_limit_is_kept_in_a_state_directory_that_was_made_again(limited: JobTarget) -> None:
    await limited.run("true")
    shutil.rmtree(limited.state)
    await limited.run("true")
    job_id = (await limited.run("head -c 30000000 /dev/zero; sleep 60", wait=False)).job_id
    while size_of(limited.state, job_id) < 1 << 20:  # noqa: ASYNC110  # another process makes it true
        await anyio.sleep(0.01)
    await until_small(limited.state, job_id)
    await limited.jobs.kill(job_id or "", "KILL", 1)


class Slow:
    """A callback that blocks harness, event loop and all, until the command has ended."""

    def __init__(self, ended: Path) -> None:
        self._ended = ended
        self.pieces: list[bytes] = []
        self.passed = 0

    def __call__(self, data: bytes) -> None:
        while not (self._ended.exists() and self._ended.stat().st_size):
            time.sleep(0.01)
        self.pieces.append(data)

    def skipped(self, count: int) -> None:
        self.passed += count

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


def next_exit(target: JobTarget) -> Path:
    """The exit file of the job to come; nothing else takes ids of this target."""
    return target.state / "jobs" / "1.exit"


def until_dropped(target: JobTarget) -> str:
    """Shell text that waits until the limit has taken something out of the output of the job to come."""
    size = f"du -k {target.state}/jobs/1.out | cut -f 1"
    return f'until [ "$({size})" -lt {5 * LIMIT // 1024} ]; do sleep 0.1; done'


async def test_what_a_live_reader_has_not_read_stays_up_to_four_times_the_limit(limited: JobTarget) -> None:
    slow, size = Slow(next_exit(limited)), 3 * LIMIT
    result = await limited.run(COUNT.format(lines=size // 10), on_output=slow, timeout=60)
    assert (result.status, result.exit_code) == (Status.COMPLETED, 0)
    assert slow.data == pattern(size)


async def test_it_stays_also_between_the_end_of_the_live_reader_and_the_reading_of_the_rest(
    limited: JobTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver_rest = JobFollower.deliver_rest

    async def late(*arguments: Any) -> None:
        await anyio.sleep(2)  # as on a busy machine; the files are looked at twice a second
        await deliver_rest(*arguments)

    monkeypatch.setattr(JobFollower, "deliver_rest", late)
    slow, size = Slow(next_exit(limited)), 3 * LIMIT
    await limited.run(COUNT.format(lines=size // 10), on_output=slow, timeout=60)
    assert slow.data == pattern(size)
    await until_small(limited.state, "1")
    while list((limited.state / "run").glob("reader.*")):  # noqa: ASYNC110  # the limiter removes them
        await anyio.sleep(0.05)


async def test_output_that_outruns_its_reader_ends_with_an_error_and_is_exact_until_there(limited: JobTarget) -> None:
    slow, size = Slow(next_exit(limited)), 30 * LIMIT
    with pytest.raises(OutputDropped, match="of the output of job 1 were dropped") as caught:
        await limited.run(f"{COUNT.format(lines=size // 10)}; {until_dropped(limited)}", on_output=slow, timeout=60)
    whole, half = pattern(size), LIMIT // 2
    assert 0 < len(slow.data) == caught.value.start < caught.value.end
    assert whole.startswith(slow.data)
    kept = await limited.jobs.wait("1", 20, 1 << 30)
    assert (kept.status, kept.exit_code) == (Status.COMPLETED, 0), "the command was not stopped"
    assert kept.stdout_bytes == whole[:half] + whole[size - half :]
    assert kept.truncated == size - LIMIT
    assert kept.notices == (f"bytes {half} to {size - half} of stdout were dropped (job_log_max_bytes)",)


async def test_a_view_skips_what_was_dropped_and_the_command_has_its_result(limited: JobTarget) -> None:
    slow, size = Slow(next_exit(limited)), 30 * LIMIT
    command = f"{COUNT.format(lines=size // 10)}; {until_dropped(limited)}; exit 4"
    result = await limited.run(command, on_output=LiveView(slow, slow.skipped), timeout=60)
    assert (result.status, result.exit_code) == (Status.COMPLETED, 4)
    assert (len(slow.data) + slow.passed, b"\0" in slow.data) == (size, False)


async def test_a_view_that_fails_at_what_was_dropped_ends_the_command(limited: JobTarget) -> None:
    def fails(count: int) -> None:
        raise ZeroDivisionError(count)

    dropped, size = limited.state / "dropped", 30 * LIMIT
    command = f"{COUNT.format(lines=size // 10)}; {until_dropped(limited)}; echo x >{dropped}; exec sleep 1000"
    with anyio.fail_after(60), pytest.raises(ZeroDivisionError):
        await limited.run(command, on_output=LiveView(Slow(dropped), fails), timeout=900)
    assert (await limited.jobs.get("1")).status is Status.INTERRUPTED


async def test_following_a_job_stops_at_what_was_not_kept_and_can_go_on_behind_it(limited: JobTarget) -> None:
    size = 5 * LIMIT
    job_id = (await limited.run(COUNT.format(lines=size // 10), timeout=60)).job_id or ""
    await until_small(limited.state, job_id)
    found: list[bytes] = []

    async def follow() -> None:
        async for data in limited.jobs.follow(job_id):
            found.append(data)  # what came before the error is looked at

    with pytest.raises(OutputDropped) as caught:
        await follow()
    gap = caught.value
    assert b"".join(found) == pattern(size)[: gap.start]
    assert b"".join([data async for data in limited.jobs.follow(job_id, gap.end)]) == pattern(size)[gap.end :]
    with pytest.raises(OutputDropped) as again:
        await anext(aiter(limited.jobs.follow(job_id, gap.start + 5)))
    assert (again.value.start, again.value.end) == (gap.start + 5, gap.end)


async def test_each_stream_has_a_gap_of_its_own(limited: JobTarget) -> None:
    size = 4_000_000
    count = COUNT.format(lines=size // 10)
    job_id = (await limited.run(f"{count} >&2; echo whole; {count} >&2", timeout=60)).job_id or ""
    await until_small(limited.state, job_id)
    kept = await limited.jobs.wait(job_id, 5, 1 << 30)
    assert kept.stdout_bytes == b"whole\n"
    assert kept.stderr_bytes == (pattern(size) + pattern(size))[: LIMIT // 2] + pattern(size)[size - LIMIT // 2 :]
    part = (await limited.jobs.read(job_id, 0, LIMIT, 100, 0)).stderr
    assert part.lost == 2 * size - LIMIT // 2 - LIMIT
    assert (pattern(size) * 2)[part.start :].startswith(part.data)


async def test_nothing_is_left_running_or_lying_about(tmp_path: Path) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target("dash", tmp_path, Config(job_log_max_bytes=LIMIT)) as target:
            pieces: list[bytes] = []
            await target.run("echo a; sleep 0.2; echo b", on_output=pieces.append)
            held = (await target.shell.call("echo $$")).text.strip()
            state = target.state
        while Path(f"/proc/{held}").exists() or any((state / "run").iterdir()):  # noqa: ASYNC110  # nothing tells of it
            await anyio.sleep(0.05)
