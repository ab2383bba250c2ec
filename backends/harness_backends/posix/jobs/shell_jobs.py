"""Commands without a terminal, and access to all stored jobs of the target."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import anyio

from harness.backend import Jobs, NotStarted, Reservation
from harness.command import Command
from harness.config import Config
from harness.errors import ConnectError, ConnectionLost, HarnessError, NoSpace, OutputDropped, UnsupportedOperation
from harness.results import Job, JobOutput, ShellResult, Status
from harness.system.account import owner_name
from harness.system.background_tasks import BackgroundTasks, open_background_tasks
from harness.system.waiting import wait_within
from harness.transport import Transport

from ..pane_jobs.end_proof import TWICE
from ..pane_jobs.pane_log_output import lacks_end
from ..pane_jobs.prompt_markers import ANSWERED, answered, from_keyboard
from ..persistent_shell import PendingReply, PersistentShell, ShellReply
from ..probe import Probe
from ..state_directory import JobRecord, JobStore, render_record
from .command_keys import find_key, reserve_key
from .follow import JobExitWatch, JobFollower, callbacks_of
from .launch import (
    MAX_COMMAND_BYTES,
    MISSING,
    Launch,
    Outcome,
    PrestartedShell,
    PrestartedShells,
    StartError,
    account_text,
    background_line,
    cwd_error,
    launch_line,
    order_text,
    outcome,
    preamble,
    signal_name,
    start_line,
    start_text,
    start_text_as,
    write_bytes,
)
from .log_limit import MIN_LOG_LIMIT
from .output import INLINE, HeadTail, cut, lost_connection_notice, read_output, with_output
from .output import StoredOutput as Streams
from .output_reader import JobReader, OutputReadRequest
from .shell_library import ENDED_BEFORE, PROLOGUE
from .standard_input import in_memory, store_input
from .table import JobTable, StoredJob
from .termination import JobCanceller, ended_on_error, open_kill_rights, run_kill_script, signal_words

if TYPE_CHECKING:
    from ..sudo.user_change import UserChange, UserChanges

__all__ = ["PROLOGUE", "PosixJobs", "open_jobs"]

SMALL_STDIN = 16 * 1024
TERM_GRACE = 2.0
INT_GRACE = 1.0
KILL_GRACE = 2.0
END_TIMEOUT = 5.0
"""Seconds in addition to the grace periods for the proof of an exit; after that the outcome is unknown."""
CLEAN_AFTER = 10.0
"""Seconds: shorter processes, e.g. one ``harness run``, do not clean up."""
FOLLOW_AFTER, MAX_FOLLOW_AFTER = 0.03, 1.0
"""Seconds: a faster command gets no separate reader for ``on_output``, which costs a channel and ten programs. A target
that took longer to answer the probe has as long. What is written without a reader may be dropped before it is read, if
it exceeds the limit of the log."""
RECEIVE_AFTER = 1.0
"""The same for a reader without callbacks, which only matters if the connection is lost."""
KEPT_IN_MEMORY = (
    "the target's disk is full: the job's record and output are in its memory, and lost when it restarts or its user"
    " logs out"
)
UNWRITTEN = "the command has ended, but its exit code could not be stored: the target's disk was full"
TRIMMED = "the job's output was removed, as the stored jobs were larger than jobs_max_bytes"
LINK_LOST_NOTICE = (ConnectionLost, ConnectError)
"""Errors that mean an unknown outcome once a command was sent; ConnectError is raised by a reconnect."""


@dataclass(slots=True)
class _RunningCommand:
    """One command of this process that is running."""

    job_id: str
    command: Command
    ticket: PendingReply
    began: float
    delivered: list[int]
    received: tuple[HeadTail, HeadTail]
    """The output received while it ran, which is the result if the connection is lost."""


def _new_run(job_id: str, command: Command, ticket: PendingReply, began: float) -> _RunningCommand:
    received = HeadTail(command.max_output), HeadTail(command.max_output)
    return _RunningCommand(job_id, command, ticket, began, [0, 0], received)


PaneJobKiller = Callable[[JobRecord, float, str, float, str | None], Awaitable[None]]
"""Kills a job that runs in a pane, by its record, its age in seconds, a signal, a grace period and its rights."""


class PosixJobs(Jobs):
    """Jobs over a persistent shell: one channel for all concurrent commands, one round trip for each."""

    def __init__(
        self,
        transport: Transport,
        config: Config,
        shell: PersistentShell,
        store: JobStore,
        probe: Probe,
        tasks: BackgroundTasks,
        local: Callable[[], Transport],
        kill_pane_job: PaneJobKiller,
        user_changes: Callable[[], UserChanges],
    ) -> None:
        """``local`` makes a transport to this machine, for the logs of panes that are here."""
        self._user_changes = user_changes
        self._transport = transport
        self._tasks = tasks
        self._kill_pane_job = kill_pane_job
        self._config = config
        self._shell = shell
        self._store = store
        self._probe = probe
        self._warm = PrestartedShells(shell, store, INLINE + 1)
        self._ran_before = False
        self._follow_after = min(max(FOLLOW_AFTER, probe.duration), MAX_FOLLOW_AFTER)
        self._owner = owner_name()
        bound = INT_GRACE + TERM_GRACE + KILL_GRACE + END_TIMEOUT
        self._cancelling = JobCanceller(shell, store, tasks, bound)
        self._table = JobTable(transport, shell, store, config)
        self._ends = JobExitWatch(tasks)
        self._follower = JobFollower(
            transport, shell, store, self._table, config.tmux_socket, self._now, self._ends, local
        )
        self._reader = JobReader(shell, store, self._table, self._follower, config.tmux_socket)

    # -- running

    async def reserve(self, key: str, withdraw: str | None = None) -> Reservation:
        return await reserve_key(self._shell, self._store, key, withdraw)

    async def find_key(self, key: str) -> str | None:
        return await find_key(self._shell, key)

    async def run(self, command: Command) -> ShellResult:
        remade = self._store.remade
        try:
            result = await self._run(command)
        except NoSpace:  # nothing ran
            if not await self._store.remake() and self._store.remade == remade:
                raise
            if command.job_id is not None:
                raise NotStarted from None
            result = await self._run(command)
        notices = self._store.take_notices()
        return replace(result, notices=(*notices, *result.notices)) if notices else result

    async def _run(self, command: Command) -> ShellResult:
        warm = await self._warm.take() if self._can_wait_warm(command) else None
        if warm is not None:
            result = await self._run_warm(warm, command)
            if result is not None:
                return result
        while True:
            try:
                if command.user is None or not self._changes_user(command):
                    return await self._run_cold(command, None)
                async with self._user_changes().open(command.user) as change:
                    return await self._run_cold(command, change)
            except NotAcceptedError:  # the id was queried before it was used: retry with another one
                if command.job_id is not None:
                    raise NotStarted from None

    async def _run_cold(self, command: Command, change: UserChange | None) -> ShellResult:
        job_id = command.job_id or await self._store.claim()
        try:
            launch = await self._prepare(job_id, command, change)
        except HarnessError:
            self._store.give_back(job_id)
            raise
        began = time.monotonic()
        command.announce(job_id)
        async with self._ended_on_error(job_id, command.user):
            ticket = await self._shell.submit(launch_line(launch), acknowledged=launch.acknowledge)
            running = _new_run(job_id, command, ticket, began)
            if change is not None and change.askpass:
                await change.deliver(ticket.reply)
            if command.wait:
                return await self._finish(running)
            return await self._acknowledge(running)

    async def _run_warm(self, warm: PrestartedShell, command: Command) -> ShellResult | None:
        """Run a command in a prestarted shell; return None if the shell had exited and nothing ran."""
        order = order_text(command.env, self._directory(command.cwd))
        try:
            launch = replace(await self._prepare(warm.job_id, command), start=order)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._cancelling.cancel(warm.job_id, partial(self._interrupt, warm.job_id, None))
            raise
        running = _new_run(warm.job_id, command, warm.ticket, time.monotonic())
        command.announce(warm.job_id)
        async with self._ended_on_error(warm.job_id, command.user):
            await self._shell.add(warm.ticket, start_line(launch, warm.slot))
            try:
                return await self._finish(running)
            except NotAcceptedError:
                await self._forget_record(warm.job_id)
                return None
            except NoSpace:  # a new shell can keep the record in memory
                return None

    async def _forget_record(self, job_id: str) -> None:
        """Remove the files of a command that did not run."""
        names = " ".join(f'"$hx_jobs/{job_id}.{suffix}"' for suffix in ("cmd", "sh", "in"))
        with suppress(HarnessError):
            (await self._shell.submit(background_line(f"rm -f {names}"))).forget()

    def _prepare_next(self) -> None:
        """Prestart a shell, except after the first command, so that a single ``harness run`` leaves none behind."""
        if self._ran_before:
            self._tasks.start_soon(self._warm.prepare)
        self._ran_before = True

    def _can_wait_warm(self, command: Command) -> bool:
        order = order_text(command.env, self._directory(command.cwd))
        return (
            command.wait
            and command.job_id is None
            and not self._changes_user(command)
            and len(order.encode("utf-8", "surrogateescape")) <= MAX_COMMAND_BYTES
        )

    def _changes_user(self, command: Command) -> bool:
        return command.user is not None and command.user != self._probe.capabilities.user

    def _ended_on_error(self, job_id: str, user: str | None) -> AbstractAsyncContextManager[None]:
        return ended_on_error(partial(self._cancelling.cancel, job_id, partial(self._interrupt, job_id, user)))

    async def _prepare(self, job_id: str, command: Command, change: UserChange | None = None) -> Launch:
        record = render_record(self._record(job_id, command))
        parts, start = () if command.stdin is None else (command.stdin,), start_text(command.env)
        if change is not None:
            before = account_text(change.user) + preamble(command.env)
            text = f"{before}{command.command}".encode("utf-8", "surrogateescape")
            parts, start = (text, *parts), start_text_as(change.argv, len(text), change.askpass)
        feed = ""
        small = in_memory(parts, SMALL_STDIN)
        if parts and small is not None:
            feed = write_bytes(small, f'"$hx_jobs/{job_id}.in"')
        elif parts:
            await store_input(self._transport, self._store.path(job_id, "in"), *parts)
        limit = INLINE + 1 if command.wait else 0
        log_limit = max(MIN_LOG_LIMIT, self._config.job_log_max_bytes)
        return Launch(job_id, record, start, self._directory(command.cwd), feed, limit, not command.wait, log_limit)

    def _record(self, job_id: str, command: Command) -> JobRecord:
        return JobRecord(
            job_id=job_id,
            command=command.command,
            started=self._now(),
            owner=self._owner,
            cwd=command.cwd or "",
            user=command.user or "",
            helper=command.helper,
            key=command.key or "",
        )

    def _directory(self, cwd: str | None) -> str:
        home = self._probe.capabilities.home
        if cwd == "~" or (cwd or "").startswith("~/"):
            return home + (cwd or "")[1:]
        return f"./{cwd}" if cwd and not cwd.startswith("/") else cwd or ""  # "./-": a directory named "-"

    async def _acknowledge(self, run: _RunningCommand) -> ShellResult:
        try:
            reply = await run.ticket.started()
        except LINK_LOST_NOTICE:
            return self._lost(run)
        started = outcome(reply.exit_code)
        self._check(started, run.command)
        self._ends.expect(run.job_id, run.ticket)
        return self._result(run, Outcome(Status.RUNNING, in_memory=started.in_memory))

    async def _finish(self, run: _RunningCommand) -> ShellResult:
        try:
            with anyio.move_on_after(run.command.timeout):
                reply = await self._reply(run)
                return await self._completed(run, reply)
            if run.command.on_timeout == "keep":
                return await self._keep(run)
            return await self._time_out(run)
        except LINK_LOST_NOTICE:
            return self._lost(run)
        except OutputDropped as gap:
            raise self._follower.dropped(run.job_id, gap.start, gap.end) from None

    async def _reply(self, run: _RunningCommand) -> ShellReply:
        """Wait for the exit; after a while, pass the output to callbacks meanwhile."""
        callbacks = callbacks_of(run.command)
        if callbacks is None and not run.command.receive_early:
            return await run.ticket.reply()
        with anyio.move_on_after(RECEIVE_AFTER if callbacks is None else self._follow_after):
            return await run.ticket.reply()
        try:
            return await self._follower.during(run.job_id, run.ticket.reply, callbacks, run.delivered, run.received)
        except OutputDropped:
            self._ends.expect(run.job_id, run.ticket)  # it continues to run
            raise

    async def _completed(self, run: _RunningCommand, reply: ShellReply) -> ShellResult:
        ended = outcome(reply.exit_code)
        self._check(ended, run.command)
        self._prepare_next()
        limit = run.command.max_output
        if max(len(reply.stdout), len(reply.stderr)) > INLINE:
            output = await self._output(run.job_id, limit)
        else:
            output = Streams(cut(reply.stdout, limit), cut(reply.stderr, limit))
        await self._follower.deliver_rest(run.job_id, callbacks_of(run.command), run.delivered, reply)
        notices = (TWICE,) if ended.status is Status.UNKNOWN else ()
        return self._result(run, ended, output, *notices)

    def _check(self, outcome: Outcome, command: Command) -> None:
        if outcome.fault is StartError.NOT_TAKEN:
            raise NotAcceptedError
        if outcome.fault is not None:
            raise _fault_error(outcome.fault, command, self._target)

    async def _partial(self, run: _RunningCommand, outcome: Outcome, *notices: str) -> ShellResult:
        output = await self._output(run.job_id, run.command.max_output)
        return self._result(run, outcome, output, *notices)

    async def _output(self, job_id: str, limit: int) -> Streams:
        out, err = self._store.path(job_id, "out"), self._store.path(job_id, "err")
        return await read_output(self._transport, self._shell, out, err, limit)

    def _result(
        self, run: _RunningCommand, outcome: Outcome, output: Streams | None = None, *notices: str
    ) -> ShellResult:
        return self._shell_result(
            run.job_id, run.command.command, outcome, output, time.monotonic() - run.began, run.command.cwd, notices
        )

    def _shell_result(
        self,
        job_id: str,
        command: str,
        outcome: Outcome,
        output: Streams | None,
        duration: float,
        cwd: str | None,
        notices: tuple[str, ...] = (),
    ) -> ShellResult:
        result = ShellResult(
            command=command,
            status=outcome.status,
            exit_code=outcome.exit_code,
            duration=duration,
            cwd=cwd,
            job_id=job_id,
            notices=(*notices, KEPT_IN_MEMORY) if outcome.in_memory else notices,
        )
        return with_output(result, output) if output else result

    def _lost(self, run: _RunningCommand) -> ShellResult:
        out, err = run.received
        output = Streams(out.kept(), err.kept())
        return self._result(run, Outcome(Status.UNKNOWN), output, lost_connection_notice(run.job_id))

    # -- ending

    async def _keep(self, run: _RunningCommand) -> ShellResult:
        """Return the output so far, or the whole result if the target reported the exit before its answer."""
        result = await self._partial(run, Outcome(Status.RUNNING))
        if run.ticket.done:
            return await self._completed(run, await run.ticket.reply())
        self._ends.expect(run.job_id, run.ticket)
        return result

    async def _time_out(self, run: _RunningCommand) -> ShellResult:
        """Kill the command, unless the target finds that it had ended: the report of its exit may only be late here."""
        try:
            ladder = ("TERM", TERM_GRACE), ("KILL", KILL_GRACE)
            end = await self._end(run.job_id, run.command.user, Status.TIMED_OUT, *ladder)
            if end.exit_code == ENDED_BEFORE:
                if await wait_within(END_TIMEOUT, run.ticket.reply):
                    return await self._completed(run, await run.ticket.reply())
                notice = f"the command's exit was not reported; check it with: harness jobs show {run.job_id}"
                return await self._partial(run, Outcome(Status.UNKNOWN), notice)
        finally:
            run.ticket.forget()
        await self._follower.deliver_rest(run.job_id, callbacks_of(run.command), run.delivered, None)
        if end.exit_code == 0:
            return await self._partial(run, Outcome(Status(end.text.strip())))
        return await self._partial(
            run, Outcome(Status.RUNNING), "the command was killed at its deadline, but is still running"
        )

    async def finish_endings(self) -> None:
        """Wait for pending terminations of cancelled commands."""
        await self._cancelling.finish()

    async def _interrupt(self, job_id: str, user: str | None) -> None:
        ladder = ("INT", INT_GRACE), ("TERM", TERM_GRACE), ("KILL", KILL_GRACE)
        await self._end(job_id, user, Status.INTERRUPTED, *ladder)

    async def _end(
        self, job_id: str, user: str | None, why: Status, *ladder: tuple[str, float], may_ask: bool = False
    ) -> ShellReply:
        """Terminate a job's process group, unless its command has ended; return the reply of ``hx_end``.

        Args:
            job_id: The job.
            user: The user that it was started as; None for the login's.
            why: The status of the job if this ends it.
            ladder: The signals, each with the seconds until the next one.
            may_ask: Whether the operator may be asked for a password of ``sudo``.
        """
        async with open_kill_rights(self._user_changes, user, may_ask=may_ask) as rights:
            steps = " ".join(signal_words(ladder, rights))
            script = f"{rights or ''}hx_end {job_id} {why} {steps}"
            reply = await run_kill_script(self._shell, script, sum(grace for _, grace in ladder) + END_TIMEOUT)
        if reply is None:
            raise ConnectionLost(f"the exit of job {job_id} could not be confirmed", target=self._target)
        return reply

    async def kill(self, job_id: str, signal: str = "TERM", grace: float = 2.0) -> Job:
        name = signal_name(signal)
        kept = await self._table.find(job_id)
        if kept.job.status is not Status.RUNNING:
            return kept.job
        if kept.record.kind == "pane":
            age = max(0.0, self._now() - (kept.job.started or time.time()))
            async with open_kill_rights(self._user_changes, kept.record.user, may_ask=True) as rights:
                await self._kill_pane_job(kept.record, age, name, grace, rights)
        else:
            ladder = (name, grace), ("KILL", KILL_GRACE)
            await self._end(kept.job.job_id, kept.record.user, Status.INTERRUPTED, *ladder, may_ask=True)
        await self._follower.wait(kept.record, KILL_GRACE)
        return await self._table.get(job_id)

    # -- kept jobs

    async def list(self) -> list[Job]:
        return await self._table.list()

    async def get(self, job_id: str) -> Job:
        return await self._table.get(job_id)

    async def wait(self, job_id: str, timeout: float, max_output: int) -> ShellResult:
        began = time.monotonic()
        kept = await self._table.find(job_id)
        if kept.job.status is Status.RUNNING:
            await self._follower.wait(kept.record, timeout)
            kept = await self._table.find(job_id)
        job = kept.job
        output, lacking = await self._kept_output(kept, max_output)
        duration = time.monotonic() - began
        if job.started is not None:
            duration = max(0.0, (self._now() if job.ended is None else job.ended) - job.started)
        by_keys = kept.record.kind == "pane" and from_keyboard(job.exit_code, output.stdout.data)
        status = Status.INTERRUPTED if by_keys and job.status is Status.COMPLETED else job.status
        outcome = Outcome(status, job.exit_code)
        gone = UNWRITTEN if kept.exit_code_lost else "the command has ended without an exit code"
        notices = (gone,) if job.status is Status.UNKNOWN else ()
        if kept.record.kind == "pane" and answered(output.stdout.data):
            notices = (*notices, ANSWERED)
        if kept.trimmed:
            notices = (*notices, TRIMMED)
        if lacking and not kept.trimmed:
            notices = (*notices, lacking)
        if not (output.stdout.data or self._follower.can_read(kept.record)):
            notices = (
                *notices,
                f"the output is stored where its tmux runs, {kept.record.host.partition(':')[0]}",
            )
        result = self._shell_result(job.job_id, kept.record.command, outcome, output, duration, job.cwd, notices)
        return replace(result, pane=job.pane)

    async def _kept_output(self, kept: StoredJob, limit: int) -> tuple[Streams, str]:
        """Return the stored output of a job, and a notice if its end is missing."""
        if kept.record.kind == "pane" and not await self._follower.has_streams(kept.job.job_id):
            output = await self._follower.pane_output(kept, limit)
            return Streams(output.kept), "" if output.whole else lacks_end(output.end)
        return await self._output(kept.job.job_id, limit), ""

    async def read(self, job_id: str, stdout: int, stderr: int, limit: int, wait: float) -> JobOutput:
        return await self._reader.read(job_id, OutputReadRequest(stdout, stderr, limit), wait)

    def follow(self, job_id: str, offset: int = 0) -> AsyncIterator[bytes]:
        return self._follower.follow(job_id, offset)

    async def clean(self) -> int:
        return await self._table.clean()

    async def clean_sometimes(self) -> None:
        """Remove old jobs once per long-running process, in the background, ignoring errors."""
        await anyio.sleep(CLEAN_AFTER)
        with suppress(HarnessError):
            await self._table.clean_if_due()

    def _now(self) -> float:
        """Return the target's time."""
        return time.time() + self._probe.clock_offset

    @property
    def _target(self) -> str:
        return str(self._transport.target)


