"""What a command becomes before it is typed: its record and other files, and what goes into the pane. Pure."""

from __future__ import annotations

from dataclasses import replace

from harness.errors import TerminalError

from ..posix.state import JobRecord, JobStore
from .body import Body
from .job import PaneJob
from .keyboard import Dispatch, SavedFile
from .naming import record_text
from .nested import command_lines
from .pane import Pane
from .setup import Setup

__all__ = ["plan"]


def plan(
    setup: Setup, store: JobStore, owner: str, pane: Pane, job: PaneJob, body: Body, target: object
) -> tuple[Dispatch, list[SavedFile]]:
    """What to type, and the files that must be there first.

    Raises:
        TerminalError: the pane's innermost shell cannot read files of ours, which the command's options need.
    """
    files = [SavedFile(store.path(job.job_id, "cmd"), record_text(_record(setup, owner, pane, job), pane.shell.kind))]
    action = Dispatch(
        pane=pane.pane_id,
        place=pane.place,
        job_id=job.job_id,
        kind=pane.shell.kind,
        slot=f"{setup.pane_dir(pane.uid)}/next",
        lock=setup.config.keyboard_lock,
        quits=setup.version.quits_modes,
    )
    if not pane.shell.files:
        _check_plain(body, target)
        return replace(action, lines=tuple(command_lines(pane.shell.kind, job.job_id, job.command.command))), files
    if body.run is None:
        return action, files
    return replace(action, suffix="run"), [*files, SavedFile(store.path(job.job_id, "run"), body.run)]


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
    )


def _check_plain(body: Body, target: object) -> None:
    if body.run is not None:
        raise TerminalError(
            "cwd, env, stdin, user and tty=False cannot be given in a nested shell",
            target=target,
            hint="write them into the command, or leave the nested shell first",
        )
