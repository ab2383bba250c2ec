"""Commands in a pane: dispatch, wait, timeout, interrupt, and confirmation of the exit."""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import anyio

from harness.backend import NotStarted
from harness.command import Command
from harness.errors import (
    ConnectError,
    ConnectionLost,
    HarnessError,
    PaneBusy,
    PaneGone,
    ShellNotReady,
    TargetGone,
    TerminalError,
    UnsupportedOperation,
)
from harness.results import ShellResult, Status
from harness.system.background_tasks import BackgroundTasks
from harness.system.waiting import run_within

from ...posix.jobs.cancellation import JobCanceller
from ...posix.jobs.launch import INTERRUPTING, cwd_error, recorded
from ...posix.jobs.standard_input import store_input
from ...posix.pane_jobs.end_proof import new_secret
from ...posix.persistent_shell import PersistentShell
from ...posix.state_directory import JobStore
from ..channel.command_channel import READY_TIMEOUT, REPLY_TIMEOUT, CommandChannel, ResponseLost
from ..channel.control_protocol import Block
from ..operator_watch import TYPED_NOTICE, operator_typed_during
from ..pane.foreground import Foreground, inspect, terminal_of
from ..pane.keyboard import BUSY, INTERRUPT, OTHER, Dispatch, SavedFile, release, type_text
from ..pane.nested_shells import install_markers, until_prompt
from ..pane.pane_log import begin_log, due, rotate_log
from ..pane.pane_state import Pane
from ..pane.respawn_check import REPLACED, RESPAWNED, first_process, is_ours, replaced_by, while_known
from ..setup import no_space
from .false_end_check import EndCheck
from .job_killing import TERM_GRACE, JobKiller, end_unless_ended, no_answer
from .output_collector import collector_for
from .pane_job import PaneJob
from .separate_streams import keep_limit, report_streams, with_streams
from .unstarted_commands import ensure_started
from .wrapped_command import check_user, plan, wrap_command

__all__ = ["PaneRunner"]

BUSY_PANE_TIMEOUT = 5.0
"""Seconds to wait for another harness's or an operator's command before the pane counts as busy."""
PROMPT_GRACE = 0.3
CLOSED_GRACE = 0.5  # the notification of a closed window may arrive after the error of a command for it
SETTLE_TIME = 1.5
SETTLE_STEP = 0.2
REPORT_TIMEOUT = 5.0
"""Seconds to wait at a deadline for the target's report of what is running, before the connection counts as lost."""
START_GRACE = 1.0
"""Maximum seconds for a typed job to start."""
SILENT = "the pane's shell did not report its prompt, as its prompt settings were changed; they have been restored"
UNSEEN = "the command's end was not seen in the terminal; the result is from the target's record"
END_LAG = 1.0
"""Maximum seconds by which a job's end marker may lag behind its exit file."""
DISPATCH_CONFIRM_TIMEOUT = 10.0
"""Seconds to wait for the start of a background command if the connection was lost while it was sent."""
FOREGROUND_CHECK_DELAYS = (1.0, 5.0, 30.0)
"""Seconds without output after which the foreground program is checked, once each."""


class _ReplacedError(Exception):
    """Nothing was typed, as the pane's first process is not the known one."""


