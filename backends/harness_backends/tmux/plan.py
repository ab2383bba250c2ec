"""What a command becomes before it is typed: its record and other files, and what goes into the pane. Pure."""

from __future__ import annotations

from dataclasses import replace

from harness.errors import TerminalError

from ..posix.state import JobRecord, JobStore
from .body import Body
from .job import PaneJob
from .keyboard import Dispatch, SavedFile
from .naming import command_text, record_text
from .nested import command_lines
from .pane import Pane
from .replaced import is_ours, known_program
from .setup import Setup

__all__ = ["command_files", "plan", "slot_text"]


def plan(
    setup: Setup, store: JobStore, owner: str, pane: Pane, job: PaneJob, body: Body, target: object
) -> tuple[Dispatch, list[SavedFile]]:
    """What to type, and the files that must be there first.

    Raises:
        TerminalError: the pane's innermost shell cannot read files of ours, which the command's options need.
    """
    record = _record(setup, owner, pane, job)
    action = Dispatch(
        version=setup.version,
        pane=pane.pane_id,
        place=pane.place,
        job_id=job.job_id,
        kind=pane.shell.kind,
        slot=SavedFile(f"{setup.pane_dir(pane.uid)}/next", slot_text(job, body)),
        lock=setup.config.keyboard_lock,
        known=known_program(pane, here=setup.here),
        ours=is_ours(pane.uid),
    )
    if pane.shell.files:
        return action, command_files(store, record, pane.shell.kind, body)
    _check_plain(body, target)
    lines = tuple(command_lines(pane.shell.kind, job.job_id, job.command.command))
    return replace(action, lines=lines), [SavedFile(store.path(job.job_id, "cmd"), record_text(record))]


def _record(setup: Setup, owner: str, pane: Pane, job: PaneJob) -> JobRecord:
    return JobRecord(
        job_id=job.job_id,
        command=job.command.command,
        kind="pane",
        owner=owner,
        pane=pane.pane_id,
        cwd=pane.cwd,
        log=job.log,
        host=setup.host,
        offset=job.offset,
        nonce=job.nonce,
        proof=job.proof,
    )


def command_files(store: JobStore, record: JobRecord, kind: str, body: Body) -> list[SavedFile]:
    """The record of a command, its text, and its wrapper if it has one."""
    text = command_text(record.command, kind)
    files = [
        SavedFile(store.path(record.job_id, "sh"), text),
        SavedFile(store.path(record.job_id, "cmd"), record_text(record, kind)),
    ]
    return files if body.run is None else [*files, SavedFile(store.path(record.job_id, "run"), body.run)]


def slot_text(job: PaneJob, body: Body) -> str:
    """What the slot of a pane holds: which of the job's files its shell is to read next, and what proves the end."""
    return f"{job.job_id} {'sh' if body.run is None else 'run'} {job.secret}\n"


def _check_plain(body: Body, target: object) -> None:
    if body.run is not None:
        raise TerminalError(
            "cwd, env, stdin, user and tty=False cannot be given in a nested shell",
            target=target,
            hint="write them into the command, or leave the nested shell first",
        )
