"""Commands in a pane: dispatch, wait, timeout, interrupt, and confirmation of the exit."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import anyio

from harness.backend import NotStarted
from harness.command import Command
from harness.errors import (
    ConnectError,
    ConnectionLost,
    HarnessError,
    NoSpace,
    PaneBusy,
    TargetGone,
    TerminalError,
    UnsupportedOperation,
)
from harness.results import ShellResult, Status
from harness.system.background_tasks import BackgroundTasks
from harness.system.waiting import run_within

from ...posix.jobs.launch import INTERRUPTING, cwd_error
from ...posix.jobs.memory_records import forget_script, pane_record_script
from ...posix.jobs.standard_input import store_input
from ...posix.jobs.termination import JobCanceller, ended_on_error
from ...posix.pane_jobs.end_proof import new_secret
from ...posix.state_directory import JobStore
from ..channel.command_channel import READY_TIMEOUT, REPLY_TIMEOUT, CommandChannel, ResponseLost
from ..channel.control_protocol import Block
from ..operator_watch import TYPED_NOTICE, operator_typed_during
from ..pane.foreground import Foreground
from ..pane.keyboard import BUSY, OTHER, Dispatch, SavedFile, release
from ..pane.pane_state import Pane
from ..pane.respawn_check import REPLACED, first_process, replaced_by
from ..setup import no_space
from ..sources.pane_source import PaneSource
from .job_killing import TERM_GRACE, JobKiller, end_unless_ended, no_answer
from .output_collector import collector_for
from .pane_job import PaneJob
from .separate_streams import keep_limit, report_streams
from .sudo_answers import SudoAnswers, may_be_approved
from .wrapped_command import plan, wrap_command

if TYPE_CHECKING:
    from ...posix.sudo.user_change import UserChange, UserChanges

__all__ = ["PaneRunner"]

CLOSED_GRACE = 0.5  # the notification of a closed window may arrive after the error of a command for it
REPORT_TIMEOUT = 5.0
"""Seconds to wait at a deadline for the target's report of what is running, before the connection counts as lost."""
END_LAG = 1.0
"""Maximum seconds by which a job's end marker may lag behind its exit file."""
FOREGROUND_CHECK_DELAYS = (1.0, 5.0, 30.0)
"""Seconds without output after which the foreground program is checked, once each."""
NO_PROCESS = ":"
"""The first process of a pane that no longer exists."""
_CANCELLED = 96
RECORD_IN_MEMORY = (
    "the target's disk is full: the job's record is in its memory, and lost when it restarts or its user logs out;"
    " its output may be stored in part only"
)
_FULL = re.compile(r"No space left|Disk quota|Read-only file|I/O error")
"""The shells' messages about failed writes; the last one is dash's for a full disk."""


class _NotTypedError(Exception):
    """Nothing was typed, as the pane's first process is not the known one, or the job's id was cancelled."""


