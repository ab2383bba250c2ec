"""Panes whose output this process receives as a stream: their prompts, and the start and end of their jobs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import anyio

from harness.errors import ConnectError, ConnectionLost, HarnessError, ShellNotReady, TerminalError
from harness.results import ShellResult, Status
from harness.system.background_tasks import BackgroundTasks
from harness.system.waiting import run_within

from ...posix.jobs.launch import recorded
from ...posix.state_directory import JobStore
from ..channel.command_channel import CommandChannel
from ..jobs.false_end_check import EndCheck
from ..jobs.pane_job import PaneJob, read_buffered_output
from ..jobs.separate_streams import with_streams
from ..jobs.unstarted_commands import ensure_started
from ..naming import PaneRow
from ..pane.foreground import Foreground, PaneInspector
from ..pane.keyboard import INTERRUPT, Dispatch, release, type_text
from ..pane.nested_shells import install_markers, until_prompt, until_settled
from ..pane.pane_log import begin_log, due, rotate_log
from ..pane.pane_state import Pane
from ..pane.respawn_check import while_known
from ..setup import no_space
from .stream_gaps import StreamGaps

__all__ = ["LivePanes"]

BUSY_PANE_TIMEOUT = 5.0
"""Seconds to wait for another harness's or an operator's command before the pane counts as busy."""
GAP_TIMEOUT = 5.0
"""Seconds to wait until the output of a gap of the stream has been read."""
SETTLE_TIME = 1.5
SETTLE_STEP = 0.2
REPORT_TIMEOUT = 5.0
"""Seconds to wait for the start of a background command."""
START_GRACE = 1.0
"""Maximum seconds for a typed job to start."""
SILENT = "the pane's shell did not report its prompt, as its prompt settings were changed; they have been restored"
UNSEEN = "the command's end was not seen in the terminal; the result is from the target's record"
UNREPORTED = "the shell is at its prompt again, but did not report how the command ended"
END_LAG = 1.0
"""Maximum seconds by which a job's end marker may lag behind its exit file."""
DISPATCH_CONFIRM_TIMEOUT = 10.0
"""Seconds to wait for the start of a background command if the connection was lost while it was sent."""