@dataclass(frozen=True, slots=True)
class PaneRunner:
    """A runner of commands in panes; one instance serves all panes."""

    link: CommandChannel
    shell: PersistentShell
    store: JobStore
    tasks: BackgroundTasks
    owner: str
    cancelling: JobCanceller

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
        """Run a command, again if it is proved that it was not typed before the connection was lost."""
        deadline = anyio.current_time() + command.timeout
        notices: list[str] = []
        while True:
            notices += await self._prepare(pane)
            try:
                job = await self._dispatch(pane, command, on_job)
            except _ReplacedError:  # the preparation waits for the new shell, or raises an error that names the program
                if command.job_id is not None:
                    raise NotStarted from None
                continue
            job.notices[:0], notices = [*notices, *_news(pane)], []
            result = await (self._await(pane, job) if command.wait else self._begun(job))
            if job.unsent and command.job_id is not None:
                await self._forget(job)
                raise NotStarted
            if not job.unsent or anyio.current_time() > deadline:
                told = self.store.take_notices()
                return replace(result, notices=(*told, *result.notices)) if told else result
            await self._forget(job)
            command = replace(command, timeout=max(0.1, deadline - anyio.current_time()))

    async def _begun(self, job: PaneJob) -> ShellResult:
        """Return the first result of a background job, after checking that it could be stored and started."""
        if job.doubtful:
            with anyio.move_on_after(DISPATCH_CONFIRM_TIMEOUT):
                while not (job.started or job.done.is_set()):
                    await job.active.wait()
        if not job.unsent:
            await self._check_stored(job)
        if job.command.cwd:
            with anyio.move_on_after(REPORT_TIMEOUT):
                while job.entered is None and not job.done.is_set():
                    await job.active.wait()
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

    # -- before

    async def _prepare(self, pane: Pane) -> list[str]:
        """Wait for the pane's prompt, or raise an error that names what occupies it."""
        if pane.phase == "continuation":
            interrupt = type_text(self.link.setup.version, pane.pane_id, INTERRUPT)
            await self.link.request(while_known(pane, *interrupt, here=self.link.setup.here))
            await until_prompt(pane, 2.0)
        await self.settle(pane)  # a line editor that is not ready yet would show typed text twice
        if pane.phase == "starting":
            await self._first_prompt(pane)
        if pane.phase == "running":
            await self._free(pane)
        self._check_there(pane)
        if pane.ended_twice:
            await EndCheck(self.link, self.shell, self.store).check_again(pane)
        if due(pane, self.link.setup.config.job_log_max_bytes):
            await rotate_log(self.link, pane)
        return _news(pane)

    def _check_there(self, pane: Pane) -> None:
        """Check that the pane still exists, as a request may have waited for a new server with the same ids."""
        if pane.gone:
            raise PaneGone(f"pane {pane.name!r} was closed before the command was typed", target=self._target)

    async def settle(self, pane: Pane) -> None:
        """Wait briefly until the line editor is ready, as it would drop C-d, and show other keys twice."""
        if pane.phase == "ended":
            await until_prompt(pane, PROMPT_GRACE)

    async def _first_prompt(self, pane: Pane) -> None:
        config = self.link.setup.config
        if await until_prompt(pane, config.prompt_timeout):
            return
        front = await self.foreground(pane)  # the keyboard's reader may be a passphrase prompt: type into shells only
        self._check_there(pane)
        if front.may_be_prompt and front.is_own(await self._own_pid(pane)):
            pane.phase = "prompt"  # it has its hooks, and only its markers have not arrived
            return
        if front.is_shell and front.may_be_prompt and await self.adopt(pane, front):
            return
        screen = await self.screen(pane)
        raise ShellNotReady(
            f"the shell in pane {pane.name!r} showed no prompt within {config.prompt_timeout:g} s "
            f"({front.describe()}); its screen: {screen!r}",
            target=self._target,
            hint="attach and check the screen; a start-up file of the shell may be waiting for input",
        )

    async def _own_pid(self, pane: Pane) -> int:
        """Return the process id of the pane's own shell, or 0 until it has its hooks."""
        folder = shlex.quote(self.link.setup.pane_dir(pane.uid))
        reply = await self.shell.call(f"cd {folder} && [ ! -e starting ] && read -r p <pid && echo $p")
        pid = int(reply.text) if reply.text.strip().isdecimal() else 0
        pane.shells[0] = replace(pane.shells[0], pid=pid)
        return pid

    async def _free(self, pane: Pane) -> None:
        """Wait for a busy pane, or adopt the shell that runs in it, or raise an error that names what occupies it."""
        if (pane.job is None or pane.paused or not pane.running) and await until_prompt(pane, BUSY_PANE_TIMEOUT):
            return
        front = await self._settled(pane)
        self._check_there(pane)
        if not pane.paused and front.may_be_prompt and await self._taken_over(pane, front):
            return
        if pane.phase in ("prompt", "ended"):
            return
        if pane.phase == "starting":  # its shell exited meanwhile, and the new one is not ready yet
            await self._first_prompt(pane)
            return
        raise await self._held_by(pane, f"job {pane.running}" if pane.running else "a command that an operator typed")

    async def _taken_over(self, pane: Pane, front: Foreground) -> bool:
        """Use the foreground shell from now on, with or without markers; return False if that is not possible."""
        holder = pane.running
        own = front.is_own(pane.shells[0].pid)
        known = own or (front.group == pane.shell.pid and front.image == pane.shell.image)
        if known and not (await self.store.settle(str(holder)) if holder else front.editing):
            return False
        if own or (known and holder):  # it has its hooks, and only its prompt's markers have not arrived
            del pane.shells[1 if own else len(pane.shells) :]
            pane.phase, pane.running, pane.news = "prompt", 0, pane.news or SILENT
            return True
        if not await self.adopt(pane, front):
            return False
        if holder:
            await self.store.settle(str(holder), "inside")
            pane.held = pane.held or str(holder)  # the command that started this shell holds it
        return True

    async def _settled(self, pane: Pane) -> Foreground:
        """Return the foreground program, after giving a recent login some time to show its shell's prompt."""
        waiting = 0
        front = await self.foreground(pane)
        with anyio.move_on_after(SETTLE_TIME):
            while not front.may_be_prompt and pane.phase == "running" and waiting < 2:
                changed = pane.changed
                with anyio.move_on_after(SETTLE_STEP):
                    await changed.wait()
                front = await self.foreground(pane)
                waiting = waiting + 1 if front.wants_input else 0
        return front

    async def adopt(self, pane: Pane, front: Foreground) -> bool:
        """Install the markers in the shell that reads the pane's keyboard; return False if it did not answer."""
        return await install_markers(self.link, pane, front)

    # -- dispatch

    async def _dispatch(self, pane: Pane, command: Command, on_job: Callable[[Pane, PaneJob], None]) -> PaneJob:
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
        if command.user:
            await check_user(self.shell, command.user)
        body = wrap_command(command, job_id, self.store, pane.shell.kind, self._target, self.link.setup.hooks)
        if body.stdin is not None:
            await store_input(self.shell.transport, self.store.path(job_id, "in"), body.stdin)
        action, files = plan(self.link.setup, self.store, self.owner, pane, job, body, self._target)
        pane.jobs.append(job)
        command.announce(job_id)
        on_job(pane, job)
        try:
            deadline = anyio.current_time() + command.timeout
            while True:
                holder = await self._send(pane, job, files, action)
                if holder is None:
                    return job
                if not command.wait and command.pane is None:  # another background pane will do
                    raise await self._held_by(pane, f"job {holder}")
                await self._unrecord(job)
                await self._wait_for_holder(pane, holder)
                if anyio.current_time() > deadline:  # several holders in turn
                    raise await self._held_by(pane, f"job {holder}")
        except BaseException:
            if job in pane.jobs and not job.started:
                pane.jobs.remove(job)
                await self._forget(job)
            raise

    async def _check_stored(self, job: PaneJob) -> None:
        """Check that a background job's command could be stored, as its end is not awaited."""
        path, void = (shlex.quote(self.store.path(job.job_id, suffix)) for suffix in ("cmd", "void"))
        look = f"if [ -e {void} ]; then :; elif [ -s {path} ]; then echo stored; elif [ -e {path} ]; then echo; fi"
        with suppress(ConnectionLost, ConnectError):
            reply = await self.shell.call(look)
            if reply.stdout == b"\n":
                raise no_space(self._target)
            if not reply.stdout:  # it ended and was deleted, was cancelled, or its directory is missing
                with anyio.move_on_after(REPORT_TIMEOUT):
                    while not (job.started or job.done.is_set()):
                        await job.active.wait()

    async def _unrecord(self, job: PaneJob) -> None:
        """Empty the record of a job that waits, as others would take it for one that was started and has ended."""
        record, run, code = (shlex.quote(self.store.path(job.job_id, suffix)) for suffix in ("cmd", "run", "exit"))
        await self.shell.call(f": >{record}; rm -f {run} {code}")

    async def _forget(self, job: PaneJob) -> None:
        """Delete the record of a job that was never typed, as it would count as running forever."""
        files = " ".join(
            shlex.quote(self.store.path(job.job_id, suffix)) for suffix in ("cmd", "sh", "run", "in", "exit")
        )
        with anyio.CancelScope(shield=True), anyio.move_on_after(REPORT_TIMEOUT), suppress(HarnessError):
            await self.shell.call(f"rm -f {files}")

    async def _send(self, pane: Pane, job: PaneJob, files: list[SavedFile], action: Dispatch) -> str | None:
        """Type a job's input, and return the holder of the pane if it was not typed."""
        freed = release(pane.pane_id, pane.place, pane.held) if pane.held else []
        pane.held = job.job_id
        try:
            if self.link.setup.here:
                blocks = await self._type(pane, job.command.timeout, *freed, action.reserve())
                if not _refusal(blocks):
                    blocks = await self._type_there(pane, job, files, action)
            else:
                commands = [command for file in files for command in file.commands()]
                blocks = await self._type(pane, job.command.timeout, *freed, *commands, action.command())
        except ResponseLost:  # it may have been typed, which the output after the reconnect shows
            job.doubtful = True
            job.unanswered = time.monotonic() - job.began
            job.notices.append("connection lost while the command was being sent")
            job.touch()
            blocks = []
        refusal = _refusal(blocks)
        if refusal is None:
            self.tasks.start_soon(self._release_after, pane, job, action)
            await keep_limit(self.shell, job, self.link.setup.config.job_log_max_bytes)
            self.tasks.start_soon(report_streams, self.shell, self.store, job)
            return None
        pane.held = ""
        if refusal.startswith(OTHER):
            pane.news = pane.news or next(iter(job.notices), "")
            await self._see_replaced(pane, *replaced_by(refusal))
            raise _ReplacedError
        return refusal.removeprefix(BUSY)

    async def _see_replaced(self, pane: Pane, ours: bool, program: str) -> None:
        """Handle a pane that an operator has restarted, with harness's program or another one."""
        if ours and not self.link.setup.here:
            if pane.wrapper.partition(":")[0] != program.partition(":")[0]:
                pane.phase = "starting"  # it reports itself before its first prompt
            return
        if not self.link.setup.here:
            pane.wrapper = program
        pane.phase, pane.running, pane.news = "running", 0, REPLACED
        await self._end_replaced(pane)

    async def _end_replaced(self, pane: Pane, *jobs: PaneJob) -> None:
        """Finish the jobs of a replaced shell, whose ends are unknown."""
        del pane.shells[1:]
        for job in [job for job in reversed(pane.jobs) if job.started or job in jobs]:
            pane.jobs.remove(job)
            await self.store.settle(job.job_id)
            job.notices.append(REPLACED)
            job.finish(Status.UNKNOWN)

    async def _type(self, pane: Pane, timeout: float, *commands: tuple[str, ...]) -> list[Block]:
        """Send a request that must not reach another pane, as a new server reuses the ids of the old one."""
        while True:
            client = await self.link.ready(min(timeout, READY_TIMEOUT))
            await pane.certain()
            self._check_there(pane)
            try:
                with anyio.CancelScope(shield=True):  # the answer is needed to know whether it was typed
                    return await client.request(*commands, timeout=max(REPORT_TIMEOUT, min(timeout, REPLY_TIMEOUT)))
            except ResponseLost:
                raise
            except ConnectionLost:
                continue  # nothing was sent
            except TerminalError:  # an error ends the line before the keys, which are its last part
                with anyio.move_on_after(CLOSED_GRACE):
                    while not pane.gone:
                        await pane.changed.wait()
                self._check_there(pane)
                raise

    async def _type_there(self, pane: Pane, job: PaneJob, files: list[SavedFile], action: Dispatch) -> list[Block]:
        """Write the files after the pane is reserved, as the slot may be another job's until then, and type."""
        await self._save_there(files, action)
        return await self._type(pane, job.command.timeout, replace(action, slot=None, reserved=True).command())

    async def _save_there(self, files: list[SavedFile], action: Dispatch) -> None:
        """Write the files where the panes' shells run, which tmux cannot do, at one more round trip."""
        slot = [] if action.lines or action.slot is None else [action.slot]
        writes = "".join(f"printf %s {shlex.quote(file.text)} >{shlex.quote(file.path)}\n" for file in (*files, *slot))
        await self.shell.call(f"umask 077\n{writes}")

    async def _release_after(self, pane: Pane, job: PaneJob, action: Dispatch) -> None:
        await ensure_started(self.link, self.store, pane, job, action, self)
        await job.done.wait()
        with suppress(HarnessError):  # without a connection only the exit code is on the target
            await self._record_end(pane, job)
            await self._record_size(pane, job)
        with suppress(HarnessError):  # the record remains as its shell wrote it
            await self._check_end(pane, job)

    async def has_read(self, pane: Pane, job: PaneJob) -> bool:
        """Return False, as the stream shows that a job has started."""
        return False

    async def withdraw(self, pane: Pane, job: PaneJob) -> None:
        """Finish a job that its shell did not read."""
        pane.jobs.remove(job)
        job.finish(Status.UNKNOWN)

    async def _check_end(self, pane: Pane, job: PaneJob) -> None:
        """Release the pane, and check in the same round trip which process has its terminal."""
        check = EndCheck(self.link, self.shell, self.store)
        commands = self._releases(pane)
        if commands:
            blocks = await self.link.ask(*commands, _pipe_question(pane), check.question(pane))
            await self._see_logged(pane, blocks[-2].text)
            await check.check(pane, job, blocks[-1].text)
        await check.check_again(pane)

    async def release_idle(self, panes: Iterable[Pane]) -> None:
        """Release the panes that this process holds without a job; the keeper of a pane's own shell does so as well."""
        for pane in list(panes):
            commands = self._releases(pane)
            if not commands:
                continue
            try:
                blocks = await self.link.ask(*commands, _pipe_question(pane))
                await self._see_logged(pane, blocks[-1].text)
            except (ConnectionLost, TerminalError):
                return  # the next dispatch finds a holder whose job has ended, and clears it

    def _releases(self, pane: Pane) -> list[tuple[str, ...]]:
        """Return the commands that release a pane whose last job has ended; empty if there is nothing to release."""
        running = pane.job
        if not pane.held or pane.gone or (running and (running.job_id == pane.held or not running.started)):
            return []
        holder, pane.held = pane.held, running.job_id if running else ""
        return release(pane.pane_id, pane.place, holder, pane.held)

    async def _release_unkept(self, pane: Pane, job: PaneJob) -> None:
        """Unlock the keyboard before the caller gets its result, as it may then block the event loop.

        Only for panes without a keeper that can detect the end.
        """
        if self.link.setup.here:
            await self.release_idle([pane])
        elif job.nonce != pane.shells[0].nonce:
            self.tasks.start_soon(self.release_idle, [pane])  # sent while the end is recorded

    async def _see_logged(self, pane: Pane, answer: str) -> None:
        """Start a new log if none is written, as it was full, or an operator's pipe-pane replaced it and ended."""
        if not self.link.setup.logs or answer != "0":
            return
        with suppress(anyio.WouldBlock):  # a command is about to be typed, after which it can be started
            pane.lock.acquire_nowait()
            try:
                if not pane.jobs and not pane.gone and not pane.paused:
                    await begin_log(self.link, pane)
            finally:
                pane.lock.release()

    async def _wait_for_holder(self, pane: Pane, holder: str) -> None:
        """Wait briefly for the end of another harness's job that holds the pane; release the pane if it has ended."""
        holder_id = holder if holder.isdecimal() else "0"
        with anyio.move_on_after(BUSY_PANE_TIMEOUT):
            while True:
                calm = anyio.current_time() - pane.prompt_time > START_GRACE  # not being typed right now
                if await self.store.settle(holder_id, pane.at_prompt if calm else ""):
                    await self._end_seen(pane, holder)
                    await self.link.ask(*release(pane.pane_id, pane.place, holder))
                    return
                changed = pane.changed
                with anyio.move_on_after(1):
                    await changed.wait()
        raise await self._held_by(pane, f"job {holder}")

    @staticmethod
    async def _end_seen(pane: Pane, holder: str) -> None:
        """Wait for the holder's end marker after its exit code, as keys between the two are echoed into the output."""
        with anyio.move_on_after(END_LAG):
            while str(pane.last_ended) != holder and not pane.gone:
                await pane.changed.wait()

    async def _held_by(self, pane: Pane, holder: str) -> PaneBusy:
        if len(pane.shells) == 1:
            asked = await self.link.ask(("display-message", "-p", "-t", pane.pane_id, is_ours(pane.uid)))
            holder = holder if asked[-1].text == "1" else RESPAWNED
        front = await self.foreground(pane)
        return PaneBusy(
            f"pane {pane.name!r} is busy with {holder}: {front.describe()}",
            target=self._target,
            hint="answer it with harness keys, wait for it, kill it, or use another pane (--pane NAME)",
        )

    # -- while it runs

    async def _await(self, pane: Pane, job: PaneJob) -> ShellResult:
        try:
            with anyio.move_on_after(max(0.0, job.command.timeout - job.unanswered)) as waiting:
                job.when_callback_fails(waiting.cancel)
                await self._until_done(pane, job)
            if job.callback_error is not None and not job.done.is_set():
                await self._kill_with_proof(pane, job, Status.INTERRUPTED)
                raise job.callback_error
            await self._kill_unless_kept(pane, job)
            if job.done.is_set() and isinstance(self.link.failed, TargetGone):
                return job.result()
            if job.done.is_set():
                await self._release_unkept(pane, job)
                await job.all_reported()
                await self._record_end(pane, job)
                if await operator_typed_during(self.link, pane, job.seconds):
                    job.notices.append(TYPED_NOTICE)
                return await self.result(job)
            if not job.attention:
                front = await run_within(max(0.0, REPORT_TIMEOUT - job.unanswered), partial(self.foreground, pane))
                job.notices.append(f"still running: {front.describe()}")
            return await self.output_so_far(job)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._kill_with_proof(pane, job, Status.INTERRUPTED)
            raise
        except (ConnectionLost, ConnectError, TimeoutError):
            return replace(
                job.result(),
                status=Status.UNKNOWN,
                exit_code=None,
                notices=(*job.notices, no_answer(job, is_up=self.link.is_up)),
            )

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
        if not job.attention:
            await self._finish_if_ended(pane, job)
        if not (is_kept or job.done.is_set()):
            raise TimeoutError

    async def _finish_if_ended(self, pane: Pane, job: PaneJob) -> None:
        """Finish a job that has ended if its end has not been read by the deadline, e.g. as a callback is slow.

        Raises:
            TimeoutError: the target did not answer in time.
        """
        wait = max(0.0, REPORT_TIMEOUT - job.unanswered)
        if not job.done.is_set() and await run_within(wait, partial(self._ended_there, job)):
            await self._finish_as_recorded(pane, job)

    async def _ended_there(self, job: PaneJob) -> bool:
        await self.link.ready()
        return await self.store.settle(job.job_id)

    async def _record_end(self, pane: Pane, job: PaneJob) -> None:
        """Record what other harnesses cannot detect: the end in a nested shell, and an end by C-c."""
        unknown_there = job.nonce != pane.shells[0].nonce or job.status is Status.INTERRUPTED
        if job.exit_code is not None and unknown_there and job.ending is None:
            path = shlex.quote(self.store.path(job.job_id, "exit"))
            await self.shell.call(f"umask 077; echo {job.exit_code} {job.status} >{path}")

    async def _record_size(self, pane: Pane, job: PaneJob) -> None:
        """Record the size of the job's output if the log was too short for it."""
        if job.log == pane.log and pane.log_offset > self.link.setup.max_log_bytes and not pane.paused:
            path = shlex.quote(self.store.path(job.job_id, "size"))
            await self.shell.call(f"umask 077; echo {job.collector.total} >{path}")

    async def _until_done(self, pane: Pane, job: PaneJob) -> None:
        """Wait until the job has ended or, if it is kept on timeout, its program waits for input."""
        if job.command.on_timeout == "kill":
            await job.done.wait()
            return
        await self._watch(job, partial(self._needs_person, pane, job))

    async def until_over(self, pane: Pane, job: PaneJob) -> None:
        """Wait until the job has ended, or an operator has replaced its shell by another program."""
        await self._watch(job, partial(self._is_replaced, pane, job))

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

    async def _needs_person(self, pane: Pane, job: PaneJob) -> bool:
        if job.done.is_set():
            return True
        try:
            front = await self.foreground(pane)
            if await self._replaced(pane, job):
                return True
        except (ConnectionLost, ConnectError):
            return False  # the connection is restored before the timeout, or the outcome is unknown
        if not front.wants_input or await self._over(pane, job, front):
            return False
        if not job.started and job.watched:
            return False
        job.attention = True
        job.notices.append(front.describe())
        job.notices.append(f"the screen shows:\n{await self.screen(pane)}")
        await self.link.request(("select-pane", "-t", pane.pane_id, "-e"))
        return True

    async def _is_replaced(self, pane: Pane, job: PaneJob) -> bool:
        with suppress(ConnectionLost, ConnectError):
            return await self._replaced(pane, job)
        return False

    async def _replaced(self, pane: Pane, job: PaneJob) -> bool:
        """Return whether an operator has replaced the shell, and so this job, which is not visible in markers."""
        before = pane.wrapper
        if not before or self.link.setup.here:
            return False
        if (await self.link.ask(first_process(pane)))[-1].text == before:
            return False
        with anyio.move_on_after(END_LAG):  # a new shell of harness reports itself in a moment
            await job.done.wait()
        now = (await self.link.ask(first_process(pane)))[-1].text
        if job not in pane.jobs or pane.wrapper != before or now == before:
            return job.done.is_set()
        pane.wrapper = now
        await self._end_replaced(pane, job)
        return True

    async def _over(self, pane: Pane, job: PaneJob, front: Foreground) -> bool:
        """Return whether the job is over, and only its end marker has not arrived yet."""
        if job.done.is_set() or pane.paused:
            return True
        if front.is_own(pane.shell.pid) and front.may_be_prompt:
            if job.prompted:
                await self._end_unproved(pane, job)
            return True
        if await self._ended_there(job):
            await self._finish_as_recorded(pane, job)
            return True
        return job.done.is_set()

    async def _finish_as_recorded(self, pane: Pane, job: PaneJob) -> None:
        """Finish a job from the target's record of its end if the stream so far contains no end marker."""
        await job.done_or_quiet(END_LAG)
        if job.done.is_set():
            return
        await self.link.request(("display-message", "-p", ""))
        reply = await self.shell.call(self.store.reading(job.job_id, "exit"))
        record = recorded(reply.text, job.proof)
        if record is None or pane.paused or job not in pane.jobs:
            return
        pane.jobs.remove(job)
        job.notices.append(UNSEEN)
        job.finish_as_reported(record.status, record.exit_code)

    @staticmethod
    async def _end_unproved(pane: Pane, job: PaneJob) -> None:
        """Finish a job as unknown if its shell shows its prompt without a proved end."""
        with anyio.move_on_after(END_LAG):
            await job.done.wait()
        if job in pane.jobs:
            pane.jobs.remove(job)
            pane.phase, pane.running = "prompt", 0
            job.notices.append("the shell is at its prompt again, but did not report how the command ended")
            job.finish(Status.UNKNOWN)

    async def result(self, job: PaneJob) -> ShellResult:
        """Return the result of an ended job, and fetch its separate streams, if any.

        Raises:
            NoSpace: the target's disk was full, so that the command could not be stored, and nothing ran.
            FileError: its directory could not be entered, and nothing ran.
        """
        await self._check_entered(job)
        if job.unstored:
            await self._free_key(job)
            raise no_space(self._target)
        return await self.output_so_far(job)

    async def output_so_far(self, job: PaneJob) -> ShellResult:
        """Return the running job's result with its output so far."""
        return await with_streams(self.shell, self.store, job) if job.command.tty is False else job.result()

    async def foreground(self, pane: Pane) -> Foreground:
        """Return the pane's foreground program."""
        return await inspect(self.shell, *await terminal_of(pane, self.link.ask, here=self.link.setup.here))

    async def screen(self, pane: Pane) -> str:
        """Return the visible part of the pane, without empty lines at its end."""
        blocks = await self.link.ask(("capture-pane", "-p", "-J", "-t", pane.pane_id))
        return blocks[-1].text.rstrip()

    # -- ending it

    async def end(
        self, pane: Pane, job: PaneJob, status: Status, *, signal: str = "TERM", grace: float = TERM_GRACE
    ) -> None:
        """Terminate a job by interrupt, ``signal`` and KILL in turn, until its exit is confirmed."""
        ending = JobKiller(self.link, self.shell, self.store)
        await ending.end(pane, job, status, signal, grace, interrupt=signal in INTERRUPTING)


def _refusal(blocks: Iterable[Block]) -> str | None:
    """Return tmux's answer if it typed nothing, as the pane is held or runs another program; else None."""
    return next((block.text for block in blocks if block.text.startswith((BUSY, OTHER))), None)


def _news(pane: Pane) -> list[str]:
    """Return the notice about the pane's shell, if any, and clear it."""
    news, pane.news = pane.news, ""
    return [news] if news else []


def _pipe_question(pane: Pane) -> tuple[str, ...]:
    """Return the tmux command whose answer is 1 if a program receives the pane's output."""
    return "display-message", "-p", "-t", pane.pane_id, "#{pane_pipe}"
