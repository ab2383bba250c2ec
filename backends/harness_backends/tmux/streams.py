"""The separate streams of a command in a pane (``tty=False``): files on the target, which ``hooks/apart.sh`` fills."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import replace

import anyio

from harness.command import LiveView
from harness.errors import HarnessError, OutputDropped
from harness.results import ShellResult

from ..posix.jobs.output import Gap, not_kept, read_output, split_gap
from ..posix.log_limit import GAP, MIN_LOG_LIMIT
from ..posix.persistent_shell import PersistentShell
from ..posix.state_directory import JobStore
from .job import PaneJob

__all__ = ["keep_limit", "report_streams", "with_streams"]

CHUNK = 128 << 10
"""Bytes of one stream that are read at once."""
SHOWN_END = 64 << 10
"""Bytes of the end that a :class:`LiveView` gets when the command has ended and more is to come."""
RETRY = 1.0

# OUT_, ERR_: the files; $a, $b: the bytes that were had. Prints how much follows of each, how much is left, and that;
# and in two lines what is missing of each as it is then.
_NEXT = f"""{GAP}
o=$(($(wc -c <OUT_)-a)) e=$(($(wc -c <ERR_)-b)) n=$o m=$e
[ "$n" -le LIMIT_ ] || n=LIMIT_
[ "$m" -le LIMIT_ ] || m=LIMIT_
echo "$n $m $o $e"
[ "$n" -le 0 ] || tail -c "+$((a+1))" OUT_ | head -c "$n"
[ "$m" -le 0 ] || tail -c "+$((b+1))" ERR_ | head -c "$m"
for hx_f in OUT_ ERR_; do hx_gap "$hx_f"; printf '\\n%s %s\\n' "$hx_hole" "$hx_lost"; done
"""


async def with_streams(shell: PersistentShell, store: JobStore, job: PaneJob) -> ShellResult:
    """Return the job's result with its streams so far, each within the command's limit."""
    out, err = store.path(job.job_id, "out"), store.path(job.job_id, "err")
    found = await read_output(shell.transport, shell, out, err, job.command.max_output)
    result = job.result(stdout=found.stdout.data, stderr=found.stderr.data)
    omitted = found.stdout.omitted + found.stderr.omitted
    notices = (*not_kept(found.stdout.gap, "stdout"), *not_kept(found.stderr.gap, "stderr"))
    return replace(result, truncated=omitted, notices=(*result.notices, *notices))


async def keep_limit(shell: PersistentShell, job: PaneJob, limit: int) -> None:
    """Have the target keep the files of a job with separate streams within the limit, also without us.

    Args:
        shell: where the files are.
        limit: in bytes, for each stream.
    """
    if job.command.tty is False:
        with suppress(HarnessError):  # the link is down: what was typed runs, and its end is waited for
            await shell.call(f"hx_limit {job.job_id} {max(MIN_LOG_LIMIT, limit)}")


async def report_streams(shell: PersistentShell, store: JobStore, job: PaneJob, poll: float | None = None) -> None:
    """Give the callbacks of a job with separate streams what is written, as it arrives, until all of it was given.

    Args:
        poll: seconds after which the files are looked at; without it that is done when the pane shows more of them.
    """
    if not job.reports_streams:
        return
    had = [0, 0]
    try:
        while True:
            ended, active = job.done.is_set(), job.active
            try:
                found = await _read_next(shell, store, job, had)
            except OutputDropped:
                raise
            except HarnessError:  # the link is down: while the command runs it may come back
                found = None
                await anyio.sleep(RETRY)
            more = found is not None and _report(job, had, *found, ended=ended)
            if ended and not more:
                return
            if not more:
                with anyio.move_on_after(poll):
                    await active.wait()
    except Exception as error:  # whatever a callback raises is for who gave it
        job.fail(error)
    finally:
        job.reported.set()


async def _read_next(
    shell: PersistentShell, store: JobStore, job: PaneJob, had: list[int]
) -> tuple[tuple[bytes, bytes], tuple[int, int]] | None:
    """What follows in both files, and how much there is of it; None while they are not there."""
    script = f"a={had[0]} b={had[1]}{_NEXT}".replace("LIMIT_", str(CHUNK))
    for name, suffix in (("OUT_", "out"), ("ERR_", "err")):
        script = script.replace(name, shlex.quote(store.path(job.job_id, suffix)))
    reply = await shell.call(f"{{ {script}}} 2>/dev/null")
    head, _, rest = reply.stdout.partition(b"\n")
    rest, err_gap = split_gap(rest)
    data, out_gap = split_gap(rest)
    words = head.split()
    if len(words) != 4 or out_gap is None or err_gap is None:
        return None
    out, err, out_left, err_left = (max(0, int(word)) for word in words)
    _check_kept(job, shell, had, (out_gap, err_gap), (out, err))
    return (data[:out], data[out : out + err]), (out_left, err_left)


def _check_kept(
    job: PaneJob, shell: PersistentShell, had: list[int], gaps: tuple[Gap, Gap], sizes: tuple[int, int]
) -> None:
    """Refuse bytes that were taken out of a stream before they were read.

    Raises:
        OutputDropped: as for a job without a terminal.
    """
    for name, start, gap, size in zip(("stdout", "stderr"), had, gaps, sizes, strict=True):
        if gap.start < start + size and start < gap.end:
            raise OutputDropped(
                f"bytes {gap.start} to {gap.end} of {name} of job {job.job_id} were dropped:"
                " it exceeded job_log_max_bytes before it was read",
                start=gap.start,
                end=gap.end,
                target=shell.transport.target,
                hint=f"show the stored output and the exit code with: harness jobs wait {job.job_id}",
            )


def _report(job: PaneJob, had: list[int], parts: tuple[bytes, bytes], left: tuple[int, int], *, ended: bool) -> bool:
    """Give the callbacks one part; True when there is more to read at once."""
    command, more = job.command, False
    callbacks = (command.on_output, command.on_stderr or command.on_output)
    for index, (callback, part, there) in enumerate(zip(callbacks, parts, left, strict=True)):
        if part and callback is not None:
            callback(part)
        had[index] += len(part)
        rest = there - len(part)
        if ended and isinstance(callback, LiveView) and rest > SHOWN_END:
            callback.skipped(rest - SHOWN_END)
            had[index] += rest - SHOWN_END
        more = more or rest > 0
    return more
