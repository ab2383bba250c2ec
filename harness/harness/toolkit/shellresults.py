"""A command's outcome as a result for a model: what happened first, then everything that it wrote."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from anyio import to_thread

from ..command import LiveView
from ..results import ShellResult, Status
from .context import ToolContext
from .contract import OutputLimit
from .events import JobStarted
from .limits import BLOCK_LIMIT, cut_ends, size_of
from .values import Json, Omitted, ShownForm, ToolResult

__all__ = ["fit_streams", "note_job", "progress_of", "shell_result", "shell_result_for"]

CODES = {
    Status.TIMED_OUT: "timed_out",
    Status.INTERRUPTED: "interrupted",
    Status.UNKNOWN: "unknown",
}
"""The results of commands that did not come to an end of their own."""
SHOWN = ShownForm(stream=(BLOCK_LIMIT, BLOCK_LIMIT // 2))
"""How much of each stream is in the data, which some clients are sent whole."""
AROUND = 1_000
"""Characters of a result around the streams: how the command ended, and notices."""
LARGE = 128 << 10
"""Bytes of an output beyond which it is made into a result in a thread, so that others are not kept waiting."""


def shell_result(done: ShellResult, *, success: Collection[int] = (0,), ctx: ToolContext | None = None) -> ToolResult:
    """The result. A command that goes on is none of the errors: its job can be asked later.

    Args:
        success: the exit codes that are no error.
        ctx: the call's. Where a profile shows the result, its streams are cut for that, once; secrets are taken out
            before.
    """
    streams = fit_streams(done, _form(ctx), ctx.redactor.text if ctx is not None else str)
    in_profile = ctx is not None and ctx.notes.faced is not None
    shown = streams if in_profile else (done.stdout, done.stderr)
    text = "\n".join([_headline(done), *_sections(*shown), *(f"notice: {notice}" for notice in done.notices)])
    code = CODES.get(done.status, "" if done.exit_code is None or done.exit_code in success else "exit_code")
    data = _data(done, *streams)
    result = ToolResult.failure(code, text, data=data) if code else ToolResult.of(text, data=data)
    return (
        replace(result, omitted=Omitted(done.truncated, _whole(done))) if done.truncated and not in_profile else result
    )


async def shell_result_for(done: ShellResult, ctx: ToolContext) -> ToolResult:
    """The result for one call, as :func:`shell_result` with ``ctx``; a large one is made in a thread."""
    if len(done.stdout_bytes) + len(done.stderr_bytes) < LARGE:
        return shell_result(done, ctx=ctx)
    return await to_thread.run_sync(partial(shell_result, done, ctx=ctx))


def _form(ctx: ToolContext | None) -> ShownForm:
    return SHOWN if ctx is None or ctx.notes.faced is None else ctx.shown


def fit_streams(done: ShellResult, form: ShownForm, redact: Callable[[str], str]) -> tuple[str, str]:
    """Standard output and standard error as far as there is room for them.

    What is left out is told once, at the last cut, with the amounts of the whole output of both streams, also of what
    the target has left out. An earlier cut is only marked.
    """
    out, err = (_redacted(text, form, redact) for text in (done.stdout, done.stderr))
    total = len(done.stdout_bytes) + len(done.stderr_bytes) + done.truncated
    room = max(0, form.room - AROUND)
    while True:
        limits = _stream_limits(out, err, form, room)
        ends = [cut_ends(text, limit) for text, limit in zip((out, err), limits, strict=True)]
        shown = _with_gaps((out, err), ends, form, total, done)
        if form.stream is not None or sum(map(form.measure, shown)) <= form.room - AROUND // 2 or room < AROUND:
            return shown
        room = room * 3 // 4


def _redacted(text: str, form: ShownForm, redact: Callable[[str], str]) -> str:
    """The text, without its secrets where it may be cut: half of one would not be known."""
    longest = form.room - AROUND if form.stream is None else form.stream[0]
    return text if form.measure(text) <= longest // 2 else redact(text)


def _stream_limits(out: str, err: str, form: ShownForm, room: int) -> tuple[OutputLimit, OutputLimit]:
    if form.stream is not None:
        return OutputLimit(*form.stream), OutputLimit(*form.stream)
    errors = min(len(err), max(room // 2, room - len(out)))
    share = form.tail / max(1, form.room)
    first, second = (OutputLimit(size, int(size * share)) for size in (room - errors, errors))
    return first, second


def _with_gaps(
    texts: tuple[str, str], ends: Sequence[tuple[int, int] | None], form: ShownForm, total: int, done: ShellResult
) -> tuple[str, str]:
    cuts = [number for number, found in enumerate(ends) if found is not None]
    if not cuts:
        note = form.gap.format(_left_out(done.truncated, total, done)) if done.truncated else ""
        return (texts[0] + note, texts[1]) if texts[0] or not texts[1] else (texts[0], texts[1] + note)
    missing = done.truncated + sum(size_of(texts[number][slice(*(ends[number] or (0, 0)))]) for number in cuts)
    shown = list(texts)
    for number in cuts:
        head, start = ends[number] or (0, 0)
        told = _left_out(missing, total, done) if number == cuts[-1] else "see below"
        shown[number] = _joined(texts[number][:head], form.gap.format(told), texts[number][start:])
    return shown[0], shown[1]


def _joined(head: str, gap: str, tail: str) -> str:
    gap = gap.removeprefix("\n") if not head or head.endswith("\n") else gap
    return head + (gap if tail else gap.removesuffix("\n")) + tail


def _left_out(missing: int, total: int, done: ShellResult) -> str:
    return f"{missing} of {total} bytes of output left out{_whole(done)}"


def _whole(done: ShellResult) -> str:
    return f"; job {done.job_id} has all of it" if done.job_id else ""


def _headline(done: ShellResult) -> str:
    if done.exit_code is not None and done.status not in CODES:
        return f"exit code: {done.exit_code}"
    job = f"job {done.job_id}" if done.job_id else "the command"
    return {
        Status.RUNNING: f"{job} goes on running",
        Status.TIMED_OUT: f"ended at its time limit, after {done.duration:.0f} s",
        Status.INTERRUPTED: "interrupted",
    }.get(done.status, f"the outcome of {job} is unknown: it may have happened; look before you repeat it")


def _sections(stdout: str, stderr: str) -> list[str]:
    named = (("stdout", stdout), ("stderr", stderr))
    return [f"{name}:\n{text.removesuffix(chr(10))}" for name, text in named if text] or ["(no output)"]


def _data(done: ShellResult, stdout: str, stderr: str) -> Json:
    return {
        "status": str(done.status),
        "exit_code": done.exit_code,
        "stdout": stdout,
        "stderr": stderr,
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
