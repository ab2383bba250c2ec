"""What this process has of a job's output in its memory: to read on in it costs nothing."""

from __future__ import annotations

import time

import anyio

from harness.results import ShellResult, Status

from .job import PaneJob

__all__ = ["held_output"]

FIRST_MOMENT = 1.0
"""Seconds after its dispatch in which a job's output may begin again: a start mark comes twice."""


async def held_output(job: PaneJob, offset: int, seconds: float) -> ShellResult | None:
    """The job as it stands, with all that it wrote; None when the middle is not held, or its streams are files.

    It is waited for ``seconds`` at most until there are more than ``offset`` bytes, or it has ended.
    """
    if job.command.tty is False:
        return None
    with anyio.move_on_after(seconds):
        while not job.done.is_set() and (job.collector.total <= offset or _may_begin_again(job)):
            active = job.active
            with anyio.move_on_after(FIRST_MOMENT if _may_begin_again(job) else None):
                await active.wait()
    if job.collector.truncated or job.status is Status.UNKNOWN:  # what came after the loss of the link is in the log
        return None
    return job.result(stdout=b"") if _may_begin_again(job) else job.result()


def _may_begin_again(job: PaneJob) -> bool:
    beginning = not job.done.is_set() and not job.collector.settled
    return beginning and time.monotonic() - job.began < FIRST_MOMENT
