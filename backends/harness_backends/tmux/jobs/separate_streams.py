"""The separate streams of a command in a pane (``tty=False``): files, written by ``hooks/separate_streams.sh``."""

from __future__ import annotations

import shlex
from contextlib import suppress

import anyio

from harness.command import LiveView
from harness.errors import HarnessError, OutputDropped
from harness.results import ShellResult

from ...posix.jobs.log_limit import GAP, MIN_LOG_LIMIT
from ...posix.jobs.output import Gap, read_output, split_gap, with_output
from ...posix.persistent_shell import PersistentShell
from ...posix.state_directory import JobStore
from .pane_job import PaneJob

__all__ = ["keep_limit", "report_streams", "with_streams"]

CHUNK = 128 << 10
"""Maximum bytes of one stream that are read at once."""
SHOWN_END = 64 << 10
"""Maximum bytes that a :class:`LiveView` receives after the command has ended: the end of the stream."""
LIMIT_TIMEOUT = 5.0
"""Seconds to wait until the limit of a job's files works."""
RETRY = 1.0

# OUT_, ERR_: the files; $a, $b: the bytes read so far. Prints the size of the next part and of all unread data of each,
# the parts, and then in two lines the current gap of each.
_NEXT = f"""{GAP}
o=$(($(wc -c <OUT_)-a)); e=$(($(wc -c <ERR_)-b)); n=$o m=$e
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
    return with_output(job.result(), found)


async def keep_limit(shell: PersistentShell, job: PaneJob, limit: int) -> None:
    """Start a limit on the target for the files of a job with separate streams, which works without a connection.

    The job's command has been typed. So a cancellation does not end this, but reaches the caller once it can kill it.

    Args:
        shell: the persistent shell where the files are.
        limit: in bytes, for each stream.
    """
    if job.command.tty is False:
        with anyio.CancelScope(shield=True), anyio.move_on_after(LIMIT_TIMEOUT), suppress(HarnessError):
            # without a connection the command still runs, and its end is awaited
            await shell.call(f"hx_limit {job.job_id} {max(MIN_LOG_LIMIT, limit)}")


async def report_streams(shell: PersistentShell, store: JobStore, job: PaneJob, poll: float | None = None) -> None:
    """Pass the separate streams of a job to its callbacks as they grow, until their end.

    Args:
        poll: seconds between reads of the files; None reads them when the pane shows more output.
    """
    had = [0, 0]
    try:
        while True:
            ended, active = job.done.is_set(), job.active
            try:
                found = await _read_next(shell, store, job, had)
            except OutputDropped:
                raise
            except HarnessError:  # the connection may be restored while the command runs
                found = None
                await anyio.sleep(RETRY)
            more = found is not None and _report(job, had, *found, ended=ended)
            if ended and not more:
                return
            if not more:
                with anyio.move_on_after(poll):
                    await active.wait()
    except Exception as error:  # any exception of a callback belongs to its caller
        job.fail(error)
    finally:
        job.reported.set()


async def _read_next(
    shell: PersistentShell, store: JobStore, job: PaneJob, had: list[int]
) -> tuple[tuple[bytes, bytes], tuple[int, int]] | None:
    """Return the next parts of both files and the sizes of all unread data; None while the files do not exist."""
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
    """Check that no bytes of a stream were dropped before they were read.

    Raises:
        OutputDropped: some were.
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
    """Pass one part to the callbacks, and return whether more can be read immediately."""
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
