"""The state of one managed pane, derived from its byte stream: its shell, its prompt, the running command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import anyio

from harness.results import Status

from ...posix.pane_jobs.end_proof import TWICE, proves_end
from ...posix.pane_jobs.prompt_markers import PromptMarker, PromptMarkerScanner
from ..jobs.pane_job import UNREAD, PaneJob, entered
from .pane_watchers import JobReport, PaneWatchers, TakePicture, Watcher

__all__ = ["Pane", "PaneShell", "Phase"]

Phase = Literal["starting", "prompt", "ended", "running", "continuation"]
MISSED = 1 << 16


@dataclass(frozen=True, slots=True)
class PaneShell:
    """A pane's own shell, or one nested in it, with markers installed; ``files``: it can read job files."""

    nonce: str
    kind: str
    files: bool = False
    pid: int = 0
    image: str = ""
    """The value of :attr:`.Foreground.image` when the markers were installed."""


class Pane:
    """A pane and its running command; it is fed with the pane's output in order, and does no I/O."""

    def __init__(
        self, pane_id: str, window_id: str, name: str, uid: str, kind: str, nonce: str, scope: str = "-w"
    ) -> None:
        self.pane_id = pane_id
        self.window_id = window_id
        self.place = (scope, "-t", pane_id)
        """The arguments of ``set-option`` that select where its options are stored."""
        self.name = name
        self.uid = uid
        self.shells = [PaneShell(nonce, kind, files=True)]
        self.lock = anyio.Lock()
        self.reattaching = anyio.Lock()
        """Held while its state is set from the end of its log."""
        self.phase: Phase = "starting"
        self.running = 0
        """The id of the running job, also of another harness process; 0 is an operator's command."""
        self.last_ended = 0
        """The id of the job that ended last, of any harness process."""
        self.cwd = ""
        self.wrapper = ""
        """``PID:TTY`` of the pane's first process, where its shell runs."""
        self.kind: str | None = None
        """The kind that a nested shell answered with when it was asked."""
        self.log_number = 0
        self.log_offset = 0
        self.jobs: list[PaneJob] = []
        """This process's unfinished jobs; the innermost shell's is last."""
        self.held = ""
        """The job for which this process set the busy option."""
        self.gone = False
        self.in_doubt = False
        """tmux reported that its window was closed, which is not confirmed yet."""
        self.news = ""
        """A notice about its shell for the next caller."""
        self.changed = anyio.Event()
        self.prompt_time = 0.0
        """When its shell last showed its prompt, by the event loop's clock."""
        self.operator_command_count = 0
        """The number of an operator's commands, in some shells including empty ones."""
        self.typed = -60.0
        """When a caller of this process last typed into it."""
        self.ended_twice: list[PaneJob] = []
        """Jobs whose end was reported again after they had ended."""
        self._last: PaneJob | None = None
        """The job that ended last, until something else runs or the stream is read again."""
        self._scanner = PromptMarkerScanner(nonce)
        self.paused = False
        """True if the live stream has a gap; the log is read instead until the job has ended."""
        self.missed = bytearray()
        """The live output since the gap, while no job of this process runs."""
        self.watchers: PaneWatchers | None = None
        """Those who watch it live; None while nobody does."""
        self._is_hidden = False

    @property
    def shell(self) -> PaneShell:
        """The innermost shell."""
        return self.shells[-1]

    @property
    def job(self) -> PaneJob | None:
        """This process's unfinished job in the innermost shell, or the one that started that shell."""
        return self.jobs[-1] if self.jobs else None

    @property
    def log(self) -> str:
        """The log, relative to the state directory."""
        return f"panes/{self.uid}/log.{self.log_number}"

    @property
    def at_prompt(self) -> str:
        """The shell that shows its prompt: the pane's ``own``, one ``inside`` it, or none if empty."""
        if self.phase != "prompt" or self.paused or self.gone:
            return ""
        return "own" if len(self.shells) == 1 else "inside"

    def receive(self, data: bytes) -> None:
        """Add bytes from the live stream, and show them to the watchers."""
        if self.watchers is None:
            self.feed(data)
            return
        for piece, shown in self.watchers.split(data):
            self.watchers.add_output(shown)
            self.feed(piece)

    def feed(self, data: bytes) -> None:
        """Add bytes from the live stream."""
        if self.paused:
            if self.job is not None:
                self.job.touch()
            self.missed += data
            del self.missed[:-MISSED]
            return
        self.log_offset += len(data)
        self.scan(data)

    def scan(self, data: bytes) -> None:
        """Process bytes from the stream, or from the log where the stream has a gap."""
        for piece in self._scanner.feed(data):
            job = self.job
            if isinstance(piece, bytes):
                if job is not None and job.takes_output and job.nonce == self.shell.nonce:
                    job.feed(piece)
            elif job is not None and job.is_output(piece) and not self._begins_anew(piece):
                job.feed(piece.raw)
            elif any(shell.nonce == piece.nonce for shell in self.shells):  # not of a shell that has just exited
                self.apply(piece)

    def pause(self) -> None:
        """Record that the stream has, or may have, a gap before its next bytes."""
        self.paused = True
        self.missed.clear()
        self.lose_step()

    def lose_step(self) -> None:
        """Record that watchers need a new screen, as they miss output."""
        if self.watchers is not None:
            self.watchers.lose_step()

    def settle(self, logged: bytes, offset: int) -> None:
        """Close a gap with the end of the log, which reached to ``offset``, and the stream's bytes since.

        The two may overlap, which is harmless, as the later markers decide.
        """
        self.paused = False
        self.restart_scan()
        self.scan(logged)
        self.restart_scan()
        self.scan(bytes(self.missed))
        self.missed.clear()
        self.log_offset = offset
        self.notify()

    def restart_scan(self) -> None:
        """Drop a partial marker: the next bytes have another source, and may repeat markers."""
        self._last = None
        self._scanner = PromptMarkerScanner(*(shell.nonce for shell in self.shells))

    def push_shell(self, shell: PaneShell) -> None:
        """Expect the markers of a nested shell too."""
        self.shells.append(shell)
        if self.watchers is not None:
            self.watchers.expect([shell.nonce])
        self.restart_scan()

    def adopt_shell(self, nonce: str, kind: str, image: str) -> None:
        """Record the kind of a nested shell, which is about to get its markers and then shows its prompt."""
        self.shells[-1] = PaneShell(nonce, kind, image=image)
        self.phase = "starting"

    def pop_shell(self, nonce: str) -> None:
        """Remove a nested shell that did not answer, as it may have exited."""
        if len(self.shells) > 1 and self.shell.nonce == nonce:
            self.shells.pop()
            self.restart_scan()

    # -- what is learned elsewhere than in its output

    def add_job(self, job: PaneJob) -> None:
        """Record that a job is about to be typed into the innermost shell."""
        self.jobs.append(job)

    def remove_job(self, job: PaneJob) -> bool:
        """Let the pane's output change a job no more; return False if it had left the pane before."""
        if job not in self.jobs:
            return False
        self.jobs.remove(job)
        return True

    def end_job(
        self, job: PaneJob, status: Status, exit_code: int | None = None, *, notice: str = "", cwd: str | None = None
    ) -> bool:
        """Finish a job by what the target reported; return False if it had left the pane before, and do nothing."""
        if not self.remove_job(job):
            return False
        if notice:
            job.notices.append(notice)
        job.finish_as_reported(status, exit_code, cwd)
        return True

    def withdraw_job(self, job: PaneJob, notice: str = "") -> None:
        """Finish a job of which it is proved that it did not run, unless it had left the pane before."""
        if not self.remove_job(job):
            return
        if notice:
            job.notices.append(notice)
        job.withdraw()

    def learn_phase(self, phase: Phase, running: int = 0) -> None:
        """Record what its innermost shell does, which no marker has shown."""
        self.phase, self.running = phase, running
        self.notify()

    def learn_shell(self, pid: int, nonce: str = "") -> None:
        """Record the process id of its own shell, and its nonce unless that is known."""
        self.shells[0] = replace(self.shells[0], pid=pid, nonce=nonce or self.shells[0].nonce)

    def learn_log(self, number: int, offset: int) -> None:
        """Record which log is written, and up to where it holds what was read of the stream."""
        self.log_number, self.log_offset = number, offset

    def leave_nested(self) -> None:
        """Forget the nested shells, as its own shell reads the keyboard or was replaced; their jobs remain."""
        del self.shells[1:]

    def take_news(self) -> list[str]:
        """Return the notice about its shell, if any, and clear it."""
        news, self.news = self.news, ""
        return [news] if news else []

    async def wait_until(self, is_so: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait at most some seconds for a state of the pane, or its end; return whether it has that state."""
        with anyio.move_on_after(seconds):
            while not (self.gone or is_so()):
                await self.changed.wait()
        return is_so()

    def notify(self) -> None:
        """Wake the tasks that wait for a change."""
        self.changed.set()
        self.changed = anyio.Event()

    def found_in(self, window_id: str) -> None:
        """Record that the pane still exists, in this window."""
        self.window_id, self.in_doubt = window_id, False
        self.notify()

    def doubt_window(self, window_id: str) -> None:
        """Record that tmux reported the end of this window, which is not confirmed yet."""
        self.in_doubt |= self.window_id == window_id

    async def certain(self) -> None:
        """Wait until it is known whether the pane still exists."""
        while self.in_doubt and not self.gone:
            await self.changed.wait()

    def lose(self, status: Status, notice: str) -> None:
        """Record that the pane was closed, or cannot be reached."""
        self.gone = True
        while self.jobs:
            self.end_job(self.jobs[-1], status, notice=notice)
        if self.watchers is not None:
            self.watchers.close()
        self.notify()

    # -- watchers

    @contextmanager
    def watch(self, max_bytes: int, take_picture: TakePicture) -> Iterator[Watcher]:
        """Add a watcher; all watchers share the filtered stream."""
        if self.watchers is None:
            running = self.job if self.job is not None and self.job.started else None
            nonces = [shell.nonce for shell in self.shells]
            self.watchers = PaneWatchers(nonces, take_picture, None if running is None else _report(running))
            self.watchers.is_hidden = self._is_hidden
        watchers = self.watchers
        watcher = watchers.open(max_bytes)
        try:
            yield watcher
        finally:
            watchers.leave(watcher)
            if not watchers and self.watchers is watchers:
                self.watchers = None

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Show watchers nothing of what harness types inside, and then a new screen."""
        self._is_hidden = True
        if self.watchers is not None:
            self.watchers.hide()
        try:
            yield
        finally:
            self._is_hidden = False
            if self.watchers is not None:
                self.watchers.unhide()

    def report_job(self, job: PaneJob) -> None:
        """Report to watchers that a job has started or ended."""
        if self.watchers is not None and (job.started or job.done.is_set()):
            self.watchers.add_job(_report(job))

    def apply(self, mark: PromptMarker) -> None:
        """Update the state by one marker."""
        if mark.kind in ("end", "prompt") and mark.nonce != self.shell.nonce:
            self._leave_nested(mark)
        match mark.kind:
            case "start":
                self._start(mark)
            case "over":
                if self.job is not None and self.job.number == mark.job:
                    self.job.over = True
            case "end":
                self._end(mark)
            case "prompt":
                self.phase, self.prompt_time = "prompt", anyio.current_time()
            case "continue":
                self.phase = "continuation"
            case "cwd":
                self._told(mark)
            case "exit":
                self._shell_exited(mark.code or 0)
        self.notify()

    def _told(self, mark: PromptMarker) -> None:
        """Handle a report of a shell about its directory, a job, or, once at its start, itself."""
        if mark.text.startswith("/"):
            self.cwd = mark.text
            return
        key, _, value = mark.text.partition("=")
        match key:
            case "kind":
                self.kind = value
            case "tty":
                self._begun(value)
            case "in" if self.job is not None:
                self.job.entered = entered(mark.text)
                self.job.touch()
            case "off" | "full" | "unread" | "twice" if self.job is not None:
                job_id, _, secret = value.partition(";")
                if self.job.job_id == job_id and proves_end(secret, self.job.proof):
                    self._of_job(key, self.job)
            case "pid" if value.isdecimal():
                index = next(i for i, shell in enumerate(self.shells) if shell.nonce == mark.nonce)
                self.shells[index] = replace(self.shells[index], pid=int(value))

    def _of_job(self, fact: str, job: PaneJob) -> None:
        """Handle a report that a job did not run, or that its end was recorded before it ended."""
        if fact == "twice":
            job.notices.append(TWICE)
            job.ending = Status.UNKNOWN
            return
        if fact == "off":  # a query for its id cancelled it: it was answered that the job does not exist
            self.withdraw_job(job)
            return
        job.unstored = fact == "full"
        self.end_job(job, Status.UNKNOWN, notice=UNREAD if fact == "unread" else "")

    def _begins_anew(self, piece: PromptMarker) -> bool:
        """Return whether the pane has a new first process; a program that prints the log repeats the known one's."""
        return piece.text.startswith("tty=") and self.wrapper not in ("", piece.text.removeprefix("tty="))

    def _begun(self, wrapper: str) -> None:
        """Handle the start of the pane's first process, which repeats if an operator restarts the pane."""
        before, self.wrapper = self.wrapper, wrapper
        if before not in ("", wrapper):
            self._fresh_shell(Status.UNKNOWN, None, "an operator restarted the pane (respawn-pane)")

    def _start(self, mark: PromptMarker) -> None:
        number, self._last = mark.job, None
        self.operator_command_count += number == 0 and not self.jobs  # bash reports this for harness's lines too
        self.phase, self.running = "running", number
        if self.job is not None and self.job.number == number:
            self.job.start(soon=mark.soon)

    def _end(self, mark: PromptMarker) -> None:
        alone = mark.job == 0 and not self.jobs  # with a job of this process, it is the line that sends it
        self.operator_command_count += alone and self.phase in (
            "prompt",
            "continuation",
        )  # dash and ash report no start
        self.phase, self.running, self.last_ended = "ended", 0, mark.job
        if self._last is not None and self._last.number == mark.job and proves_end(mark.secret, self._last.proof):
            self.ended_twice.append(self._last)
            self._last = None
        if self.job is not None and self.job.number == mark.job:
            job = self.jobs.pop()
            self._last = job if job.secret else None
            job.finish_by_marker(mark, self.cwd or None)

    def _leave_nested(self, mark: PromptMarker) -> None:
        """Remove the nested shells, with their jobs, when an outer shell is active again."""
        depth = next(index for index, shell in enumerate(self.shells) if shell.nonce == mark.nonce)
        inner = {shell.nonce for shell in self.shells[depth + 1 :]}
        del self.shells[depth + 1 :]
        while self.jobs and self.jobs[-1].nonce in inner:
            why = "the nested shell exited; the outer shell is active again"
            self.end_job(self.jobs[-1], Status.SHELL_EXITED, mark.code, notice=why)

    def _shell_exited(self, code: int) -> None:
        self._fresh_shell(Status.SHELL_EXITED, code, f"the pane's shell had exited (exit code {code})")

    def _fresh_shell(self, status: Status, code: int | None, why: str) -> None:
        """The pane's shell is gone, with all in it, and another one starts."""
        self.phase, self.running, self.last_ended = "starting", 0, self.running
        self.leave_nested()
        if not self.jobs:
            self.news = f"{why}; this is a new shell"
        gone = "the shell exited" if status is Status.SHELL_EXITED else f"{why} while the command ran"
        for job in self.jobs[::-1]:
            if not job.started and job.nonce == self.shell.nonce:  # the new shell reads it, or it is typed again
                job.notices.append(f"{why}; the command ran in a new shell")
            else:
                self.end_job(job, status, code, notice=f"{gone}; a new shell was started")


def _report(job: PaneJob) -> JobReport:
    status = str(job.status) if job.done.is_set() else ""
    return JobReport(job.job_id, job.command.command, status, job.exit_code if status else None)
