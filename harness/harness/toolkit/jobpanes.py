"""The pane in which a job runs, where a call names the job instead of the pane."""

from __future__ import annotations

from ..context import ExecutionContext
from ..errors import JobNotFound
from ..results import Status

__all__ = ["pane_of_job", "resolved_pane"]

PREFIX = "job:"
"""No pane has a name with a colon."""


def pane_of_job(job_id: str) -> str:
    """What stands for a job's pane in a :class:`~harness.toolkit.Subject`, until the target can be asked."""
    return f"{PREFIX}{job_id}"


async def resolved_pane(pane: str | None, execution: ExecutionContext) -> str | None:
    """The pane that is meant; the same for one that no job stands for, or whose job has ended.

    Raises:
        HarnessError: the link was lost.
    """
    if pane is None or not pane.startswith(PREFIX):
        return pane
    try:
        job = await execution.job(pane.removeprefix(PREFIX))
    except JobNotFound:
        return pane
    return job.pane or pane if job.status is Status.RUNNING else pane
