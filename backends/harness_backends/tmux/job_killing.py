"""Termination of a command in a pane: interrupt, TERM, KILL, if necessary its shell, and the confirmation."""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import anyio

from harness.errors import HarnessError
from harness.results import Status

from ..posix.pane_kill_script import KILL_GRACE, PaneJobEnd, PaneKill
from ..posix.persistent_shell import PersistentShell
from ..posix.state_directory import JobStore
from .fallback_client import FallbackClient
from .job import PaneJob
from .keyboard import INTERRUPT, type_text, unlock
from .link import ControlConnection
from .pane import Pane
from .unstarted_commands import drop_slot, take_slot

__all__ = ["END_TIMEOUT", "TERM_GRACE", "JobKiller", "end_unless_ended", "no_answer"]

START_GRACE = 0.5
TERM_GRACE = 2.0
END_TIMEOUT = 7.0 + KILL_GRACE
"""Seconds to wait for the end of a command."""
STREAM_LAG = 1.0
"""Seconds that the output may lag behind the target's proof of an end."""
SHELL_ENDED = "the command ignored C-c, so its shell was killed first; the rest of the command did not run"
NO_PROOF = "signalled, but its exit is not confirmed"
NOT_STARTED = "the command was withdrawn before the pane's shell read it; it did not run"
BEHIND = "the command has ended, but the end of its output has not arrived yet; get it with: harness jobs wait {}"


@dataclass(frozen=True, slots=True)
class JobKiller:
    """A killer of jobs; a shell continues after a killed program, unless a C-c ended it."""

    link: ControlConnection | FallbackClient
    shell: PersistentShell
    store: JobStore

    async def end(
        self, pane: Pane, job: PaneJob, status: Status, signal: str, grace: float, *, interrupt: bool = True
    ) -> None:
        """Terminate a job with ``status``, or as unknown if its exit is not confirmed.

        Raises:
            ConnectionLost: the connection was lost meanwhile.
        """
        job.ending = status
        await _started(job)
        setup = self.link.setup
        if not job.started and await self._take_back(pane, job, status):
            return
        kill = PaneKill(
            exit_path=self.store.path(job.job_id, "exit"),
            pane_dir=setup.pane_dir(pane.uid),
            uid=pane.uid,
            command=job.command.command,
            age=time.monotonic() - job.began,
            tmux="" if setup.here else setup.tmux,
            nested=_nested(pane, job),
        )
        type_there = partial(self._interrupt, pane) if setup.here else None
        problem: HarnessError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._record_end, job, status)
            try:
                end = await kill.run(self.shell, status, signal, grace, interrupt=interrupt, type_there=type_there)
            except HarnessError as error:  # raised outside of the task group, to avoid an exception group
                problem = error
            tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem
        await self._conclude(job, status, end)

    async def _take_back(self, pane: Pane, job: PaneJob, status: Status) -> bool:
        """Withdraw a job that its shell has not read yet; return False if the shell has read it."""
        slot = f"{self.link.setup.pane_dir(pane.uid)}/next"
        if job.nonce != pane.shells[0].nonce or not await take_slot(self.shell, slot, job.job_id):
            return False
        if not await drop_slot(self.shell, slot, job.job_id):
            return False
        path = shlex.quote(self.store.path(job.job_id, "exit"))
        await self.shell.call(f"umask 077; echo 128 {status} >{path}")
        if job in pane.jobs:
            pane.jobs.remove(job)
        job.notices.append(NOT_STARTED)
        job.finish(status)
        return True

    async def _interrupt(self, pane: Pane) -> None:
        typed = type_text(self.link.setup.version, pane.pane_id, INTERRUPT)
        await self.link.request(unlock(pane.pane_id), *typed)

    async def _record_end(self, job: PaneJob, status: Status) -> None:
        """Record an exit code that the shell may not record: in nested shells, and in dash after a C-c."""
        await job.done.wait()
        path = shlex.quote(self.store.path(job.job_id, "exit"))
        code = 128 if job.exit_code is None else job.exit_code
        with suppress(HarnessError):
            record = f"echo {code} {status} >{path}.new && mv -f {path}.new {path}"
            await self.shell.call(f"umask 077\n[ -s {path} ] || {{ {record}; }}")

    @staticmethod
    async def _conclude(job: PaneJob, status: Status, end: PaneJobEnd) -> None:
        if end.stopped:
            job.notices.append(SHELL_ENDED)
        with anyio.move_on_after(STREAM_LAG if end.before or end.gone else 0):
            await job.done.wait()
        if end.before:  # it ended by itself: its own end marker follows, unless it was missed
            job.ending = None
            if end.outcome is not None and end.outcome.status is Status.UNKNOWN:
                job.finish(Status.UNKNOWN)
            return
        code = end.outcome.exit_code if end.outcome is not None else None
        if end.gone:
            if not job.done.is_set():
                job.notices.append(BEHIND.format(job.job_id))
            job.finish(status, code)
            job.status = status
            job.exit_code = job.exit_code if status is Status.INTERRUPTED else None
        else:
            job.notices.append(NO_PROOF)
            job.finish(Status.UNKNOWN)
            job.status = Status.UNKNOWN


async def end_unless_ended(pane: Pane, job: PaneJob, end: Callable[[], Awaitable[None]]) -> None:
    """Terminate a job, possibly after a delay; the target does nothing if its end is already recorded."""
    if not (job.done.is_set() or pane.gone):
        await end()


def no_answer(job: PaneJob, *, is_up: bool) -> str:
    """Return the notice for a job whose end or state is not known in time."""
    if is_up and job.ending is not None:
        return f"signalled, but the target did not answer in time; check it with: harness jobs show {job.job_id}"
    return f"connection lost while the command was running; check it with: harness jobs show {job.job_id}"


def _nested(pane: Pane, job: PaneJob) -> int:
    """Return the process id of the nested shell in which the job runs, or 0; it may be on another machine."""
    return next((shell.pid for shell in pane.shells[1:] if shell.nonce == job.nonce), 0)


async def _started(job: PaneJob) -> None:
    """Wait until the job has started, as the line editor would swallow an earlier C-c."""
    with anyio.move_on_after(START_GRACE):
        while not (job.started or job.done.is_set()):
            await job.active.wait()