@dataclass(frozen=True, slots=True)
class PaneRunner:
    """A runner of commands in panes; one instance serves all panes."""

    link: CommandChannel
    store: JobStore
    tasks: BackgroundTasks
    owner: str
    cancelling: JobCanceller
    source: PaneSource
    user_changes: Callable[[], UserChanges]
    sudo: SudoAnswers

    async def run(self, pane: Pane, command: Command, on_job: Callable[[Pane, PaneJob], None]) -> ShellResult:
        """Run a command like :meth:`Terminal.run`; ``on_job`` receives the job before it is typed."""
        with anyio.move_on_after(command.timeout) as waiting:
            await pane.lock.acquire()
        if waiting.cancelled_caught:
            raise PaneBusy(f"pane {pane.name!r} was busy with commands of this harness", target=self._target)
        try:
            return await self._run(pane, command, on_job)
        finally:
            pane.lock.release()

    async def _run(self, pane: Pane, command: Command, on_job: Callable[[Pane, PaneJob], None]) -> ShellResult:
        """Run a command, again if it is proved that it was not typed before the connection was lost.

        If the target's disk is full and nothing ran, run it again with its record in the target's memory.
        """
        deadline = anyio.current_time() + command.timeout
        notices: list[str] = []
        in_memory = False
        while True:
            notices += [*await self.source.prepare(pane), *pane.take_news()]
            job: PaneJob | None = None
            try:
                async with self._user_change(command.user) as change:
                    job = await self._dispatch(pane, command, on_job, change, in_memory=in_memory)
                    job.notices[:0], notices = [*notices, *pane.take_news()], []
                    result = await self._first_result(pane, job, change)
            except _NotTypedError:  # the preparation waits for a new shell, or raises an error that names the program
                if command.job_id is not None:
                    raise NotStarted from None
                continue
            except NoSpace:
                if in_memory or command.job_id is not None or not (job is None or job.unstored):
                    raise
                in_memory = True
                if job is not None:
                    await self._forget(job)
                continue
            if job.unsent and command.job_id is not None:
                await self._forget(job)
                raise NotStarted
            if not job.unsent or anyio.current_time() > deadline:
                told = self.store.take_notices()
                return replace(result, notices=(*told, *result.notices)) if told else result
            await self._forget(job)
            command = replace(command, timeout=max(0.1, deadline - anyio.current_time()))

    def _user_change(self, user: str | None) -> AbstractAsyncContextManager[UserChange | None]:
        return self.user_changes().open(user) if user else nullcontext()

    async def _first_result(self, pane: Pane, job: PaneJob, change: UserChange | None) -> ShellResult:
        if change is not None and not job.command.wait:
            await change.deliver(job.done.wait)
        elif change is not None:
            self.tasks.start_soon(change.deliver, job.done.wait)
        return await (self._await(pane, job) if job.command.wait else self._begun(job))

    async def _begun(self, job: PaneJob) -> ShellResult:
        """Return the first result of a background job, after checking that it could be stored and started."""
        await self.source.until_begun(job)
        await self._check_entered(job)
        return job.result()

    async def _check_entered(self, job: PaneJob) -> None:
        if job.entered and job.command.cwd:
            await self._free_key(job)
            raise cwd_error(job.entered, job.command.cwd, self._target)

    async def _free_key(self, job: PaneJob) -> None:
        """Delete the record of a job that did not run if it has a key, which is free again then."""
        if job.command.key is not None:
            await self._forget(job)

    @property
    def _target(self) -> object:
        return self.link.target

    # -- dispatch

    async def _dispatch(
        self,
        pane: Pane,
        command: Command,
        on_job: Callable[[Pane, PaneJob], None],
        change: UserChange | None,
        *,
        in_memory: bool,
    ) -> PaneJob:
        if command.key is not None and not pane.shell.files:
            raise UnsupportedOperation(
                "a command with a key cannot run in a nested shell, which cannot check whether it may start",
                target=self._target,
                hint="exit the nested shell, or use another pane (--pane NAME)",
            )
        job_id = command.job_id or await self.store.claim()
        job = PaneJob(
            job_id=job_id,
            command=command,
            pane=pane.name,
            log=pane.log,
            offset=pane.log_offset,
            nonce=pane.shell.nonce,
            secret=new_secret() if pane.shell.files else "",
            collector=collector_for(command),
        )
        action, files = await self._prepare(pane, job, change, in_memory=in_memory)
        pane.add_job(job)
        command.announce(job_id)
        on_job(pane, job)
        try:
            deadline = anyio.current_time() + command.timeout
            while True:
                holder = await self._send(pane, job, files, action)
                if holder is None:
                    return job
                if not command.wait and command.pane is None:  # another background pane will do
                    raise await self.source.inspector.busy(pane, f"job {holder}")
                await self._unrecord(job)
                await self.source.wait_for_holder(pane, holder)
                if anyio.current_time() > deadline:  # several holders in turn
                    raise await self.source.inspector.busy(pane, f"job {holder}")
        except BaseException:
            if not job.started and pane.remove_job(job):
                await self._forget(job)
            raise

    async def _prepare(
        self, pane: Pane, job: PaneJob, change: UserChange | None, *, in_memory: bool
    ) -> tuple[Dispatch, list[SavedFile]]:
        """Store a job's input and return the keys to type, and the files that must exist first."""
        if in_memory:
            await self._move_to_memory(job)
        hooks, target = self.link.setup.hooks, self._target
        body = wrap_command(job.command, job.job_id, self.store, pane.shell.kind, target, hooks, change)
        if body.stdin is not None:
            await store_input(self.link.shells.transport, self.store.path(job.job_id, "in"), body.stdin)
        return plan(self.link.setup, self.store, self.owner, pane, job, body, target)

    async def _move_to_memory(self, job: PaneJob) -> None:
        """Let a job's files be in the target's memory.

        Raises:
            NoSpace: They do not fit there either, and nothing ran.
        """
        reply = await self.link.shells.call(pane_record_script(job.job_id))
        if reply.exit_code != 0:
            await self._forget(job)
            raise no_space(self._target)
        job.notices.append(RECORD_IN_MEMORY)

    async def _unrecord(self, job: PaneJob) -> None:
        """Empty the record of a job that waits, as others would take it for one that was started and has ended."""
        record, run, code = (shlex.quote(self.store.path(job.job_id, suffix)) for suffix in ("cmd", "run", "exit"))
        remove = f'for hx_f in {run} {code}; do if [ -L "$hx_f" ]; then : >"$hx_f"; else rm -f "$hx_f"; fi; done'
        await self.link.shells.call(f": >{record}; {remove}")  # links lead to the memory of the target

    async def _forget(self, job: PaneJob) -> None:
        """Delete the record of a job that was never typed, as it would count as running forever."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(REPORT_TIMEOUT), suppress(HarnessError):
            await self.link.shells.call(forget_script(job.job_id))

    async def _send(self, pane: Pane, job: PaneJob, files: list[SavedFile], action: Dispatch) -> str | None:
        """Type a job's input, and return the holder of the pane if it was not typed."""
        freed = release(pane.pane_id, pane.place, pane.held) if pane.held else []
        pane.held = job.job_id
        try:
            blocks = await self._deliver(pane, job, files, action, freed)
        except ResponseLost:  # it may have been typed, which the output after the reconnect shows
            job.doubtful = True
            job.unanswered = time.monotonic() - job.began
            job.notices.append("connection lost while the command was being sent")
            job.touch()
            blocks = []
        refusal = _refusal(blocks)
        if refusal is None:
            self.tasks.start_soon(self.source.watch, pane, job, action)
            await keep_limit(self.link.shells, job, self.link.setup.config.job_log_max_bytes)
            if job.reports_streams:
                self.tasks.start_soon(report_streams, self.link.shells, self.store, job, self.source.poll)
            return None
        pane.held = ""
        if refusal.startswith(OTHER):
            pane.news = pane.news or next(iter(job.notices), "")
            await self._see_replaced(pane, *replaced_by(refusal))
            raise _NotTypedError
        return refusal.removeprefix(BUSY)

    async def _deliver(
        self, pane: Pane, job: PaneJob, files: list[SavedFile], action: Dispatch, freed: list[tuple[str, ...]]
    ) -> list[Block]:
        """Write a job's files and type its input, in one request if the tmux server itself can write them."""
        setup, timeout = self.link.setup, job.command.timeout
        if setup.here:
            blocks = await self._type(pane, timeout, *freed, action.reserve())
            return blocks if _refusal(blocks) else await self._type_there(pane, job, files, action)
        if setup.control:
            writes = [command for file in files for command in file.commands()]
            return await self._type(pane, timeout, *freed, *writes, action.command())
        with anyio.CancelScope(shield=True):  # a job that was announced is typed, and then killed
            await self._save_first(job, files, action)
        return await self._type(pane, timeout, *freed, action.command())

    async def _save_first(self, job: PaneJob, files: list[SavedFile], action: Dispatch) -> None:
        """Write the files before typing, with the slot's text next to the slot, which may be another job's until then.

        Raises:
            NoSpace, TerminalError: they could not be written.
        """
        slot = [] if action.slot is None else [SavedFile(f"{action.slot.path}.{job.job_id}", action.slot.text)]
        void = shlex.quote(self.store.path(job.job_id, "void"))
        writes = _writes([*files, *slot], " || exit")
        reply = await self.link.shells.call(f"umask 077\n{writes}[ ! -e {void} ] || exit {_CANCELLED}\n")
        if reply.exit_code == _CANCELLED:  # its id was queried before it was used: use another one
            raise _NotTypedError
        if reply.exit_code != 0:
            why = reply.stderr.decode("utf-8", "replace").strip()
            if _FULL.search(why):
                raise no_space(self._target)
            raise TerminalError(f"the command could not be stored, so nothing ran: {why}", target=self._target)

    async def _see_replaced(self, pane: Pane, ours: bool, program: str) -> None:
        """Handle a pane that an operator has restarted, with harness's program or another one."""
        if ours and not self.link.setup.here:
            if pane.wrapper.partition(":")[0] != program.partition(":")[0]:
                pane.learn_phase("starting")  # it reports itself before its first prompt
            return
        if not self.link.setup.here:
            pane.wrapper = program
        pane.learn_phase("running")
        pane.news = REPLACED
        await self._end_replaced(pane)

    async def _end_replaced(self, pane: Pane, *jobs: PaneJob) -> None:
        """Finish the jobs of a replaced shell, whose ends are unknown."""
        pane.leave_nested()
        for job in [job for job in reversed(pane.jobs) if job.started or job in jobs]:
            await self.store.settle(job.job_id)
            pane.end_job(job, Status.UNKNOWN, notice=REPLACED)

    async def _type(self, pane: Pane, timeout: float, *commands: tuple[str, ...]) -> list[Block]:
        """Send a request that must not reach another pane, as a new server reuses the ids of the old one."""
        while True:
            client = await self.link.ready(min(timeout, READY_TIMEOUT))
            await pane.certain()
            self.source.inspector.check_open(pane)
            try:
                with anyio.CancelScope(shield=True):  # the answer is needed to know whether it was typed
                    return await client.request(*commands, timeout=max(REPORT_TIMEOUT, min(timeout, REPLY_TIMEOUT)))
            except ResponseLost:
                raise
            except ConnectionLost:
                continue  # nothing was sent
            except TerminalError:  # an error ends the line before the keys, which are its last part
                await pane.wait_until(lambda: pane.gone, CLOSED_GRACE)
                self.source.inspector.check_open(pane)
                raise

    async def _type_there(self, pane: Pane, job: PaneJob, files: list[SavedFile], action: Dispatch) -> list[Block]:
        """Write the files after the pane is reserved, as the slot may be another job's until then, and type."""
        await self._save_there(files, action)
        return await self._type(pane, job.command.timeout, replace(action, slot=None, reserved=True).command())

    async def _save_there(self, files: list[SavedFile], action: Dispatch) -> None:
        """Write the files where the panes' shells run, which tmux cannot do, at one more round trip."""
        slot = [] if action.lines or action.slot is None else [action.slot]
        await self.link.shells.call(f"umask 077\n{_writes([*files, *slot])}")

    # -- while it runs

    async def _await(self, pane: Pane, job: PaneJob) -> ShellResult:
        async with ended_on_error(partial(self._kill_with_proof, pane, job, Status.INTERRUPTED)):
            try:
                return await self._until_deadline(pane, job)
            except (ConnectionLost, ConnectError, TimeoutError):
                notices = (*job.notices, no_answer(job, is_up=self.link.is_up))
                return replace(job.result(), status=Status.UNKNOWN, exit_code=None, notices=notices)

    async def _until_deadline(self, pane: Pane, job: PaneJob) -> ShellResult:
        """Wait for a job's end within its time, and return its result.

        Raises:
            CallbackError: a callback has failed.
            ConnectionLost, ConnectError, TimeoutError: its end or its state is not known.
        """
        with anyio.move_on_after(max(0.0, job.command.timeout - job.unanswered)) as waiting:
            job.when_callback_fails(waiting.cancel)
            await self._until_done(pane, job, waiting)
        if not job.done.is_set():
            job.check_callbacks()
        await self._kill_unless_kept(pane, job)
        if job.done.is_set() and isinstance(self.link.failed, TargetGone):
            return job.result()
        if job.done.is_set():
            await self.source.record_end(pane, job)
            await job.all_reported()
            if await operator_typed_during(self.link, pane, job.seconds):
                job.notices.append(TYPED_NOTICE)
            return await self.result(pane, job)
        if not job.attention:
            front = await run_within(_report_timeout(job), partial(self.source.inspector.foreground, pane))
            job.notices.append(f"still running: {front.describe()}")
        return await self.source.output_so_far(pane, job)

    async def _kill_with_proof(self, pane: Pane, job: PaneJob, status: Status) -> None:
        """Terminate a job; without a responsive connection this continues in the background after a reconnect."""
        end = partial(end_unless_ended, pane, job, lambda: self.end(pane, job, status))
        await self.cancelling.cancel(job.job_id, end)

    async def _kill_unless_kept(self, pane: Pane, job: PaneJob) -> None:
        """Handle a job that has not ended for this process at its deadline.

        Raises:
            TimeoutError: it was to be killed, and its end is not proved.
        """
        is_kept = job.command.on_timeout != "kill"
        if not (is_kept or job.done.is_set()):
            await self._kill_with_proof(pane, job, Status.TIMED_OUT)
        if not (job.attention or job.done.is_set()):
            await self.source.finish_if_ended(pane, job, _report_timeout(job))
        if not (is_kept or job.done.is_set()):
            raise TimeoutError

    async def _until_done(self, pane: Pane, job: PaneJob, waiting: anyio.CancelScope) -> None:
        """Wait until the job has ended or, if it is kept on timeout, its program waits for input."""
        is_kept = job.command.on_timeout != "kill"
        await self._watch(job, partial(self._needs_person if is_kept else self._answers_sudo, pane, job, waiting))

    async def until_over(self, pane: Pane, job: PaneJob, waiting: anyio.CancelScope) -> None:
        """Wait until the job has ended, or an operator has replaced its shell by another program."""

        async def is_over() -> bool:
            replaced = await self._is_replaced(pane, job)
            return replaced or (may_be_approved() and await self._answers_sudo(pane, job, waiting))

        await self._watch(job, is_over)

    @staticmethod
    async def _watch(job: PaneJob, is_over: Callable[[], Awaitable[bool]]) -> None:
        while not job.done.is_set():
            for quiet in FOREGROUND_CHECK_DELAYS:
                active = job.active
                with anyio.move_on_after(quiet):
                    await active.wait()
                if active.is_set():
                    break
                if await is_over() or job.done.is_set():
                    return
            else:
                await job.active.wait()

    async def _needs_person(self, pane: Pane, job: PaneJob, waiting: anyio.CancelScope) -> bool:
        if job.done.is_set():
            return True
        try:
            front = await self.source.inspector.foreground(pane)
            if await self._replaced(pane, job):
                return True
            unanswered = await self.sudo.answer(pane, job, waiting) if self._may_be_sudo(job, front) else None
        except (ConnectionLost, ConnectError):
            return False  # the connection is restored before the timeout, or the outcome is unknown
        by_sudo = job.command.user and front.name == "sudo" and front.raw  # its command has a terminal of its own
        if unanswered == "" or by_sudo or not (unanswered or front.wants_input):
            return False
        if await self.source.is_over(pane, job, front) or (not job.started and job.watched):
            return False
        job.attention = True
        job.notices.append(unanswered or front.describe())
        job.notices.append(f"the screen shows:\n{await self.source.inspector.screen(pane)}")
        await self.link.request(("select-pane", "-t", pane.pane_id, "-e"))
        return True

    async def answer_sudo(self, pane: Pane, job: PaneJob) -> None:
        """Answer a ``sudo`` of a job that was left running, if one waits for a password."""
        with anyio.CancelScope() as waiting:
            await self._answers_sudo(pane, job, waiting)

    async def _answers_sudo(self, pane: Pane, job: PaneJob, waiting: anyio.CancelScope) -> bool:
        """Answer a ``sudo`` that waits for a password; return False, as the job continues without an answer."""
        with suppress(ConnectionLost, ConnectError):
            if self._may_be_sudo(job, await self.source.inspector.foreground(pane)):
                await self.sudo.answer_or_note(pane, job, waiting)
        return False

    @staticmethod
    def _may_be_sudo(job: PaneJob, front: Foreground) -> bool:
        """Return whether a ``sudo`` may wait for a password; that of a command's user has another way to it."""
        return not (front.echo or job.command.user or job.done.is_set())

    async def _is_replaced(self, pane: Pane, job: PaneJob) -> bool:
        with suppress(ConnectionLost, ConnectError):
            return await self._replaced(pane, job)
        return False

    async def _replaced(self, pane: Pane, job: PaneJob) -> bool:
        """Return whether an operator has replaced the shell, and so this job, which is not visible in markers."""
        before = pane.wrapper
        if not before or self.link.setup.here:
            return False
        if await self._first_process(pane) == before:
            return False
        with anyio.move_on_after(END_LAG):  # a new shell of harness reports itself in a moment
            await job.done.wait()
        now = await self._first_process(pane)
        if job not in pane.jobs or pane.wrapper != before or now in (before, NO_PROCESS):
            return job.done.is_set()
        pane.wrapper = now
        await self._end_replaced(pane, job)
        return True

    async def _first_process(self, pane: Pane) -> str:
        try:
            return (await self.link.ask(first_process(pane)))[-1].text
        except TerminalError:  # the server has exited
            return NO_PROCESS

    async def result(self, pane: Pane, job: PaneJob) -> ShellResult:
        """Return the result of an ended job, and fetch its separate streams, if any.

        Raises:
            NoSpace: the target's disk was full, so that the command could not be stored, and nothing ran.
            FileError: its directory could not be entered, and nothing ran.
        """
        await self._check_entered(job)
        if job.unstored:
            await self._free_key(job)
            raise no_space(self._target)
        return await self.source.output_so_far(pane, job)

    # -- ending it

    async def end(
        self, pane: Pane, job: PaneJob, status: Status, *, signal: str = "TERM", grace: float = TERM_GRACE
    ) -> None:
        """Terminate a job by interrupt, ``signal`` and KILL in turn, until its exit is confirmed."""
        ending = JobKiller(self.link, self.store, self.user_changes)
        await ending.end(pane, job, status, signal, grace, interrupt=signal in INTERRUPTING)


def _writes(files: list[SavedFile], unless: str = "") -> str:
    """Return a script that writes files."""
    return "".join(f"printf %s {shlex.quote(file.text)} >{shlex.quote(file.path)}{unless}\n" for file in files)


def _report_timeout(job: PaneJob) -> float:
    """Return the seconds that are left for reports at the deadline of a job."""
    return max(0.0, REPORT_TIMEOUT - job.unanswered)


def _refusal(blocks: Iterable[Block]) -> str | None:
    """Return tmux's answer if it typed nothing, as the pane is held or runs another program; else None."""
    return next((block.text for block in blocks if block.text.startswith((BUSY, OTHER))), None)