@dataclass(slots=True)
class LivePanes:
    """The source of panes in control mode: the markers in the stream, and the target's records where they differ."""

    link: CommandChannel
    store: JobStore
    tasks: BackgroundTasks
    inspector: PaneInspector
    gaps: StreamGaps
    poll: float | None = None

    # -- panes

    async def attach(self, row: PaneRow, kind: str, add: Callable[[Pane], None]) -> Pane:
        """Add a pane with the state that the end of its log shows."""
        return await self.gaps.attach(row, kind, add)

    def found(self, pane: Pane, row: PaneRow) -> None:
        """Record that a pane still exists, in this window."""
        pane.found_in(row.window_id)

    def is_free(self, pane: Pane) -> bool:
        """Return whether a pane's shell shows its prompt, and no command is about to be typed."""
        return pane.phase in ("prompt", "ended") and not pane.jobs and not pane.lock.statistics().locked

    def describe(self, pane: Pane | None) -> str:
        """Return the state of a pane for the end of a line."""
        if pane is None:
            return ""
        state = {"prompt": "idle", "running": f"job {pane.running}" if pane.running else "operator"}
        return f" pane {pane.pane_id} {state.get(pane.phase, pane.phase)}"

    # -- before a command

    async def prepare(self, pane: Pane) -> list[str]:
        """Wait for the pane's prompt, or raise an error that names what occupies it."""
        if pane.phase == "continuation":
            interrupt = type_text(self.link.setup.version, pane.pane_id, INTERRUPT)
            await self.link.request(while_known(pane, *interrupt, here=self.link.setup.here))
            await until_prompt(pane, 2.0)
        await until_settled(pane)  # a line editor that is not ready yet would show typed text twice
        if pane.phase == "starting":
            await self._first_prompt(pane)
        if pane.phase == "running":
            await self._free(pane)
        if pane.paused and not pane.jobs:
            # The log may be full, so that a command must not depend on it.
            await pane.wait_until(lambda: not pane.paused, GAP_TIMEOUT)
        self.inspector.check_open(pane)
        if pane.ended_twice:
            await EndCheck(self.link, self.store).check_again(pane)
        if due(pane, self.link.setup.config.job_log_max_bytes):
            await rotate_log(self.link, pane)
        return []

    async def _first_prompt(self, pane: Pane) -> None:
        config = self.link.setup.config
        if await until_prompt(pane, config.prompt_timeout):
            return
        # The keyboard's reader may be a passphrase prompt: type into shells only.
        front = await self.inspector.foreground(pane)
        self.inspector.check_open(pane)
        if front.may_be_prompt and front.is_own(await self._own_pid(pane)):
            pane.learn_phase("prompt")  # it has its hooks, and only its markers have not arrived
            return
        if front.is_shell and front.may_be_prompt and await install_markers(self.link, pane, front):
            return
        screen = await self.inspector.screen(pane)
        raise ShellNotReady(
            f"the shell in pane {pane.name!r} showed no prompt within {config.prompt_timeout:g} s "
            f"({front.describe()}); its screen: {screen!r}",
            target=self.link.target,
            hint="attach and check the screen; a start-up file of the shell may be waiting for input",
        )

    async def _own_pid(self, pane: Pane) -> int:
        """Return the process id of the pane's own shell, or 0 until it has its hooks."""
        folder = shlex.quote(self.link.setup.pane_dir(pane.uid))
        reply = await self.link.shells.call(f"cd {folder} && [ ! -e starting ] && read -r p <pid && echo $p")
        pid = int(reply.text) if reply.text.strip().isdecimal() else 0
        pane.learn_shell(pid)
        return pid

    async def _free(self, pane: Pane) -> None:
        """Wait for a busy pane, or adopt the shell that runs in it, or raise an error that names what occupies it."""
        if (pane.job is None or pane.paused or not pane.running) and await until_prompt(pane, BUSY_PANE_TIMEOUT):
            return
        front = await self._settled(pane)
        self.inspector.check_open(pane)
        if not pane.paused and front.may_be_prompt and await self._taken_over(pane, front):
            return
        if pane.phase in ("prompt", "ended"):
            return
        if pane.phase == "starting":  # its shell exited meanwhile, and the new one is not ready yet
            await self._first_prompt(pane)
            return
        holder = f"job {pane.running}" if pane.running else "a command that an operator typed"
        raise await self.inspector.busy(pane, holder)

    async def _taken_over(self, pane: Pane, front: Foreground) -> bool:
        """Use the foreground shell from now on, with or without markers; return False if that is not possible."""
        holder = pane.running
        own = front.is_own(pane.shells[0].pid)
        known = own or (front.group == pane.shell.pid and front.image == pane.shell.image)
        if known and not (await self.store.settle(str(holder)) if holder else front.editing):
            return False
        if own or (known and holder):  # it has its hooks, and only its prompt's markers have not arrived
            if own:
                pane.leave_nested()
            pane.learn_phase("prompt")
            pane.news = pane.news or SILENT
            return True
        if not await install_markers(self.link, pane, front):
            return False
        if holder:
            await self.store.settle(str(holder), "inside")
            pane.held = pane.held or str(holder)  # the command that started this shell holds it
        return True

    async def _settled(self, pane: Pane) -> Foreground:
        """Return the foreground program, after giving a recent login some time to show its shell's prompt."""
        waiting = 0
        front = await self.inspector.foreground(pane)
        with anyio.move_on_after(SETTLE_TIME):
            while not front.may_be_prompt and pane.phase == "running" and waiting < 2:
                changed = pane.changed
                with anyio.move_on_after(SETTLE_STEP):
                    await changed.wait()
                front = await self.inspector.foreground(pane)
                waiting = waiting + 1 if front.wants_input else 0
        return front

    # -- a pane that another harness holds

    async def wait_for_holder(self, pane: Pane, holder: str) -> None:
        """Wait briefly for the end of another harness's job that holds the pane; release the pane if it has ended."""
        holder_id = holder if holder.isdecimal() else "0"
        with anyio.move_on_after(BUSY_PANE_TIMEOUT):
            while True:
                calm = anyio.current_time() - pane.prompt_time > START_GRACE  # not being typed right now
                if await self.store.settle(holder_id, pane.at_prompt if calm else ""):
                    # Keys between its exit code and its end marker are echoed into the output.
                    await pane.wait_until(lambda: str(pane.last_ended) == holder, END_LAG)
                    await self.link.ask(*release(pane.pane_id, pane.place, holder))
                    return
                changed = pane.changed
                with anyio.move_on_after(1):
                    await changed.wait()
        raise await self.inspector.busy(pane, f"job {holder}")

    # -- while it runs

    async def watch(self, pane: Pane, job: PaneJob, action: Dispatch) -> None:
        """Ensure that a typed job starts, wait for its end, and release the pane."""
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
        pane.end_job(job, Status.UNKNOWN)

    async def until_begun(self, job: PaneJob) -> None:
        """Wait until it is known whether a background job could be stored, started, and enter its directory."""
        if job.doubtful:
            await job.wait_until(lambda: job.started, DISPATCH_CONFIRM_TIMEOUT)
        if not job.unsent:
            await self._check_stored(job)
        if job.command.cwd:
            await job.wait_until(lambda: job.entered is not None, REPORT_TIMEOUT)

    async def _check_stored(self, job: PaneJob) -> None:
        """Check that a background job's command could be stored, as its end is not awaited."""
        path, void = (shlex.quote(self.store.path(job.job_id, suffix)) for suffix in ("cmd", "void"))
        look = f"if [ -e {void} ]; then :; elif [ -s {path} ]; then echo stored; elif [ -e {path} ]; then echo; fi"
        with suppress(ConnectionLost, ConnectError):
            reply = await self.link.shells.call(look)
            if reply.stdout == b"\n":
                raise no_space(self.link.target)
            if not reply.stdout:  # it ended and was deleted, was cancelled, or its directory is missing
                await job.wait_until(lambda: job.started, REPORT_TIMEOUT)

    # -- its end

    async def is_over(self, pane: Pane, job: PaneJob, front: Foreground) -> bool:
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

    @staticmethod
    async def _end_unproved(pane: Pane, job: PaneJob) -> None:
        """Finish a job as unknown if its shell shows its prompt without a proved end."""
        with anyio.move_on_after(END_LAG):
            await job.done.wait()
        if pane.end_job(job, Status.UNKNOWN, notice=UNREPORTED):
            pane.learn_phase("prompt")

    async def finish_if_ended(self, pane: Pane, job: PaneJob, timeout: float) -> None:
        """Finish a job that has ended if its end has not been read by the deadline, e.g. as a callback is slow.

        Raises:
            TimeoutError: the target did not answer in time.
        """
        if await run_within(timeout, partial(self._ended_there, job)):
            await self._finish_as_recorded(pane, job)

    async def _ended_there(self, job: PaneJob) -> bool:
        await self.link.ready()
        return await self.store.settle(job.job_id)

    async def _finish_as_recorded(self, pane: Pane, job: PaneJob) -> None:
        """Finish a job from the target's record of its end if the stream so far contains no end marker."""
        await job.done_or_quiet(END_LAG)
        if job.done.is_set():
            return
        await self.link.request(("display-message", "-p", ""))
        reply = await self.link.shells.call(self.store.reading(job.job_id, "exit"))
        record = recorded(reply.text, job.proof)
        if record is not None and not pane.paused:
            pane.end_job(job, record.status, record.exit_code, notice=UNSEEN)

    async def record_end(self, pane: Pane, job: PaneJob) -> None:
        """Release a pane that has no keeper, and record what other harnesses cannot detect."""
        await self._release_unkept(pane, job)
        await self._record_end(pane, job)

    async def _record_end(self, pane: Pane, job: PaneJob) -> None:
        """Record what other harnesses cannot detect: the end in a nested shell, and an end by C-c."""
        unknown_there = job.nonce != pane.shells[0].nonce or job.status is Status.INTERRUPTED
        if job.exit_code is not None and unknown_there and job.ending is None:
            path = shlex.quote(self.store.path(job.job_id, "exit"))
            await self.link.shells.call(f"umask 077; echo {job.exit_code} {job.status} >{path}")

    async def _record_size(self, pane: Pane, job: PaneJob) -> None:
        """Record the size of the job's output if the log was too short for it."""
        if job.log == pane.log and pane.log_offset > self.link.setup.max_log_bytes and not pane.paused:
            path = shlex.quote(self.store.path(job.job_id, "size"))
            await self.link.shells.call(f"umask 077; echo {job.collector.total} >{path}")

    async def _check_end(self, pane: Pane, job: PaneJob) -> None:
        """Release the pane, and check in the same round trip which process has its terminal."""
        check = EndCheck(self.link, self.store)
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

    # -- its output

    async def output_so_far(self, pane: Pane, job: PaneJob) -> ShellResult:
        """Return the running job's result with its output so far."""
        return await with_streams(self.link.shells, self.store, job) if job.command.tty is False else job.result()

    async def buffered_output(self, pane: Pane, job: PaneJob, offset: int, wait: float) -> ShellResult | None:
        """Return the output that the stream has delivered."""
        return await read_buffered_output(job, offset, wait)

    def check_followable(self, pane: Pane, job: PaneJob) -> None:
        """Accept every job, as each pane has a log."""


def _pipe_question(pane: Pane) -> tuple[str, ...]:
    """Return the tmux command whose answer is 1 if a program receives the pane's output."""
    return "display-message", "-p", "-t", pane.pane_id, "#{pane_pipe}"
