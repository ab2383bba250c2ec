"""The separate streams of a command in a pane (``tty=False``): files on the target, of which head and tail are had."""

from __future__ import annotations

from dataclasses import replace

from harness.results import ShellResult

from ..posix.joboutput import read_output
from ..posix.shell import HeldShell
from ..posix.state import JobStore
from .job import PaneJob

__all__ = ["with_streams"]


async def with_streams(shell: HeldShell, store: JobStore, job: PaneJob) -> ShellResult:
    """The job as it stands, with what its streams hold now, each within the command's limit."""
    out, err = store.path(job.job_id, "out"), store.path(job.job_id, "err")
    found = await read_output(shell.transport, shell, out, err, job.command.max_output)
    result = job.result(stdout=found.stdout.data, stderr=found.stderr.data)
    return replace(result, truncated=found.stdout.omitted + found.stderr.omitted)
