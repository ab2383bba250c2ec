"""Waiting for a pane's job: for more of its output in memory, and for its end."""

from __future__ import annotations

import anyio
import pytest

from harness.command import Command
from harness.results import Status
from harness_backends.tmux.jobs.output_collector import OutputCollector
from harness_backends.tmux.jobs.pane_job import START_MARKER_WINDOW, PaneJob, read_buffered_output


def new_job(output: bytes = b"", *, started: bool = True, limit: int = 100, command: Command | None = None) -> PaneJob:
    job = PaneJob("7", command or Command("true"), "main", "log", 0, "nonce", OutputCollector(limit))
    if started:
        job.start()
    job.feed(output)
    return job


async def read(job: PaneJob, offset: int, seconds: float = 0.01) -> str | None:
    result = await read_buffered_output(job, offset, seconds)
    return None if result is None else result.stdout


async def test_output_beyond_the_offset_is_returned_at_once() -> None:
    with anyio.fail_after(20):
        assert await read(new_job(b"ab"), 1, 3600) == "ab"


@pytest.mark.parametrize("ended", [False, True])
async def test_without_more_output_than_the_offset_it_waits_for_some_or_for_the_end(ended: bool) -> None:
    job, found = new_job(b"ab"), list[str | None]()

    async def wait() -> None:
        found.append(await read(job, 2, 3600))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not found
            job.finish(Status.COMPLETED, 0) if ended else job.feed(b"c")
    assert found == ["ab" if ended else "abc"]


async def test_what_precedes_the_start_marker_is_no_output_while_one_may_follow() -> None:
    job = new_job(b"trace", started=False)
    assert await read(job, 0) == ""
    job.began -= START_MARKER_WINDOW
    assert await read(job, 0) == "trace"
    assert await read(new_job(b"out"), 0) == "out"


async def test_what_follows_no_start_marker_is_returned_when_none_may_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness_backends.tmux.jobs.pane_job.START_MARKER_WINDOW", 0.05)
    with anyio.fail_after(20):
        assert await read(new_job(b"trace", started=False), 0, 3600) == "trace"


async def test_the_target_is_asked_for_what_is_not_in_memory() -> None:
    assert await read(new_job(command=Command("true", tty=False)), 0) is None
    assert await read(new_job(b"x" * 100), 0) == "x" * 100
    assert await read(new_job(b"x" * 101), 0) is None, "a part of it was dropped"
    for status, held in ((Status.COMPLETED, "x"), (Status.UNKNOWN, None)):
        job = new_job(b"x")
        job.finish(status)
        assert await read(job, 0) == held


async def test_the_end_is_waited_for_while_output_arrives() -> None:
    job, returned = new_job(), anyio.Event()

    async def wait() -> None:
        await job.done_or_quiet(50)
        returned.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            for _ in range(2):
                while not job.active.statistics().tasks_waiting and not returned.is_set():  # noqa: ASYNC110  # nothing reports a waiter
                    await anyio.sleep(0.001)
                assert not returned.is_set()
                job.feed(b"x")
            job.finish(Status.COMPLETED, 0)
