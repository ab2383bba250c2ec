"""One command in a pane, from its dispatch to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from harness.command import Command
from harness.results import ShellResult, Status
from harness.system.waiting import run_within, wait_within

from ...posix.jobs.termination import CallbackError
from ...posix.pane_jobs.end_proof import imitates, proof_of, status_of_broken
from ...posix.pane_jobs.prompt_markers import ANSWERED, PromptMarker, answered, from_keyboard
from .output_collector import OutputCollector, collector_for

__all__ = ["UNREAD", "PaneJob", "entered", "forget_jobs", "read_buffered_output"]

LONGEST_LAG = 60.0
"""Maximum seconds from the record of a command's end until the pane has shown all of its output."""
UNREAD = (
    "the command did not run: '.' and 'eval' are redefined or disabled in the pane's shell; run exit in the pane to"
    " get a new shell"
)
NOT_BEGUN = "the shell aborted the line (Ctrl-C, or a shell error) before the command started; it did not run"


def entered(text: str) -> int | None:
    """Parse a wrapper's report about the command's directory, ``in=NUMBER``; return None for other text."""
    number = text.removeprefix("in=").partition(";")[0]
    return int(number) if number != text and number.isdecimal() else None


@dataclass(eq=False, slots=True, weakref_slot=True)
class PaneJob:
    """The state of a job that this process dispatched; the target's record outlives it."""

    job_id: str
    command: Command
    pane: str
    log: str
    offset: int
    nonce: str
    collector: OutputCollector
    secret: str = ""
    """The secret that proves its end, known to its shell only; empty in a nested shell."""
    began: float = field(default_factory=time.monotonic)
    started: bool = False
    prompted: bool = False
    """True if its shell's prompt was shown, or imitated, while it ran."""
    announced: bool = False
    """True if its output starts at the next start marker, as its shell traces its commands (``set -x``)."""
    watched: bool = True
    """True while its start is being checked; meanwhile a missing start does not mean that a program waits for input."""
    over: bool = False
    """True if its output has ended, but its exit status is not known yet."""
    unanswered: float = 0.0
    """Seconds without an answer while it was sent, so that it is unknown whether it was typed."""
    entered: int | None = None
    """0 if its directory was entered, else the reason (:mod:`~..posix.jobs.launch`); None if unknown or not given."""
    seconds: float = 0.0
    ended_at: float = 0.0
    """When it ended, by the monotonic clock."""
    status: Status = Status.RUNNING
    exit_code: int | None = None
    """The exit code; before the end, that of its shell, which exited while the job was being terminated."""
    cwd: str | None = None
    ending: Status | None = None
    """The status that it gets when it ends, while it is being terminated; unknown if that may have ended it."""
    unsent: bool = False
    """True if it is proved that it did not run: the connection was lost first, or its id was cancelled."""
    unstored: bool = False
    """True if its command could not be stored on the target, and did not run."""
    doubtful: bool = False
    """True if the connection was lost while it was typed."""
    attention: bool = False
    """True if its program waits for input, and the caller has been notified."""
    notices: list[str] = field(default_factory=list)
    active: anyio.Event = field(default_factory=anyio.Event)
    """Set when more output arrives, and then replaced by a new event."""
    done: anyio.Event = field(default_factory=anyio.Event)
    reported: anyio.Event = field(default_factory=anyio.Event)
    """Set when the callbacks have received all of its separate streams, or one of them has failed."""
    callback_error: Exception | None = None
    """The exception that a callback raised."""
    stop_waiting: Callable[[], None] | None = None
    """Called when a callback raises."""
    on_change: Callable[[PaneJob], None] | None = None
    """Called when it has started, and when it has ended."""

    @property
    def number(self) -> int:
        """The id as a number, as in markers."""
        return int(self.job_id)

    @property
    def takes_output(self) -> bool:
        """True if the pane's current output belongs to the job."""
        return self.started and not self.over

    @property
    def reports_streams(self) -> bool:
        """True if its streams are files and a callback receives them as they grow."""
        command = self.command
        return command.tty is False and (command.on_output is not None or command.on_stderr is not None)

    async def all_reported(self) -> None:
        """Wait until the callbacks have received all of its separate streams.

        Raises:
            CallbackError: a callback has failed.
        """
        if self.reports_streams:
            await self.reported.wait()
        self.check_callbacks()

    def check_callbacks(self) -> None:
        """Raise the error of a callback that has failed, as :class:`.CallbackError`."""
        if self.callback_error is not None:
            raise CallbackError(self.callback_error)

    @property
    def proof(self) -> str:
        """The value in its record against which the secret of an end marker is checked."""
        return proof_of(self.secret)

    def is_output(self, mark: PromptMarker) -> bool:
        """Return whether its command wrote this marker, and not the shell."""
        running = self.takes_output and not self.announced and mark.nonce == self.nonce
        self.prompted |= running and mark.kind == "prompt"
        return running and imitates(mark, self.number, self.proof)

    def start(self, *, soon: bool = False) -> None:
        """Handle a start marker; with ``soon``, another one follows."""
        self.started, self.over, self.announced = True, False, soon
        self.collector.restart(soon=soon)
        self._report_change()
        self._after_output()

    def _report_change(self) -> None:
        if self.on_change is not None:
            self.on_change(self)

    def read_again(self) -> None:
        """Prepare to be fed the output again from its start marker, without repeating what a callback has received."""
        self.started = False
        self.collector = collector_for(self.command, self.collector.reported, tell=self.callback_error is None)

    def feed(self, data: bytes) -> None:
        """Add output."""
        self.collector.feed(data)
        self._after_output()

    def _after_output(self) -> None:
        self._heed_callback()
        self.touch()

    def _heed_callback(self) -> None:
        if self.collector.callback_error is not None:
            self.fail(self.collector.callback_error)

    def when_callback_fails(self, stop_waiting: Callable[[], None]) -> None:
        """Call ``stop_waiting`` when a callback raises, or immediately if one has raised."""
        self.stop_waiting = stop_waiting
        if self.callback_error is not None:
            stop_waiting()

    def fail(self, error: Exception) -> None:
        """Store a callback's exception, so that its caller stops waiting."""
        if self.callback_error is None:
            self.callback_error = error
            if self.stop_waiting is not None:
                self.stop_waiting()

    async def wait_until(self, is_so: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait at most some seconds for a state of the job, or its end."""
        with anyio.move_on_after(seconds):
            while not (self.done.is_set() or is_so()):
                await self.active.wait()

    def touch(self) -> None:
        """Wake the tasks that wait for activity."""
        self.active.set()
        self.active = anyio.Event()

    def finish(self, status: Status, exit_code: int | None = None, cwd: str | None = None) -> None:
        """Record the job's end; later calls change nothing."""
        if self.done.is_set():
            return
        self.collector.finish()
        self._heed_callback()
        if answered(self.collector.data):
            self.notices.append(ANSWERED)
        self.seconds = time.monotonic() - self.began
        self.ended_at = time.monotonic()
        self.status = status
        self.exit_code = exit_code
        self.cwd = cwd
        self.done.set()
        self._report_change()
        self.touch()

    def finish_by_marker(self, mark: PromptMarker, cwd: str | None) -> None:
        """Record the end that an end marker of its shell proves."""
        status = self._status_by_marker(mark)
        self.finish(status, None if status is Status.UNKNOWN else mark.code, cwd)

    def _status_by_marker(self, mark: PromptMarker) -> Status:
        told = status_of_broken(mark.code, mark.broken)
        if not mark.broken and from_keyboard(mark.code, self.collector.data):
            told = Status.INTERRUPTED
        if self.announced and self.secret and told is Status.COMPLETED:  # the first line of its file did not run
            self.notices.append(UNREAD)
            return Status.UNKNOWN
        if mark.broken == "n" or (mark.broken and self.announced):
            self.notices.append(NOT_BEGUN)
        return self.ending or told

    def finish_as_reported(self, reported: Status, exit_code: int | None, cwd: str | None = None) -> None:
        """Record an end that its shell or the target's record reported, unless its termination must prove it.

        An end marker proves that the command has ended. The exit of its shell does not, as a termination may kill the
        shell before the program: then :class:`~.job_killing.JobKiller` finishes the job.
        """
        ended = reported in (Status.COMPLETED, Status.SHELL_EXITED)
        status = self.ending if self.ending is not None and ended else reported
        if reported is Status.SHELL_EXITED and status in (Status.TIMED_OUT, Status.INTERRUPTED):
            self.exit_code = exit_code
            self.touch()
        else:
            self.finish(status, None if status is Status.UNKNOWN else exit_code, cwd)

    async def done_or_quiet(self, seconds: float) -> None:
        """Wait until the job has ended, or nothing of it has arrived for some seconds.

        A slow callback takes its time, so that the end arrives long after the target has recorded it. What the command
        left in the background may write for ever, hence :data:`LONGEST_LAG`.
        """
        with suppress(TimeoutError):
            await run_within(LONGEST_LAG, partial(self._until_quiet, seconds))

    async def _until_quiet(self, seconds: float) -> None:
        while not self.done.is_set():
            if not await wait_within(seconds, self.active.wait):
                return

    def withdraw(self) -> None:
        """Record that it is proved that the job did not and will not run, so that it can be sent again."""
        self.unsent = True
        self.finish(Status.UNKNOWN)

    def result(self, stdout: bytes | None = None) -> ShellResult:
        """Return the job's current result."""
        kept = self.collector.kept()
        return ShellResult(
            command=self.command.command,
            status=self.status,
            exit_code=self.exit_code if self.done.is_set() and self.status is not Status.TIMED_OUT else None,
            stdout_bytes=kept.data if stdout is None else stdout,
            truncated=kept.omitted,
            stdout_gap=kept.omission if stdout is None else None,
            duration=self.seconds or time.monotonic() - self.began,
            cwd=self.cwd,
            job_id=self.job_id,
            pane=self.pane,
            notices=tuple(self.notices),
        )


# -- Access to the output in this process's memory, without a round trip.

MAX_HELD_JOBS = 100
MAX_HELD_BYTES = 8 << 20
"""Bytes of ended commands' output that stay in memory; older output is read from the target."""

START_MARKER_WINDOW = 1.0
"""Seconds after its dispatch in which a second start marker may restart a job's output."""


def forget_jobs(jobs: dict[str, tuple[Any, PaneJob]]) -> None:
    """Drop the oldest ended jobs beyond the limits."""
    while len(jobs) > MAX_HELD_JOBS:
        del jobs[next(iter(jobs))]
    held = {job_id: job.collector.held for job_id, (_, job) in jobs.items()}
    total = sum(held.values())
    for job_id, size in held.items():
        if total <= MAX_HELD_BYTES:
            return
        if jobs[job_id][1].done.is_set():
            del jobs[job_id]
            total -= size


async def read_buffered_output(job: PaneJob, offset: int, seconds: float) -> ShellResult | None:
    """Return the job's buffered output, waiting at most ``seconds`` for more than ``offset`` bytes or its end.

    Returns:
        The result so far, or None if the output was truncated or goes to files.
    """
    if job.command.tty is False:
        return None
    with anyio.move_on_after(seconds):
        while not job.done.is_set() and (job.collector.total <= offset or _may_restart(job)):
            active = job.active
            with anyio.move_on_after(START_MARKER_WINDOW if _may_restart(job) else None):
                await active.wait()
    if job.collector.kept().omitted or job.status is Status.UNKNOWN:  # output after a lost connection is in the log
        return None
    return job.result(stdout=b"") if _may_restart(job) else job.result()


def _may_restart(job: PaneJob) -> bool:
    beginning = not job.done.is_set() and not job.collector.settled
    return beginning and time.monotonic() - job.began < START_MARKER_WINDOW
