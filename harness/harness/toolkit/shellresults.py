"""A command's outcome as a result for a model: what happened first, then everything that it wrote."""

from __future__ import annotations

import codecs
from collections.abc import Collection
from typing import Literal

from ..command import LiveView
from ..results import ShellResult, Status
from .context import ToolContext
from .contract import OutputLimit
from .events import JobStarted
from .limits import BLOCK_LIMIT, cut
from .values import Json, ToolResult

__all__ = ["note_job", "progress_of", "shell_result"]

CODES = {
    Status.TIMED_OUT: "timed_out",
    Status.INTERRUPTED: "interrupted",
    Status.UNKNOWN: "unknown",
}
"""The results of commands that did not come to an end of their own."""
SHOWN = OutputLimit(BLOCK_LIMIT, BLOCK_LIMIT // 2)
"""How much of each stream is in the data, which some clients are sent whole."""


def shell_result(done: ShellResult, *, success: Collection[int] = (0,)) -> ToolResult:
    """The result. A command that goes on is none of the errors: its job can be asked later. Pure.

    Args:
        success: the exit codes that are no error.
    """
    text = "\n".join([_headline(done), *_streams(done), *(f"notice: {notice}" for notice in done.notices)])
    code = CODES.get(done.status, "" if done.exit_code is None or done.exit_code in success else "exit_code")
    return ToolResult.failure(code, text, data=_data(done)) if code else ToolResult.of(text, data=_data(done))


def _headline(done: ShellResult) -> str:
    if done.exit_code is not None and done.status not in CODES:
        return f"exit code: {done.exit_code}"
    job = f"job {done.job_id}" if done.job_id else "the command"
    return {
        Status.RUNNING: f"{job} goes on running",
        Status.TIMED_OUT: f"ended at its time limit, after {done.duration:.0f} s",
        Status.INTERRUPTED: "interrupted",
    }.get(done.status, f"the outcome of {job} is unknown: it may have happened; look before you repeat it")


def _streams(done: ShellResult) -> list[str]:
    found = [
        f"{name}:\n{text.removesuffix(chr(10))}"
        for name, text in (("stdout", done.stdout), ("stderr", done.stderr))
        if text
    ]
    if done.truncated:
        job = f"job {done.job_id}" if done.job_id else "the job"
        found.append(f"[{done.truncated} bytes of output were left out; {job} has all of it]")
    return found or ["(no output)"]


def _data(done: ShellResult) -> Json:
    return {
        "status": str(done.status),
        "exit_code": done.exit_code,
        "stdout": cut(done.stdout, SHOWN),
        "stderr": cut(done.stderr, SHOWN),
        "truncated": done.truncated,
        "seconds": round(done.duration, 3),
        "job_id": done.job_id,
        "pane": done.pane,
        "notices": list(done.notices),
    }


def note_job(done: ShellResult, ctx: ToolContext) -> None:
    """Tell the ledger which job did the work, and everybody when it goes on."""
    if done.job_id:
        ctx.started_job(done.job_id)
    if done.job_id and done.status in (Status.RUNNING, Status.UNKNOWN):
        ctx.publish(JobStarted(job_id=done.job_id, command=ctx.redactor.text(done.command)))


def progress_of(ctx: ToolContext, stream: Literal["stdout", "stderr"] = "stdout") -> LiveView:
    """What shows a command's output as it comes: for ``on_output``, and for ``on_stderr``."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(chunk: bytes) -> None:
        if text := decoder.decode(chunk):
            ctx.progress(text, stream)

    def skipped(_count: int) -> None:
        decoder.reset()
        ctx.skip_progress(stream)

    return LiveView(show, skipped)
