"""Completes recordings whose harness was killed, from the output that the target kept of their jobs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anyio import to_thread

from ..context import ExecutionContext
from ..errors import ConnectionLost, HarnessError, JobNotFound
from ..results import Job, Status
from ..toolkit.redaction.redactor import Redactor
from .asciicast import CastEvent, event_line
from .directory import ENDED, RecordedJob, Recording, end_marker, read_recording, unfinished_recordings

__all__ = ["complete_recording", "complete_recordings"]

MAX_BYTES = 16 << 20
"""Maximum bytes of a job's output that are added."""
STOPPED = "gap: harness stopped here"
FROM_LOG = "the output of job {} from its log, at times that are not known"


async def complete_recordings(ctx: ExecutionContext, redactor: Redactor) -> list[Path]:
    """Complete the unfinished recordings of the context's target.

    Returns:
        Those that are finished now; one whose job is still running is not.
    """
    paths = await to_thread.run_sync(unfinished_recordings, str(ctx.target))
    return [path for path in paths if await complete_recording(path, ctx, redactor)]


async def complete_recording(path: Path, ctx: ExecutionContext, redactor: Redactor) -> bool:
    """Add what the target kept of the jobs that were running when harness stopped, and the end.

    What the target does not have is a gap with a marker.

    Returns:
        False if such a job is still running, or another process completes the recording or has completed it.
    """
    with _locked(path) as descriptor:
        if descriptor is None:
            return False
        recording = await to_thread.run_sync(read_recording, path)
        if _is_ended(recording):
            return False
        events: list[CastEvent] = [_marker(recording, STOPPED)]
        for job in recording.jobs:
            if job.ended is None:
                added = await _rest(ctx, recording, job, redactor)
                if added is None:
                    return False
                events += added
        end = end_marker("completed after harness had stopped", _end(recording), len(recording.jobs))
        events.append(_marker(recording, end))
        await to_thread.run_sync(_append, descriptor, recording, events)
    return True


@contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
            return
        yield descriptor
    finally:
        os.close(descriptor)


async def _rest(
    ctx: ExecutionContext, recording: Recording, recorded: RecordedJob, redactor: Redactor
) -> list[CastEvent] | None:
    """Return the events for a job's end, with the output that is not recorded; None if it still runs."""
    try:
        job = await ctx.job(recorded.job_id)
    except JobNotFound:
        return [_marker(recording, f"gap: the target has no record of job {recorded.job_id}")]
    if job.owner != recording.header.harness.get("owner"):
        return [_marker(recording, f"gap: job {recorded.job_id} of the target is another one")]
    if job.status is Status.RUNNING:
        return None
    return [*await _output(ctx, recording, recorded, redactor), _marker(recording, _ended(job))]


async def _output(
    ctx: ExecutionContext, recording: Recording, recorded: RecordedJob, redactor: Redactor
) -> list[CastEvent]:
    output, lost, problem = await _read_output(ctx, recorded.job_id)
    events = [_marker(recording, f"gap: {lost} bytes of job {recorded.job_id} were not kept")] if lost else []
    text = await to_thread.run_sync(redactor.text, output.replace(b"\n", b"\r\n").decode("utf-8", "replace"))
    shown = _shown_of(recording, recorded.job_id)
    rest = text[len(shown) :] if text.startswith(shown) else text  # else all: what was shown is unknown
    if rest:
        events += [_marker(recording, FROM_LOG.format(recorded.job_id)), CastEvent(_end(recording), "o", rest)]
    if problem:
        events.append(_marker(recording, f"gap: the rest of the output of job {recorded.job_id}: {problem}"))
    return events


async def _read_output(ctx: ExecutionContext, job_id: str) -> tuple[bytes, int, str]:
    """Return the kept output of a job, how many bytes were not kept, and why the rest was not read.

    Raises:
        ConnectionLost: The target may have the output, so the recording stays unfinished.
    """
    output, lost, offset = bytearray(), 0, 0
    try:
        while len(output) < MAX_BYTES:
            part = (await ctx.read_job(job_id, stdout=offset, limit=1 << 18)).stdout
            output += part.data
            lost += part.lost
            if not part.data or part.end >= part.size:
                return bytes(output), lost, ""
            offset = part.end
    except ConnectionLost:
        raise
    except HarnessError as error:
        return bytes(output), lost, error.message
    return bytes(output), lost, f"only {MAX_BYTES} bytes are added"


def _shown_of(recording: Recording, job_id: str) -> str:
    """Return the recorded output since the start of a job."""
    starts = [place for place, event in enumerate(recording.events) if event.data.startswith(f"job {job_id}: ")]
    since = recording.events[starts[-1] :] if starts else ()
    return "".join(event.data for event in since if event.code == "o")


def _ended(job: Job) -> str:
    code = "" if job.exit_code is None else f", exit code {job.exit_code}"
    return f"job {job.job_id} ended: {job.status.value}{code}"


def _end(recording: Recording) -> float:
    return recording.events[-1].time if recording.events else 0.0


def _is_ended(recording: Recording) -> bool:
    return bool(recording.events) and recording.events[-1].code == "m" and recording.events[-1].data.startswith(ENDED)


def _marker(recording: Recording, text: str) -> CastEvent:
    return CastEvent(_end(recording), "m", text)


def _append(descriptor: int, recording: Recording, events: list[CastEvent]) -> None:
    """Append events, after the last whole line; all of them or none, as a later attempt would add them again."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, 1 << 24, max(0, size - (1 << 24)))
    size -= len(tail) - (tail.rfind(b"\n") + 1)
    os.ftruncate(descriptor, size)
    try:
        _write_at(descriptor, size, recording, events)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _write_at(descriptor: int, size: int, recording: Recording, events: list[CastEvent]) -> None:
    last = _end(recording)
    data = "".join(event_line(event, last, recording.header.version) for event in events).encode("utf-8", "replace")
    while data:
        written = os.pwrite(descriptor, data, size)
        data, size = data[written:], size + written
