"""``harness recordings``: list, show, play and export recordings of panes."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import HarnessError, JobNotFound
from ...target import Target
from ..completed_names import complete_recording
from ..options import command, group, time_limit_option
from ..output import note, print_json, readable, table
from ..redaction import session_redactor
from ..runtime import CliSession, session_of
from ..streams import Interruption, run_async

if TYPE_CHECKING:
    from ...recordings.directory import RecordedJob, Recording, RecordingSummary

__all__ = ["IDLE_LIMIT", "SPEED", "play_job", "recordings"]

LOCAL = "local:"
COLUMNS = ("ID", "STATE", "TARGET", "PANE", "STARTED", "LENGTH", "JOBS", "BYTES")


@command("list")
@click.pass_context
def list_(ctx: click.Context) -> int:
    """List the recordings on this machine, oldest first.

    A recording whose harness was killed is completed first, from the output that the target kept of its jobs: on this
    machine at once, on another target by the next harness that records there. Until then it is "unfinished".
    """
    from ...recordings.directory import list_recordings

    session = session_of(ctx)
    _complete_local(session)
    found = list_recordings()
    if session.json:
        print_json([asdict(item) for item in found])
    else:
        table(COLUMNS, [_row(item) for item in found])
    return 0


def _complete_local(session: CliSession) -> None:
    from ...recordings.completion import complete_recordings
    from ...recordings.directory import unfinished_recordings

    if not unfinished_recordings(str(Target.parse(LOCAL))):
        return

    async def work(interruption: Interruption) -> int:
        from ...context import connect

        try:
            async with connect(LOCAL) as target:
                await complete_recordings(target, session_redactor(session.settings, session.invocation.choices))
        except HarnessError as error:
            note(f"cannot complete a recording: {error}")
        except OSError as error:
            note(f"cannot complete a recording: {(error.strerror or 'error').lower()}")
        return 0

    run_async(work)


def _row(item: RecordingSummary) -> tuple[str, ...]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(item.started))
    seconds = f"{int(item.seconds) // 60}:{int(item.seconds) % 60:02}"
    return (item.id, item.state, item.host or item.target, item.pane, started, seconds, str(item.jobs), str(item.bytes))


@command("show")
@click.argument("name", metavar="ID|FILE", shell_complete=complete_recording)
@click.pass_context
def show(ctx: click.Context, name: str) -> int:
    """Print what is known of a recording, and its jobs."""
    from ...recordings.directory import summary_of

    session, recording = session_of(ctx), _read(name)
    summary = summary_of(recording.path)
    if session.json:
        print_json({**asdict(summary), "jobs": [asdict(job) for job in recording.jobs]})
        return 0
    for key, value in asdict(summary).items():
        if key not in ("jobs", "started"):
            click.echo(f"{key}: {readable(str(value))}")
    click.echo(f"started: {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(summary.started))}")
    click.echo()
    table(("JOB", "AT", "STATUS", "CODE", "COMMAND"), [_job_row(job) for job in recording.jobs])
    return 0


def _job_row(job: RecordedJob) -> tuple[str, ...]:
    code = "" if job.exit_code is None else str(job.exit_code)
    return (job.job_id, f"{job.started:.1f}", job.status, code, job.command)


def _read(name: str) -> Recording:
    from ...recordings.directory import find_recording, read_recording

    path = find_recording(name)
    try:
        return read_recording(path)
    except OSError as error:
        raise HarnessError(f"cannot read {path}: {(error.strerror or 'error').lower()}") from error


# -- play


SPEED, IDLE_LIMIT = (
    click.option("--speed", type=click.FloatRange(0.01, 1000), default=1.0, metavar="N", help="Play N times as fast."),
    time_limit_option("--idle-limit", help="Shorten pauses to TIME: 2, 500ms, none."),
)


@command("play")
@click.argument("name", metavar="ID|FILE", shell_complete=complete_recording)
@SPEED
@IDLE_LIMIT
@click.option("--from-job", metavar="ID", help="Start at this job.")
@click.pass_context
def play(ctx: click.Context, name: str, speed: float, idle_limit: float | None, from_job: str | None) -> int:
    """Play a recording in this terminal: space pauses, q quits.

    Sequences that would act on the terminal, such as the clipboard, titles and device queries, are not played.
    """
    session_of(ctx)
    recording = _read(name)
    start = 0.0 if from_job is None else _job_of(recording, from_job).started
    return _play(recording, speed, idle_limit, start, None)


def _job_of(recording: Recording, job_id: str) -> RecordedJob:
    found = next((job for job in recording.jobs if job.job_id == job_id), None)
    if found is None:
        jobs = ", ".join(job.job_id for job in recording.jobs) or "none"
        raise JobNotFound(f"job {job_id} is not in the recording {recording.path.stem}", hint=f"its jobs: {jobs}")
    return found


def _play(recording: Recording, speed: float, idle_limit: float | None, start: float, end: float | None) -> int:
    """Play a recording, or a part of it, and return the exit code."""
    import os
    import sys

    from ...recordings.player import play as play_in_terminal

    if sys.stdout.isatty():
        size, needed = os.get_terminal_size(sys.stdout.fileno()), recording.header
        if size.columns < needed.columns or size.lines < needed.rows:
            note(
                f"this terminal is smaller ({size.columns}x{size.lines}) than the pane ({needed.columns}x{needed.rows})"
            )
    play_in_terminal(recording, speed=speed, idle_limit=idle_limit, start=start, end=end)
    return 0


def play_job(session: CliSession, job_id: str, speed: float, idle_limit: float | None) -> int:
    """Play the recording of one job of the session's target.

    Raises:
        JobNotFound: No recording has it.
    """
    from ...recordings.directory import list_recordings, read_recording

    target = str(session.settings.target)
    for item in reversed(list_recordings()):
        if item.target != target:
            continue
        recording = read_recording(Path(item.path))
        for job in recording.jobs:
            if job.job_id == job_id:
                return _play(recording, speed, idle_limit, job.started, job.ended)
    raise JobNotFound(
        f"no recording of {target} has job {job_id}",
        hint=f"harness jobs tail {job_id} prints its output; --record records the panes",
    )


# -- export


@command("export")
@click.argument("name", metavar="ID|FILE", shell_complete=complete_recording)
@click.option("--text", "as_plain", is_flag=True, help="Write plain text, without colors.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@time_limit_option("--idle-limit", help="Shorten pauses in the page to TIME.")
@click.pass_context
def export(
    ctx: click.Context, name: str, as_plain: bool, output: Path | None, overwrite: bool, idle_limit: float | None
) -> int:
    """Write a recording as one HTML file with a player, or as plain text.

    The page needs nothing else: no network and no other file. Without --output it is written to ID.html in the current
    directory, and text to standard output.
    """
    from ...recordings.export import as_html, as_text

    session, recording = session_of(ctx), _read(name)
    text = as_text(recording) if as_plain else as_html(recording, idle_limit=idle_limit)
    if output is None and as_plain:
        click.echo(text, nl=False)
        return 0
    path = output or Path(f"{recording.path.stem}.html")
    _write(path, text, overwrite=overwrite)
    print_json({"path": str(path)}) if session.json else click.echo(str(path))
    return 0


def _write(path: Path, text: str, *, overwrite: bool) -> None:
    from ...system.private_files import replace_file, write_new_file

    data = text.encode("utf-8", "replace")
    try:
        replace_file(path, data) if overwrite else write_new_file(path, data)
    except FileExistsError as error:
        raise HarnessError(f"{path} exists", hint="give --overwrite, or another name with --output") from error
    except OSError as error:
        raise HarnessError(f"cannot write {path}: {(error.strerror or 'error').lower()}") from error


recordings = group(
    "recordings",
    "list",
    (list_, show, play, export),
    "List, show, play and export recordings of panes, which --record makes.",
)
