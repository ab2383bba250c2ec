"""Access to a job's output in this process's memory, without a round trip."""

from __future__ import annotations

import time
from typing import Any

import anyio

from harness.results import ShellResult, Status

from .job import PaneJob

__all__ = ["forget_jobs", "read_buffered_output"]

MAX_HELD_JOBS = 100
MAX_HELD_BYTES = 8 << 20
"""Bytes of ended commands' output that stay in memory; older output is read from the target."""

START_MARKER_WINDOW = 1.0
"""Seconds after its dispatch in which a second start marker may restart a job's output."""


def forget_jobs(jobs: dict[str, tuple[Any, PaneJob]]) -> None:
    """Drop the oldest ended jobs beyond the limits."""
    while len(jobs) > MAX_HELD_JOBS:
        del jobs[next(iter(jobs))]
    held = {job_id: job.collector.held for job_id, (_, job) in jobs.items()}
    total = sum(held.values())
    for job_id, size in held.items():
        if total <= MAX_HELD_BYTES:
            return
        if jobs[job_id][1].done.is_set():
            del jobs[job_id]
            total -= size


async def read_buffered_output(job: PaneJob, offset: int, seconds: float) -> ShellResult | None:
    """Return the job's buffered output, waiting at most ``seconds`` for more than ``offset`` bytes or its end.

    Returns:
        The result so far, or None if the output was truncated or goes to files.
    """
    if job.command.tty is False:
        return None
    with anyio.move_on_after(seconds):
        while not job.done.is_set() and (job.collector.total <= offset or _may_restart(job)):
            active = job.active
            with anyio.move_on_after(START_MARKER_WINDOW if _may_restart(job) else None):
                await active.wait()
    if job.collector.truncated or job.status is Status.UNKNOWN:  # output after a lost connection is in the log
        return None
    return job.result(stdout=b"") if _may_restart(job) else job.result()


def _may_restart(job: PaneJob) -> bool:
    beginning = not job.done.is_set() and not job.collector.settled
    return beginning and time.monotonic() - job.began < START_MARKER_WINDOW
