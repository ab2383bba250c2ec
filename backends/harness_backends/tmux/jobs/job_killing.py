"""Termination of a command in a pane: interrupt, TERM, KILL, if necessary its shell, and the confirmation."""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from harness.errors import HarnessError
from harness.results import Status
from harness.system.background_tasks import open_task_group
from harness.system.waiting import wait_within

from ...posix.jobs.launch import Outcome
from ...posix.jobs.output import lost_connection_notice
from ...posix.jobs.termination import open_kill_rights
from ...posix.pane_jobs.prompt_markers import from_keyboard
from ...posix.state_directory import JobStore
from ..channel.command_channel import CommandChannel
from ..pane.keyboard import INTERRUPT, type_text, unlock
from ..pane.pane_state import Pane
from .kill_script import KILL_GRACE, PaneJobEnd, PaneKill
from .pane_job import PaneJob
from .unstarted_commands import drop_slot, take_slot

if TYPE_CHECKING:
    from ...posix.sudo.user_change import UserChanges

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


@dataclass(slots=True)
class _Attempt:
    """One termination of a job, which finishes the job by what is proved.

    ``again``: another one came before or is in progress, so an end that the target has recorded may be caused by that.
    """

    pane: Pane
    job: PaneJob
    status: Status
    again: bool
    is_sent: bool = False

    def sent(self) -> None:
        """Record that the target has, or may have, received a signal."""
        self.is_sent = True

    def give_up(self) -> None:
        """Stop without a proof: a job whose shell has exited is unknown, as is one that ends later."""
        job = self.job
        job.ending = Status.UNKNOWN if self.is_sent or self.again else None
        if job.done.is_set() or not _is_reported(self.pane, job):
            return
        if job.ending is None:
            job.finish(Status.SHELL_EXITED, job.exit_code)
        else:
            self._set_unproved()

    def conclude(self, end: PaneJobEnd) -> None:
        """Finish the job by the target's answer, or replace an end that its shell reported meanwhile."""
        if end.stopped:
            self.job.notices.append(SHELL_ENDED)
        recorded = end.outcome.status if end.outcome is not None else None
        if end.gone:
            self._set_proved(end, self.status)
        elif end.before and self.again and recorded in (Status.TIMED_OUT, Status.INTERRUPTED):
            self._set_proved(end, recorded)
        elif end.before and not self.again:
            self._set_own(end.outcome)
        else:
            self._set_unproved()

    def _set_unproved(self) -> None:
        if NO_PROOF not in self.job.notices:
            self.job.notices.append(NO_PROOF)
        self.job.finish(Status.UNKNOWN)
        self.job.status, self.job.exit_code = Status.UNKNOWN, None

    def _set_proved(self, end: PaneJobEnd, status: Status) -> None:
        job = self.job
        code = end.outcome.exit_code if end.outcome is not None else None
        if not _is_reported(self.pane, job):
            job.notices.append(BEHIND.format(job.job_id))
        job.finish(status, code)
        if NO_PROOF in job.notices:  # of an earlier attempt
            job.notices.remove(NO_PROOF)
        code = code if job.exit_code is None else job.exit_code
        job.status, job.exit_code = status, code if status is Status.INTERRUPTED else None

    def _set_own(self, outcome: Outcome | None) -> None:
        """Give a job that had ended before the first signal its own end.

        Unless it was missed, its end marker may still follow.
        """
        job = self.job
        job.ending = None
        own = outcome if outcome is not None else Outcome(Status.UNKNOWN)
        if job.done.is_set():
            if job.status is self.status and outcome is not None:
                by_keys = own.status is Status.COMPLETED and from_keyboard(own.exit_code, job.collector.data)
                job.status, job.exit_code = Status.INTERRUPTED if by_keys else own.status, own.exit_code
        elif _is_reported(self.pane, job):  # a shell that exited has recorded that, and no end of the command
            job.finish(Status.UNKNOWN if own.status is Status.COMPLETED else own.status, own.exit_code)
        elif outcome is not None and own.status is Status.UNKNOWN:
            job.finish(Status.UNKNOWN)


