"""The result of a command whose caller was interrupted: its status and output so far, as the host has them."""

from __future__ import annotations

import anyio

from ..context import ExecutionContext
from ..errors import HarnessError, JobNotFound
from ..results import ShellResult, Status
from .starting import HostNotStarted

__all__ = ["result_of_interrupted"]

ANSWER_TIMEOUT = 2.0
"""Seconds for a host to report the result; a host that is unresponsive must not delay the end for long."""
NOTICE = "interrupted, but the end of the command is not confirmed; check it with: harness jobs show {}"


async def result_of_interrupted(
    context: ExecutionContext, job_id: str | None, *, command: str, max_output: int
) -> ShellResult:
    """Return the result so far of a command that was cancelled.

    Args:
        context: The host.
        job_id: The command's job; None if it was not sent.
        command: The command.
        max_output: Maximum bytes of the output.

    Returns:
        The result, mostly ``interrupted``; ``unknown`` if the host does not answer, ``running`` if it was not ended.

    Raises:
        HostNotStarted: The command was not sent.
    """
    found: ShellResult | None = None
    if job_id is None:
        raise HostNotStarted("not started: interrupted")
    try:
        with anyio.move_on_after(ANSWER_TIMEOUT):
            found = await context.wait(job_id, timeout=0, max_output=max_output)
    except JobNotFound:
        raise HostNotStarted("not started: interrupted") from None
    except HarnessError:
        pass
    return found or ShellResult(command, Status.UNKNOWN, job_id=job_id, notices=(NOTICE.format(job_id),))
