"""Commands in fallback mode: without a live stream, files on the target contain the end and the output."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import anyio

from harness.backend import NotStarted
from harness.command import Command
from harness.errors import ConnectError, ConnectionLost, HarnessError, PaneBusy, TargetGone, TerminalError
from harness.results import ShellResult, Status
from harness.system.background_tasks import BackgroundTasks
from harness.system.waiting import run_within

from ...posix.jobs.cancellation import JobCanceller
from ...posix.jobs.launch import INTERRUPTING, Outcome, cwd_error, recorded
from ...posix.jobs.standard_input import store_input
from ...posix.pane_jobs.end_proof import new_secret, proves_end
from ...posix.persistent_shell import PersistentShell
from ...posix.state_directory import JobRecord, JobStore
from ..channel.single_commands import SingleCommands, until_script
from ..jobs.job_killing import TERM_GRACE, JobKiller, end_unless_ended, no_answer
from ..jobs.output_collector import collector_for
from ..jobs.pane_job import PaneJob, entered
from ..jobs.separate_streams import keep_limit, report_streams, with_streams
from ..jobs.unstarted_commands import ensure_started, has_read_slot
from ..jobs.wrapped_command import WrappedCommand, command_files, slot_text, wrap_command
from ..operator_watch import TYPED_NOTICE, operator_typed_during
from ..pane.foreground import Foreground, inspect, terminal_of
from ..pane.keyboard import BUSY, OTHER, Dispatch, SavedFile, release
from ..pane.pane_state import Pane
from ..pane.respawn_check import RESPAWNED, is_ours
from ..setup import no_space
from .job_output import (
    WaitResult,
    follow_log,
    parse_ended,
    read_output,
    read_partial_output,
    read_unended,
    watch_script,
)
from .pane_table import FallbackPane, FallbackPaneTable

__all__ = ["FallbackRunner"]

FOREIGN_WAIT = 5.0
"""Seconds to wait for another harness's or an operator's command before the pane counts as busy."""
WATCH = 600.0
"""Seconds after which the watch on the target is restarted."""
RETRY = 1.0
POLL = 0.5
"""Seconds between two reads of separate streams that are reported as they grow."""
QUIET = (1.0, 5.0, 30.0)
"""Seconds after which the foreground program is checked for waiting for input."""
REPORT_TIMEOUT = 5.0
WITHDRAWN = "128 unknown"
"""The content of the exit file of a withdrawn command."""
GONE = "the pane was closed or its shell was replaced while the command was running"
FROM_PROMPT = "the shell did not record an exit code; this one is from the prompt"
TO_FRONT = r"""
front() {{
  if read -r line <"/proc/$1/stat"; then set -- ${{line##*) }}; [ "$3" = "$6" ]
  else set -- "$1" $(ps -o tpgid= -o pgid= -p "$1"); [ -n "$2" ] && [ "$2" = "$3" ]; fi 2>/dev/null
}}
"""


_CALLED_OFF = 96
_FULL = re.compile(r"No space left|Disk quota|Read-only file|I/O error")
"""The shells' messages about failed writes; the last one is dash's for a full disk."""


class _DispatchCancelledError(Exception):
    """The job was cancelled by a query for its id before its record was stored."""


@dataclass(frozen=True, slots=True)
class FallbackRunner:
    """A runner of commands in panes; one instance serves all panes."""

    tmux: SingleCommands
    shell: PersistentShell
    store: JobStore
    panes: FallbackPaneTable
    tasks: BackgroundTasks
    owner: str
    cancelling: JobCanceller

    async def run(
        self, known: FallbackPane, command: Command, on_job: Callable[[FallbackPane, PaneJob], None]
    ) -> ShellResult:
        """Run a command like :meth:`Terminal.run`; ``on_job`` receives the job before it is typed."""
        with anyio.move_on_after(command.timeout) as waiting:
            await known.pane.lock.acquire()
        if waiting.cancelled_caught:
            raise PaneBusy(f"pane {known.pane.name!r} was busy with commands of this harness", target=self._target)
        try:
            notices = await self._prepare(known)
            job = await self._dispatch(known, command, on_job)
            job.notices[:0] = notices
            if not command.wait:
                return job.result()
            return await self._await(known, job)
        finally:
            known.pane.lock.release()

    @property
    def _target(self) -> object:
        return self.tmux.transport.target

    # -- before

    async def _prepare(self, known: FallbackPane) -> list[str]:
        """Wait for the pane's shell and its prompt, or raise an error that names what occupies it."""
        await self.panes.refresh(known)
        await self.panes.look(known)
        if known.row.busy:
            await self._wait_for_holder(known, known.row.busy)
        await self._wait_for_front(known)
        before, known.shell_pid = known.shell_pid, known.facts.pid
        if before in (0, known.shell_pid):
            return []
        return ["the pane's shell had exited; this is a new one"]

    async def _wait_for_holder(self, known: FallbackPane, holder: str) -> None:
        """Wait briefly for the end of the job that holds the pane; release the pane if its harness has exited."""
        ours = next((job for job in known.pane.jobs if job.job_id == holder), None)
        if ours is not None:
            with anyio.move_on_after(FOREIGN_WAIT):
                await ours.done.wait()
                return
        else:
            holder_id = holder if holder.isdecimal() else "0"
            ended = self.store.ended(holder_id)
            reply = await self.tmux.beside(until_script(f"{{ {ended}; }}", FOREIGN_WAIT), FOREIGN_WAIT + 1)
            over = reply is not None and reply.exit_code == 0
            if over or await self.store.settle(holder_id, await self._at_prompt(known)):
                await self.tmux.request(*release(known.row.pane_id, known.pane.place, holder))
                return
        raise await self._held_by(known, f"job {holder}")

    async def _at_prompt(self, known: FallbackPane) -> str:
        """Return ``own`` if the pane's shell seems to be at its prompt, else an empty string."""
        front = await self.foreground(known.pane)
        return "own" if front.is_own(known.facts.pid) and front.may_be_prompt else ""

    async def _wait_for_front(self, known: FallbackPane) -> None:
        """Wait until the pane's shell itself reads the keyboard, not a program that it runs."""
        front = await self.foreground(known.pane)
        if front.is_own(known.facts.pid):
            return
        if front.group == known.facts.pid:
            raise await self._held_by(known, "a program that the pane's shell became (exec)")
        script = TO_FRONT.format() + until_script(f"front {known.facts.pid}", FOREIGN_WAIT)
        reply = await self.tmux.beside(script, FOREIGN_WAIT + 1)
        if reply is None or reply.exit_code != 0:
            raise await self._held_by(known, "a command that an operator typed, or a nested shell")

    async def _held_by(self, known: FallbackPane, holder: str) -> PaneBusy:
        asked = await self.tmux.request(("display-message", "-p", "-t", known.row.pane_id, is_ours(known.row.uid)))
        holder = holder if asked[-1].text == "1" else RESPAWNED
        front = await self.foreground(known.pane)
        return PaneBusy(
            f"pane {known.pane.name!r} is busy with {holder}: {front.describe()}",
            target=self._target,
            hint="answer it with harness keys, wait for it, kill it, or use another pane (--pane NAME);"
            " commands in a nested shell need tmux's control mode",
        )

    # -- dispatch

    async def _dispatch(
        self, known: FallbackPane, command: Command, on_job: Callable[[FallbackPane, PaneJob], None]
    ) -> PaneJob:
        while True:
            try:
                return await self._dispatch_once(known, command, on_job)
            except _DispatchCancelledError:  # the id was queried before it was used: use another one
                if command.job_id is not None:
                    raise NotStarted from None

    async def _dispatch_once(
        self, known: FallbackPane, command: Command, on_job: Callable[[FallbackPane, PaneJob], None]
    ) -> PaneJob:
        job_id, pane = command.job_id or await self.store.claim(), known.pane
        collector = collector_for(command)
        offset, nonce = known.facts.logged or 0, known.facts.nonce
        job = PaneJob(job_id, command, pane.name, pane.log, offset, nonce, collector, new_secret())
        body = wrap_command(command, job_id, self.store, pane.shell.kind, self._target, self.tmux.setup.hooks)
        files = self._files(known, job, body)
        try:
            await self._save(job_id, files)
            if body.stdin is not None:
                await store_input(self.tmux.transport, self.store.path(job_id, "in"), body.stdin)
            pane.jobs.append(job)
            command.announce(job_id)
            on_job(known, job)
            action = self._action(known, job)
            with anyio.CancelScope(shield=True):  # the answer is needed to know whether it was typed
                await self._type(known, job, action, files)
        except BaseException:
            if job in pane.jobs:
                pane.jobs.remove(job)
            await self._forget(job_id)
            raise
        self.tasks.start_soon(self._watch, known, job)
        await keep_limit(self.shell, job, self.tmux.setup.config.job_log_max_bytes)
        self.tasks.start_soon(report_streams, self.shell, self.store, job, POLL)
        self.tasks.start_soon(ensure_started, self.tmux, self.store, pane, job, action, self)
        return job

    def _files(self, known: FallbackPane, job: PaneJob, body: WrappedCommand) -> list[SavedFile]:
        record = JobRecord(
            job_id=job.job_id,
            command=job.command.command,
            kind="pane",
            started=None,
            owner=self.owner,
            pane=known.row.pane_id,
            cwd=known.row.cwd,
            log=job.log,
            offset=job.offset,
            nonce=job.nonce,
            proof=job.proof,
            key=job.command.key or "",
        )
        files = command_files(self.store, record, known.pane.shell.kind, body)
        return [*files, SavedFile(f"{self._slot(known.pane)}.{job.job_id}", slot_text(job, body))]

    def _slot(self, pane: Pane) -> str:
        return f"{self.tmux.setup.pane_dir(pane.uid)}/next"

    async def _save(self, job_id: str, files: list[SavedFile]) -> None:
        writes = "".join(f"printf %s {shlex.quote(file.text)} >{shlex.quote(file.path)} || exit\n" for file in files)
        void = shlex.quote(self.store.path(job_id, "void"))
        reply = await self.shell.call(f"umask 077\n{writes}[ ! -e {void} ] || exit {_CALLED_OFF}\n")
        if reply.exit_code == _CALLED_OFF:
            raise _DispatchCancelledError
        if reply.exit_code != 0:
            why = reply.stderr.decode("utf-8", "replace").strip()
            if _FULL.search(why):
                raise no_space(self._target)
            raise TerminalError(f"the command could not be stored, so nothing ran: {why}", target=self._target)

    def _action(self, known: FallbackPane, job: PaneJob) -> Dispatch:
        path = self._slot(known.pane)
        slot = shlex.quote(path)
        return Dispatch(
            version=self.tmux.setup.version,
            pane=known.row.pane_id,
            place=known.pane.place,
            job_id=job.job_id,
            kind=known.pane.shell.kind,
            slot=SavedFile(path, ""),
            lock=self.tmux.setup.config.keyboard_lock,
            script=f"mv -f {slot}.{job.job_id} {slot}",
            known=f"#{{==:#{{pane_pid}},{known.row.pid}}}",
        )

    async def _unrecord(self, job: PaneJob) -> None:
        """Empty the record of a job that waits, as others would take it for one that was started and has ended."""
        record, run, code = (shlex.quote(self.store.path(job.job_id, suffix)) for suffix in ("cmd", "run", "exit"))
        await self.shell.call(f": >{record}; rm -f {run} {code}")

    async def _type(self, known: FallbackPane, job: PaneJob, action: Dispatch, files: list[SavedFile]) -> None:
        """Type the command in one tmux call that also tests whether the pane is free."""
        deadline = anyio.current_time() + job.command.timeout
        while True:
            known.pane.held = job.job_id
            try:
                blocks = await self.tmux.request(action.command())
            except ConnectionLost:  # it may have been typed, which the watch detects
                job.notices.append("connection lost while the command was being sent")
                return
            if any(block.text.startswith(OTHER) for block in blocks):
                known.pane.held = ""
                raise await self._held_by(known, "a shell that an operator has just restarted (respawn-pane)")
            holder = next((block.text for block in blocks if block.text.startswith(BUSY)), "").removeprefix(BUSY)
            if not holder:
                return
            known.pane.held = ""
            await self._unrecord(job)
            await self._wait_for_holder(known, holder)
            await self._save(job.job_id, files)
            if anyio.current_time() > deadline:  # several holders in turn
                raise await self._held_by(known, f"job {holder}")

    async def _forget(self, job_id: str) -> None:
        """Delete the record of a job that was never typed, as it would count as running forever."""
        files = " ".join(shlex.quote(self.store.path(job_id, suffix)) for suffix in ("cmd", "sh", "run", "in", "exit"))
        with anyio.CancelScope(shield=True), anyio.move_on_after(REPORT_TIMEOUT), suppress(HarnessError):
            await self.shell.call(f"rm -f {files}")

    async def has_read(self, pane: Pane, job: PaneJob) -> bool:
        """Return whether the pane's shell has read the job, as no stream shows that it has started."""
        return await has_read_slot(self.shell, self._slot(pane), job.job_id)

    async def withdraw(self, pane: Pane, job: PaneJob) -> None:
        """Record that a job will not run, which the watch detects."""
        path = shlex.quote(self.store.path(job.job_id, "exit"))
        await self.shell.call(f"umask 077; [ -s {path} ] || echo {WITHDRAWN} >{path}")

    # -- while it runs

    async def _watch(self, known: FallbackPane, job: PaneJob) -> None:
        """Wait for a job's end, independently of callers, and read its output."""
        async with anyio.create_task_group() as live:
            if job.command.on_output is not None and job.command.tty is not False and known.facts.logged is not None:
                live.start_soon(follow_log, self.tmux, job)
            ended = await self._until_ended(known, job)
            live.cancel_scope.cancel()
        while True:
            try:
                self._finish(known, job, await self._conclude(known, job, ended))
                return
            except (ConnectionLost, ConnectError):
                await anyio.sleep(RETRY)
            except HarnessError as error:
                job.notices.append(f"the output could not be read: {error.message}")
                self._finish(known, job, _outcome(ended, job))
                return

    async def _until_ended(self, known: FallbackPane, job: PaneJob) -> WaitResult:
        files, log = self.store.path(job.job_id, ""), f"{self.tmux.setup.root}/{job.log}"
        script = watch_script(job, known.row, self.tmux.setup.tmux, files.rstrip("."), log, WATCH)
        while True:
            try:
                reply = await self.tmux.beside(script, WATCH + 10)
                ended = parse_ended(reply.text) if reply is not None else None
                if ended is not None and await self._proved(known, job, ended):
                    return ended
            except TargetGone as error:
                job.notices.append(f"{error.message} while the command ran")
                return WaitResult("gone", "")
            except (ConnectionLost, ConnectError):
                await anyio.sleep(RETRY)

    async def _proved(self, known: FallbackPane, job: PaneJob, ended: WaitResult) -> bool:
        """Check an end: a marker needs the job's secret, and a tag, which programs can print, the shell's prompt."""
        if ended.how == "mark" and not proves_end(ended.secret, job.proof):
            await anyio.sleep(RETRY)
            return False
        if ended.how != "tag":
            return True
        front = await self.foreground(known.pane)
        if front.is_own(known.facts.pid) and front.may_be_prompt:
            return True
        await anyio.sleep(RETRY)
        return False

    async def _conclude(self, known: FallbackPane, job: PaneJob, ended: WaitResult) -> Outcome | None:
        """Read the output, store what other harnesses need, and release the pane."""
        if ended.how == "gone":
            return None
        if ended.words == WITHDRAWN:
            if not job.notices:
                job.notices.append(GONE)
            if known.facts.logged is not None:
                await read_unended(self.tmux, job)
            await self._release(known.pane, job)
            return Outcome(Status.UNKNOWN)
        logged = known.facts.logged is not None
        tagged = await read_output(self.tmux, job, known.row, logged)
        if ended.how == "tag" and tagged is not None and tagged.exit_code is not None:
            ended = WaitResult("tag", f"{tagged.exit_code} completed {job.secret}")
            job.notices.append(FROM_PROMPT)
        await self._keep(job, ended, None if logged or tagged is None else tagged.text)
        await self._release(known.pane, job)
        if not job.cwd:
            shown = await self.tmux.request(("display-message", "-p", "-t", known.row.pane_id, "#{pane_current_path}"))
            job.cwd = shown[0].text or None
        return _outcome(ended, job)

    async def _release(self, pane: Pane, job: PaneJob) -> None:
        if pane.held == job.job_id:
            pane.held = ""
        await self.tmux.request(*release(pane.pane_id, pane.place, job.job_id))

    async def _keep(self, job: PaneJob, ended: WaitResult, text: str | None) -> None:
        """Store an exit code that the shell did not write, and output that is not in a log."""
        code, out = (shlex.quote(self.store.path(job.job_id, suffix)) for suffix in ("exit", "out"))
        script = "umask 077\n"
        if ended.how != "exit" and ended.words:
            script += f"[ -s {code} ] || echo {shlex.quote(ended.words)} >{code}\n"
        if text is not None and job.command.tty is not False:
            script += f"printf %s {shlex.quote(text)} >{out}\n"
        await self.shell.call(script)

    def _finish(self, known: FallbackPane, job: PaneJob, outcome: Outcome | None) -> None:
        if job in known.pane.jobs:
            known.pane.jobs.remove(job)
        if outcome is None:
            job.notices.append(GONE)
            job.finish(Status.UNKNOWN)
            return
        if outcome.status is Status.SHELL_EXITED:
            job.notices.append("the shell exited; a new shell was started")
            known.shell_pid = 0
        job.finish_as_reported(outcome.status, outcome.exit_code, job.cwd)

    async def _await(self, known: FallbackPane, job: PaneJob) -> ShellResult:
        try:
            with anyio.move_on_after(job.command.timeout) as waiting:
                job.when_callback_fails(waiting.cancel)
                await self._until_done(known, job)
            if job.callback_error is not None and not job.done.is_set():
                await self._kill_with_proof(known, job, Status.INTERRUPTED)
                raise job.callback_error
            if not job.done.is_set() and job.command.on_timeout == "kill":
                await self._kill_with_proof(known, job, Status.TIMED_OUT)
            if not job.attention:
                await self._wait_if_ended(job)
            if not job.done.is_set() and job.command.on_timeout == "kill":
                raise TimeoutError
            if job.done.is_set():
                await job.all_reported()
                if await operator_typed_during(self.tmux, known.pane, job.seconds):
                    job.notices.append(TYPED_NOTICE)
                return await self.result(job)
            return await run_within(REPORT_TIMEOUT, partial(self._still_running, known, job))
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._kill_with_proof(known, job, Status.INTERRUPTED)
            raise
        except (ConnectionLost, ConnectError, TimeoutError):
            notice = no_answer(job, is_up=self.shell.is_open)
            return replace(job.result(), status=Status.UNKNOWN, exit_code=None, notices=(*job.notices, notice))

    async def _still_running(self, known: FallbackPane, job: PaneJob) -> ShellResult:
        if not job.attention:
            job.notices.append(f"still running: {(await self.foreground(known.pane)).describe()}")
        return await self.output_so_far(known, job)

    async def _kill_with_proof(self, known: FallbackPane, job: PaneJob, status: Status) -> None:
        """Terminate a job; without a responsive connection this continues in the background after a reconnect."""
        end = partial(end_unless_ended, known.pane, job, lambda: self.end(known, job, status))
        await self.cancelling.cancel(job.job_id, end)

    async def _wait_if_ended(self, job: PaneJob) -> None:
        """Wait for the output of a job that has ended if it has not been read by the deadline.

        Raises:
            TimeoutError: the target did not answer in time.
        """
        if not job.done.is_set() and await run_within(REPORT_TIMEOUT, partial(self._ended_there, job)):
            await job.done_or_quiet(REPORT_TIMEOUT)

    async def _ended_there(self, job: PaneJob) -> bool:
        return await self.store.settle(job.job_id)

    async def _until_done(self, known: FallbackPane, job: PaneJob) -> None:
        """Wait until the job has ended or, if it is kept on timeout, its program waits for input."""
        for quiet in QUIET if job.command.on_timeout == "keep" else ():
            with anyio.move_on_after(quiet):
                await job.done.wait()
            if job.done.is_set() or await self._needs_person(known, job):
                return
        await job.done.wait()

    async def _needs_person(self, known: FallbackPane, job: PaneJob) -> bool:
        try:
            front = await self.foreground(known.pane)
            if not front.wants_input or (front.is_own(known.facts.pid) and front.raw) or job.done.is_set():
                return False
            if await self._ended_there(job):
                return False
            shown = await self.tmux.request(
                ("capture-pane", "-p", "-J", "-t", known.row.pane_id), ("select-pane", "-t", known.row.pane_id, "-e")
            )
        except (ConnectionLost, ConnectError):
            return False
        job.attention = True
        job.notices += [front.describe(), f"the screen shows:\n{shown[0].text.rstrip()}"]
        return True

    async def output_so_far(self, known: FallbackPane, job: PaneJob) -> ShellResult:
        """Return the running job's result with its output so far."""
        if job.command.tty is False:
            return await with_streams(self.shell, self.store, job)
        data = await read_partial_output(self.tmux, job, known.row, logged=known.facts.logged is not None)
        return await self.result(job) if job.done.is_set() else job.result(stdout=data)

    async def result(self, job: PaneJob) -> ShellResult:
        """Return the result of an ended job, and fetch its separate streams, if any.

        Raises:
            FileError: its directory could not be entered, and nothing ran.
        """
        if job.command.cwd and job.exit_code == 1:
            why = await self.shell.call(self.store.reading(job.job_id, "why"))
            fault, (_, _, secret) = entered(why.text.strip()), why.text.strip().partition(";")
            if fault and proves_end(secret, job.proof):
                if job.command.key is not None:  # it is free again
                    await self._forget(job.job_id)
                raise cwd_error(fault, job.command.cwd, self._target)
        if job.command.tty is not False:
            return job.result()
        return await with_streams(self.shell, self.store, job)

    async def foreground(self, pane: Pane) -> Foreground:
        """Return the pane's foreground program."""
        return await inspect(self.shell, *await terminal_of(pane, self.tmux.ask, here=False))

    async def end(
        self, known: FallbackPane, job: PaneJob, status: Status, *, signal: str = "TERM", grace: float = TERM_GRACE
    ) -> None:
        """Terminate a job by interrupt, ``signal`` and KILL in turn, until its exit is confirmed."""
        ending = JobKiller(self.tmux, self.shell, self.store)
        await ending.end(known.pane, job, status, signal, grace, interrupt=signal in INTERRUPTING)


def _outcome(ended: WaitResult, job: PaneJob) -> Outcome | None:
    """Return the status and exit code of an end, or None if neither is known."""
    return recorded(f"{ended.words}\n", job.proof)
