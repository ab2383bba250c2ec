"""Panes without a stream: a watch on the target learns of the end of a job, whose output is then read."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import anyio

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

from ...posix.jobs.launch import Outcome, recorded
from ...posix.pane_jobs.end_proof import proves_end
from ...posix.state_directory import JobStore
from ..channel.single_commands import SingleCommands, until_script
from ..jobs.pane_job import PaneJob, entered
from ..jobs.separate_streams import with_streams
from ..jobs.unstarted_commands import ensure_started, has_read_slot
from ..naming import PANE_FORMAT, PaneRow, parse_panes
from ..pane.foreground import Foreground, PaneInspector
from ..pane.keyboard import Dispatch, release
from ..pane.pane_state import Pane
from ..setup import pane_files_missing, state_question
from .job_output import (
    PaneFacts,
    WaitResult,
    facts_script,
    follow_log,
    parse_ended,
    parse_facts,
    read_output,
    read_partial_output,
    read_unended,
    watch_script,
)

__all__ = ["TargetWatch"]

FOREIGN_WAIT = 5.0
"""Seconds to wait for another harness's or an operator's command before the pane counts as busy."""
WATCH = 600.0
"""Seconds after which the watch on the target is restarted."""
RETRY = 1.0
POLL = 0.5
REPORT_TIMEOUT = 5.0
"""Seconds to wait for the output of a job that has ended on the target."""
WITHDRAWN = "128 unknown"
"""The content of the exit file of a withdrawn command."""
GONE = "the pane was closed or its shell was replaced while the command was running"
FROM_PROMPT = "the shell did not record an exit code; this one is from the prompt"
NESTED_HINT = "commands in a nested shell need tmux's control mode"
TO_FRONT = r"""
front() {{
  if read -r line <"/proc/$1/stat"; then set -- ${{line##*) }}; [ "$3" = "$6" ]
  else set -- "$1" $(ps -o tpgid= -o pgid= -p "$1"); [ -n "$2" ] && [ "$2" = "$3" ]; fi 2>/dev/null
}}
"""


@dataclass(slots=True)
class _Known:
    """What was last queried of a pane."""

    holder: str = ""
    cwd: str = ""
    logged: int | None = None
    """The size of the pane's log; None without one."""
    shell: int = 0
    """The process id of the shell that ran this process's last command."""


class TargetWatch:
    """The source of panes without control mode: each use queries tmux and the pane's files again."""

    poll: float | None = POLL

    def __init__(self, tmux: SingleCommands, store: JobStore, tasks: BackgroundTasks, inspector: PaneInspector) -> None:
        self.inspector = inspector
        self._tmux = tmux
        self._store = store
        self._tasks = tasks
        self._known: dict[str, _Known] = {}

    # -- panes

    async def attach(self, row: PaneRow, kind: str, add: Callable[[Pane], None]) -> Pane:
        """Add a pane; its files are read again before each command."""
        pane = Pane(row.pane_id, row.window_id, row.name, row.uid, kind, "-", self._tmux.setup.scope)
        facts = await self._facts(pane)
        if facts is not None:
            self._set_shell(pane, facts)
        self.found(pane, row)
        add(pane)
        return pane

    def found(self, pane: Pane, row: PaneRow) -> None:
        """Record that a pane still exists, and what tmux knows of it."""
        pane.found_in(row.window_id)
        pane.wrapper = f"{row.pid}:{row.tty}"
        known = self._of(pane)
        known.holder, known.cwd = row.busy, row.cwd
        self._set_directory(pane)

    def _of(self, pane: Pane) -> _Known:
        return self._known.setdefault(pane.uid, _Known())

    def _set_directory(self, pane: Pane) -> None:
        """Set the directory of a pane's shell; until that has started, tmux reports its server's instead."""
        pane.cwd = self._of(pane).cwd if pane.shell.pid else ""

    def is_free(self, pane: Pane) -> bool:
        """Return whether no job holds a pane, as far as tmux knew when it listed the panes."""
        return not (self._of(pane).holder or pane.jobs or pane.lock.statistics().locked)

    def describe(self, pane: Pane | None) -> str:
        """Return why no state is known."""
        return " without control mode"

    # -- before a command

    async def prepare(self, pane: Pane) -> list[str]:
        """Wait for the pane's shell and its prompt, or raise an error that names what occupies it."""
        await self._find(pane)
        await self._look(pane)
        known = self._of(pane)
        if known.holder:
            await self.wait_for_holder(pane, known.holder)
        await self._wait_for_front(pane)
        before, known.shell = known.shell, pane.shell.pid
        if before in (0, known.shell):
            return []
        return ["the pane's shell had exited; this is a new one"]

    async def _find(self, pane: Pane) -> None:
        """Query again what tmux knows of a pane.

        Raises:
            PaneGone: it was closed.
        """
        question = ("display-message", "-p", "-t", pane.pane_id, PANE_FORMAT)
        try:
            rows = parse_panes((await self._tmux.ask(question))[-1].text)
        except TerminalError:  # tmux does not know it, or its server has exited
            rows = []
        row = next((row for row in rows if row.uid == pane.uid), None)
        if row is None:
            why = f"pane {pane.name!r} was closed before the command was typed"
            raise PaneGone(why, target=self._tmux.target)
        self.found(pane, row)

    async def _look(self, pane: Pane) -> None:
        """Wait for the pane's shell to start, then read the pane's files.

        Raises:
            ShellNotReady: it did not start in ``prompt_timeout`` seconds.
            TerminalError: the pane's files were deleted.
        """
        setup, limit = self._tmux.setup, self._tmux.setup.config.prompt_timeout
        folder = setup.pane_dir(pane.uid)
        facts = await self._facts(pane)
        if facts is not None and not facts.pid:
            started = until_script("[ ! -e starting ] && [ -s pid ]", limit)
            await self._tmux.beside(f"cd {shlex.quote(folder)} && {started}", limit + 1)
            facts = await self._facts(pane)
        if facts is None:
            state = (await self._tmux.request(state_question(pane.pane_id)))[-1].text
            raise pane_files_missing(pane.name, state, setup, self._tmux.target)
        if not facts.pid:
            raise ShellNotReady(
                f"the shell in pane {pane.name!r} did not start within {limit:g} s",
                target=self._tmux.target,
                hint="attach and check the screen; a start-up file of the shell may be waiting for input",
            )
        self._set_shell(pane, facts)

    def _set_shell(self, pane: Pane, facts: PaneFacts) -> None:
        self._of(pane).logged = facts.logged
        pane.learn_log(facts.log_number, facts.logged or 0)
        pane.learn_shell(facts.pid, facts.nonce)
        self._set_directory(pane)

    async def _facts(self, pane: Pane) -> PaneFacts | None:
        setup = self._tmux.setup
        reply = await self._tmux.shell.call(facts_script(setup.pane_dir(pane.uid), setup.tmux, pane.pane_id))
        return parse_facts(reply.text)

    async def wait_for_holder(self, pane: Pane, holder: str) -> None:
        """Wait briefly for the end of the job that holds the pane; release the pane if its harness has exited."""
        ours = next((job for job in pane.jobs if job.job_id == holder), None)
        if ours is not None:
            with anyio.move_on_after(FOREIGN_WAIT):
                await ours.done.wait()
                return
        else:
            holder_id = holder if holder.isdecimal() else "0"
            ended = self._store.ended(holder_id)
            reply = await self._tmux.beside(until_script(f"{{ {ended}; }}", FOREIGN_WAIT), FOREIGN_WAIT + 1)
            over = reply is not None and reply.exit_code == 0
            if over or await self._store.settle(holder_id, await self._at_prompt(pane)):
                await self._tmux.request(*release(pane.pane_id, pane.place, holder))
                return
        raise await self._busy(pane, f"job {holder}")

    async def _at_prompt(self, pane: Pane) -> str:
        """Return ``own`` if the pane's shell seems to be at its prompt, else an empty string."""
        front = await self.inspector.foreground(pane)
        return "own" if front.is_own(pane.shell.pid) and front.may_be_prompt else ""

    async def _wait_for_front(self, pane: Pane) -> None:
        """Wait until the pane's shell itself reads the keyboard, not a program that it runs."""
        front = await self.inspector.foreground(pane)
        if front.is_own(pane.shell.pid):
            return
        if front.group == pane.shell.pid:
            raise await self._busy(pane, "a program that the pane's shell became (exec)")
        script = TO_FRONT.format() + until_script(f"front {pane.shell.pid}", FOREIGN_WAIT)
        reply = await self._tmux.beside(script, FOREIGN_WAIT + 1)
        if reply is None or reply.exit_code != 0:
            raise await self._busy(pane, "a command that an operator typed, or a nested shell")

    async def _busy(self, pane: Pane, holder: str) -> PaneBusy:
        error = await self.inspector.busy(pane, holder)
        return PaneBusy(error.message, target=error.target, hint=f"{error.hint}; {NESTED_HINT}")

    # -- while it runs

    async def watch(self, pane: Pane, job: PaneJob, action: Dispatch) -> None:
        """Wait for a job's end, independently of callers, and read its output."""
        self._tasks.start_soon(ensure_started, self._tmux, self._store, pane, job, action, self)
        async with anyio.create_task_group() as live:
            if job.command.on_output is not None and job.command.tty is not False and self._is_logged(pane):
                live.start_soon(follow_log, self._tmux, job)
            ended = await self._until_ended(pane, job)
            live.cancel_scope.cancel()
        while True:
            try:
                self._finish(pane, job, await self._conclude(pane, job, ended))
                return
            except (ConnectionLost, ConnectError):
                await anyio.sleep(RETRY)
            except HarnessError as error:
                job.notices.append(f"the output could not be read: {error.message}")
                self._finish(pane, job, _outcome(ended, job))
                return

    def _is_logged(self, pane: Pane) -> bool:
        return self._of(pane).logged is not None

    async def has_read(self, pane: Pane, job: PaneJob) -> bool:
        """Return whether the pane's shell has read the job, as no stream shows that it has started."""
        slot = f"{self._tmux.setup.pane_dir(pane.uid)}/next"
        return await has_read_slot(self._tmux.shells, slot, job.job_id)

    async def withdraw(self, pane: Pane, job: PaneJob) -> None:
        """Record that a job will not run, which the watch detects."""
        path = shlex.quote(self._store.path(job.job_id, "exit"))
        await self._tmux.shell.call(f"umask 077; [ -s {path} ] || echo {WITHDRAWN} >{path}")

    async def until_begun(self, job: PaneJob) -> None:
        """Return at once: the job was stored before it was typed, and nothing reports its start."""

    async def _until_ended(self, pane: Pane, job: PaneJob) -> WaitResult:
        files, log = self._store.path(job.job_id, ""), f"{self._tmux.setup.root}/{job.log}"
        script = watch_script(job, pane, self._tmux.setup.tmux, files.rstrip("."), log, WATCH)
        while True:
            try:
                reply = await self._tmux.beside(script, WATCH + 10)
                ended = parse_ended(reply.text) if reply is not None else None
                if ended is not None and await self._proved(pane, job, ended):
                    return ended
            except TargetGone as error:
                job.notices.append(f"{error.message} while the command ran")
                return WaitResult("gone", "")
            except (ConnectionLost, ConnectError):
                await anyio.sleep(RETRY)

    async def _proved(self, pane: Pane, job: PaneJob, ended: WaitResult) -> bool:
        """Check an end: a marker needs the job's secret, and a tag, which programs can print, the shell's prompt."""
        if ended.how == "mark" and not proves_end(ended.secret, job.proof):
            await anyio.sleep(RETRY)
            return False
        if ended.how != "tag" or await self._at_prompt(pane):
            return True
        await anyio.sleep(RETRY)
        return False

    # -- its end

    async def _conclude(self, pane: Pane, job: PaneJob, ended: WaitResult) -> Outcome | None:
        """Read the output, store what other harnesses need, and release the pane."""
        if ended.how == "gone":
            return None
        if ended.words == WITHDRAWN:
            if not job.notices:
                job.notices.append(GONE)
            if self._is_logged(pane):
                await read_unended(self._tmux, job)
            await self._release(pane, job)
            return Outcome(Status.UNKNOWN)
        logged = self._is_logged(pane)
        tagged = await read_output(self._tmux, job, pane, logged)
        if ended.how == "tag" and tagged is not None and tagged.exit_code is not None:
            ended = WaitResult("tag", f"{tagged.exit_code} completed {job.secret}")
            job.notices.append(FROM_PROMPT)
        await self._keep(job, ended, None if logged or tagged is None else tagged.text)
        await self._release(pane, job)
        if not job.cwd:
            shown = await self._tmux.request(("display-message", "-p", "-t", pane.pane_id, "#{pane_current_path}"))
            job.cwd = shown[0].text or None
        outcome = _outcome(ended, job)
        if job.command.cwd and outcome is not None and outcome.exit_code == 1:
            await self._read_refusal(job)
        return outcome

    async def _release(self, pane: Pane, job: PaneJob) -> None:
        if pane.held == job.job_id:
            pane.held = ""
        await self._tmux.request(*release(pane.pane_id, pane.place, job.job_id))

    async def _keep(self, job: PaneJob, ended: WaitResult, text: str | None) -> None:
        """Store an exit code that the shell did not write, and output that is not in a log."""
        code, out = (shlex.quote(self._store.path(job.job_id, suffix)) for suffix in ("exit", "out"))
        script = ""
        if ended.how != "exit" and ended.words:
            script += f"[ -s {code} ] || echo {shlex.quote(ended.words)} >{code}\n"
        if text is not None and job.command.tty is not False:
            script += f"printf %s {shlex.quote(text)} >{out}\n"
        if script:
            await self._tmux.shell.call(f"umask 077\n{script}")

    async def _read_refusal(self, job: PaneJob) -> None:
        """Read why the job's directory could not be entered, if its wrapper recorded that."""
        why = (await self._tmux.shell.call(self._store.reading(job.job_id, "why"))).text.strip()
        if proves_end(why.partition(";")[2], job.proof):
            job.entered = entered(why)

    def _finish(self, pane: Pane, job: PaneJob, outcome: Outcome | None) -> None:
        pane.remove_job(job)
        if outcome is None:
            if not job.done.is_set():
                job.notices.append(GONE)
            job.finish(Status.UNKNOWN)
            return
        if outcome.status is Status.SHELL_EXITED:
            job.notices.append("the shell exited; a new shell was started")
            self._of(pane).shell = 0
        job.finish_as_reported(outcome.status, outcome.exit_code, job.cwd)

    async def is_over(self, pane: Pane, job: PaneJob, front: Foreground) -> bool:
        """Return whether the pane's shell is at its prompt, or the job has ended on the target."""
        is_prompt = front.is_own(pane.shell.pid) and front.raw
        return is_prompt or job.done.is_set() or await self._ended_there(job)

    async def finish_if_ended(self, pane: Pane, job: PaneJob, timeout: float) -> None:
        """Wait for the output of a job that has ended on the target.

        Raises:
            TimeoutError: the target did not answer in time.
        """
        if await run_within(timeout, partial(self._ended_there, job)):
            await job.done_or_quiet(REPORT_TIMEOUT)

    async def _ended_there(self, job: PaneJob) -> bool:
        return await self._store.settle(job.job_id)

    async def record_end(self, pane: Pane, job: PaneJob) -> None:
        """Do nothing, as the watch has recorded the end and released the pane."""

    # -- its output

    async def output_so_far(self, pane: Pane, job: PaneJob) -> ShellResult:
        """Return the running job's result with its output so far."""
        if job.command.tty is False:
            return await with_streams(self._tmux.shells, self._store, job)
        if job.done.is_set():
            return job.result()
        data = await read_partial_output(self._tmux, job, pane, logged=self._is_logged(pane))
        return job.result() if job.done.is_set() else job.result(stdout=data)

    async def buffered_output(self, pane: Pane, job: PaneJob, offset: int, wait: float) -> ShellResult | None:
        """Return the output from the scrollback; None if it can be read from a file."""
        if job.command.tty is False or self._is_logged(pane):
            return None
        with anyio.move_on_after(wait):
            await job.done.wait()
        found = await self.output_so_far(pane, job)
        return found if not found.truncated else None

    def check_followable(self, pane: Pane, job: PaneJob) -> None:
        """Check that a running job's pane has a log.

        Raises:
            UnsupportedOperation: it has none.
        """
        if not (self._is_logged(pane) or job.done.is_set()):
            raise UnsupportedOperation(
                "the output of a running command cannot be followed here: its pane has no log",
                target=self._tmux.target,
                hint="wait for its end, or allow tmux's control mode or pipe-pane there",
            )

    async def release_idle(self, panes: Iterable[Pane]) -> None:
        """Do nothing, as the watch has released each pane."""


def _outcome(ended: WaitResult, job: PaneJob) -> Outcome | None:
    """Return the status and exit code of an end, or None if neither is known."""
    return recorded(f"{ended.words}\n", job.proof)