class NotAcceptedError(Exception):
    """Nothing ran: the prestarted shell exited before it accepted the order, or the id was queried earlier."""


def _fault_error(fault: StartError, command: Command, target: str) -> HarnessError:
    match fault:
        case StartError.CWD_MISSING | StartError.CWD_NO_DIRECTORY | StartError.CWD_DENIED:
            return cwd_error(fault - StartError.CWD_MISSING + MISSING, command.cwd, target)
        case StartError.NO_SPACE:
            return NoSpace("no space for the job's record, so nothing ran", target=target, hint="free disk space")
        case StartError.NO_GROUP | StartError.NOT_TAKEN:
            return UnsupportedOperation(
                "cannot start a command in its own process group",
                target=target,
                hint="install setsid (util-linux or busybox) or perl, and mkfifo, on the target",
            )


@asynccontextmanager
async def open_jobs(
    transport: Transport,
    config: Config,
    shell: PersistentShell,
    store: JobStore,
    probe: Probe,
    local: Callable[[], Transport],
    kill_pane_job: PaneJobKiller,
    user_changes: Callable[[], UserChanges],
) -> AsyncIterator[PosixJobs]:
    """Provide the jobs of a target; :data:`PROLOGUE` must be defined before the persistent shell's first call."""
    async with open_background_tasks() as tasks:
        jobs = PosixJobs(transport, config, shell, store, probe, tasks, local, kill_pane_job, user_changes)
        tasks.start_soon(jobs.clean_sometimes)
        try:
            yield jobs
        finally:
            await jobs.finish_endings()
