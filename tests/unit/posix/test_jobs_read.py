"""Parts of what a job has written: from a byte of each stream on, around what was not kept, in every shell."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.job_targets import SHELLS, JobTarget, open_job_target

from harness.errors import JobNotFound
from harness.results import JobOutput, Status
from harness_backends.posix.jobs.output import INLINE, HeadTail
from harness_backends.posix.jobs.output_reader import parse_parts


@pytest.fixture(params=SHELLS)
async def target(needs_process: None, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JobTarget]:
    async with open_job_target(request.param, tmp_path) as opened:
        yield opened


async def read(
    target: JobTarget, job: str, out: int = 0, err: int = 0, limit: int = 1000, wait: float = 0
) -> JobOutput:
    with anyio.fail_after(60):
        return await target.jobs.read(job, out, err, limit, wait)


async def test_each_stream_is_read_from_its_own_byte(target: JobTarget) -> None:
    done = await target.run("printf 'a\\000b\\nc'; printf 'bad\\377' >&2; exit 3")
    job = done.job_id or ""
    whole = await read(target, job)
    assert (whole.stdout.data, whole.stderr.data, whole.job.exit_code) == (b"a\0b\nc", b"bad\xff", 3)
    part = await read(target, job, 2, 3, 2)
    assert (part.stdout.data, part.stdout.start, part.stdout.end, part.stdout.size) == (b"b\n", 2, 4, 5)
    assert (part.stderr.data, part.stderr.end, part.stderr.size) == (b"\xff", 4, 4)
    beyond = await read(target, job, 99, 4)
    assert (beyond.stdout.data, beyond.stdout.start, beyond.stdout.size, beyond.stderr.data) == (b"", 5, 5, b"")
    nothing = await read(target, job, limit=0)
    assert (nothing.stdout.data, nothing.stdout.size) == (b"", 5)
    with pytest.raises(JobNotFound):
        await read(target, "999999")


async def test_it_waits_for_more_of_either_stream_and_for_the_end(target: JobTarget) -> None:
    for gate in ("one", "two"):
        os.mkfifo(target.home / gate)
    command = f"echo a; read x <{target.home}/one; echo bad >&2; read x <{target.home}/two; exit 4"
    job = (await target.run(command, wait=False)).job_id or ""
    first = await read(target, job, wait=60)
    assert (first.stdout.data, first.stderr.data, first.job.status) == (b"a\n", b"", Status.RUNNING)
    for gate, expected in (("one", b"bad\n"), ("two", b"")):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, (target.home / gate).write_text, "\n")
            more = await read(target, job, 2, 4 if gate == "two" else 0, wait=60)
        assert (more.stdout.data, more.stderr.data) == (b"", expected)
    assert more.job.exit_code == 4
    with anyio.fail_after(60):
        assert (await target.jobs.read(job, 2, 4, 10, 3600)).job.exit_code == 4  # it has ended: nothing is waited for


async def test_what_was_not_kept_is_passed_over_and_counted(target: JobTarget) -> None:
    job = (await target.run("true")).job_id or ""
    out = target.state / "jobs" / f"{job}.out"
    out.write_bytes(b"h" * 100 + bytes(1000) + b"t" * 200)
    (target.state / "jobs" / f"{job}.outgap").write_text("100 1000\n")
    head = await read(target, job, 50)
    assert (head.stdout.data, head.stdout.lost, head.stdout.end, head.stdout.size) == (b"h" * 50, 0, 100, 1300)
    tail = await read(target, job, 100)
    assert (tail.stdout.data, tail.stdout.start, tail.stdout.lost) == (b"t" * 200, 1100, 1000)
    middle = await read(target, job, 600, limit=5)
    assert (middle.stdout.data, middle.stdout.lost, middle.stdout.end) == (b"t" * 5, 500, 1105)
    assert (await read(target, job, 1250)).stdout.data == b"t" * 50
    (target.state / "jobs" / f"{job}.err").write_bytes(b"x" * 1300)  # the other stream was not cut
    assert (await read(target, job, limit=2000)).stderr.data == b"x" * 1300


async def test_a_stream_that_somebody_removed_is_not_taken_for_an_empty_one(target: JobTarget) -> None:
    empty, job = [(await target.run(command)).job_id or "" for command in ("true", "echo one")]
    assert not (await read(target, empty)).stdout.gone
    (target.state / "jobs" / f"{job}.out").unlink()
    part = await read(target, job)
    assert (part.stdout.data, part.stdout.gone, part.stderr.gone) == (b"", True, False)
    running = (await target.run("sleep 4000", wait=False)).job_id or ""
    (target.state / "jobs" / f"{running}.out").unlink(missing_ok=True)
    assert not (await read(target, running)).stdout.gone
    await target.jobs.kill(running, "KILL", 1)


async def test_a_part_is_never_longer_than_what_a_frame_may_hold(target: JobTarget) -> None:
    job = (await target.run(f"head -c {INLINE + 5000} /dev/zero")).job_id or ""
    part = await read(target, job, limit=INLINE * 4)
    assert (len(part.stdout.data), part.stdout.size) == (INLINE, INLINE + 5000)
    rest = await read(target, job, part.stdout.end, limit=INLINE)
    assert len(rest.stdout.data) == 5000


def test_an_answer_that_is_none_is_nothing() -> None:
    for text in (b"", b"\n", b"x", b"1 2\n"):
        assert parse_parts(text, text)[0].data == b""


@given(st.binary(max_size=60), st.integers(0, 20), st.integers(0, 70), st.integers(1, 20))
def test_a_stream_of_which_head_and_tail_are_held_is_read_around_the_gap(
    data: bytes, limit: int, start: int, most: int
) -> None:
    held = HeadTail(limit)
    held.feed(data)
    kept, found, at, lost = held.kept(), b"", start, 0
    while (part := held.part(at, most)).data:
        assert part.data == data[part.start : part.end]
        assert (len(part.data) <= most, part.size) == (True, len(data))
        found, at, lost = found + part.data, part.end, lost + part.lost
    assert found == (data[start:] if not kept.omitted else found)
    if start == 0:
        assert (found, lost if kept.data[held._head_limit :] else kept.omitted) == (kept.data, kept.omitted)