@dataclass(frozen=True, slots=True)
class JobKiller:
    """A killer of jobs; a shell continues after a killed program, unless a C-c ended it."""

    link: CommandChannel
    store: JobStore
    user_changes: Callable[[], UserChanges]

    async def end(
        self, pane: Pane, job: PaneJob, status: Status, signal: str, grace: float, *, interrupt: bool = True
    ) -> None:
        """Terminate a job with ``status``, or as unknown if its exit is not confirmed.

        A job that has ended as unknown gets ``status`` if an earlier attempt has recorded the proof meanwhile.

        Raises:
            ConnectionLost: the connection was lost meanwhile.
        """
        attempt = _Attempt(pane, job, status, again=job.ending is not None)
        if job.done.is_set():
            await self._look_again(attempt, grace)
            return
        job.ending = status
        try:
            async with open_kill_rights(self.user_changes, job.command.user, may_ask=False) as rights:
                await self._terminate(attempt, rights, signal, grace, interrupt=interrupt)
        except BaseException:  # a cancelled caller too
            attempt.give_up()
            raise

    async def _look_again(self, attempt: _Attempt, grace: float) -> None:
        """Upgrade an unknown end if its record proves it by now."""
        if attempt.job.status is Status.UNKNOWN:
            attempt.conclude(await self._kill(attempt).ended_before(self.link.shells, grace))

    def _kill(self, attempt: _Attempt) -> PaneKill:
        pane, job, setup = attempt.pane, attempt.job, self.link.setup
        return PaneKill(
            exit_path=self.store.path(job.job_id, "exit"),
            pane_dir=setup.pane_dir(pane.uid),
            uid=pane.uid,
            command=job.command.command,
            age=time.monotonic() - job.began,
            tmux="" if setup.here else setup.tmux,
            nested=_nested(pane, job),
            again=attempt.again,
        )

    async def _terminate(
        self, attempt: _Attempt, rights: str | None, signal: str, grace: float, *, interrupt: bool
    ) -> None:
        pane, job, status = attempt.pane, attempt.job, attempt.status
        await job.wait_until(lambda: job.started, START_GRACE)  # the line editor would swallow an earlier C-c
        if not job.started and await self._take_back(pane, job, status):
            return
        kill = replace(self._kill(attempt), rights=rights)
        type_there = partial(self._interrupt, pane) if self.link.setup.here else None
        async with open_task_group() as tasks:
            tasks.start_soon(self._record_end, pane, job)
            end = await kill.run(
                self.link.shells,
                status,
                signal,
                grace,
                interrupt=interrupt,
                type_there=type_there,
                on_sent=attempt.sent,
            )
            tasks.cancel_scope.cancel()
        if end.before or end.gone:
            await wait_within(STREAM_LAG, partial(job.wait_until, lambda: job not in pane.jobs))
        attempt.conclude(end)

    async def _take_back(self, pane: Pane, job: PaneJob, status: Status) -> bool:
        """Withdraw a job that its shell has not read yet; return False if the shell has read it."""
        slot = f"{self.link.setup.pane_dir(pane.uid)}/next"
        if job.nonce != pane.shells[0].nonce or not await take_slot(self.link.shells, slot, job.job_id):
            return False
        if not await drop_slot(self.link.shells, slot, job.job_id):
            return False
        path = shlex.quote(self.store.path(job.job_id, "exit"))
        await self.link.shells.call(f"umask 077; echo 128 {status} >{path}")
        pane.remove_job(job)
        job.notices.append(NOT_STARTED)
        job.finish(status)
        return True

    async def _interrupt(self, pane: Pane) -> None:
        typed = type_text(self.link.setup.version, pane.pane_id, INTERRUPT)
        await self.link.request(unlock(pane.pane_id), *typed)

    async def _record_end(self, pane: Pane, job: PaneJob) -> None:
        """Record an exit code that the shell may not record: in nested shells, and in dash after a C-c.

        Not why it is being killed: it may have ended before, and the target adds the reason once it has killed it.
        """
        await job.wait_until(lambda: job not in pane.jobs)
        status = job.status if job.done.is_set() else Status.UNKNOWN
        if status is job.ending and status is not Status.UNKNOWN:
            status = Status.COMPLETED
        path = shlex.quote(self.store.path(job.job_id, "exit"))
        code = 128 if job.exit_code is None else job.exit_code
        with suppress(HarnessError):
            record = f"echo {code} {status} {job.secret} >{path}.new && mv -f {path}.new {path}"
            await self.link.shells.call(f"umask 077\n[ -s {path} ] || {{ {record}; }}")


async def end_unless_ended(pane: Pane, job: PaneJob, end: Callable[[], Awaitable[None]]) -> None:
    """Terminate a job, possibly after a delay; the target does nothing if its end is already recorded.

    A job that ended as unknown during an earlier attempt gets the status that this attempt has proved meanwhile.
    """
    unproved = job.ending is Status.UNKNOWN and job.status is Status.UNKNOWN
    if not pane.gone and (unproved or not job.done.is_set()):
        await end()


def no_answer(job: PaneJob, *, is_up: bool) -> str:
    """Return the notice for a job whose end or state is not known in time."""
    if is_up and job.ending is not None:
        return f"signalled, but the target did not answer in time; check it with: harness jobs show {job.job_id}"
    return lost_connection_notice(job.job_id)


def _nested(pane: Pane, job: PaneJob) -> int:
    """Return the process id of the nested shell in which the job runs, or 0; it may be on another machine."""
    return next((shell.pid for shell in pane.shells[1:] if shell.nonce == job.nonce), 0)


def _is_reported(pane: Pane, job: PaneJob) -> bool:
    """Return whether an end of the job, or the exit of its shell, has been reported."""
    return job.done.is_set() or job not in pane.jobs
