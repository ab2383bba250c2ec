"""One command in a pane, from its dispatch to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from harness.command import Command
from harness.results import ShellResult, Status

from ..posix.end_proof import imitates, proof_of
from ..posix.markers import ANSWERED, PromptMarker, answered
from .output import OutputCollector, collector_for

__all__ = ["PaneJob", "entered"]


def entered(text: str) -> int | None:
    """What a command's wrapper told of its directory: ``in=NUMBER``; None when it is something else."""
    number = text.removeprefix("in=").partition(";")[0]
    return int(number) if number != text and number.isdecimal() else None


@dataclass(eq=False, slots=True)
class PaneJob:
    """What this process knows of a job that it dispatched. The target's record outlives it."""

    job_id: str
    command: Command
    pane: str
    log: str
    offset: int
    nonce: str
    collector: OutputCollector
    secret: str = ""
    """What proves its end; a job in a nested shell has none. Only its shell's memory holds it too."""
    began: float = field(default_factory=time.monotonic)
    started: bool = False
    prompted: bool = False
    """Its shell's prompt was shown, or imitated, while it ran."""
    announced: bool = False
    """Its output begins with its next start mark: its shell traces what leads to the command."""
    watched: bool = True
    """Its start is still being seen to, so that a missing one is no sign that a program waits for a person."""
    over: bool = False
    """Its output has ended; how it ended is not known yet."""
    unanswered: float = 0.0
    """Seconds for which nothing answered when it was sent, so that nobody knows whether it was."""
    entered: int | None = None
    """0: its directory was entered; else why not (:mod:`~..posix.jobs.launch`). None: not known, or none was given."""
    seconds: float = 0.0
    ended_at: float = 0.0
    """When it ended, by the monotonic clock."""
    status: Status = Status.RUNNING
    exit_code: int | None = None
    cwd: str | None = None
    ending: Status | None = None
    """What it is to end with: it is being ended."""
    unsent: bool = False
    """It is proved that it did not run: the link was lost first, or its id was called off."""
    unstored: bool = False
    """Its command could not be stored on the target, and did not run."""
    doubtful: bool = False
    """The link was lost while it was typed."""
    attention: bool = False
    """Its program waits for a person, and the caller has been told."""
    notices: list[str] = field(default_factory=list)
    active: anyio.Event = field(default_factory=anyio.Event)
    """Replaced at every piece of output; set when there is more."""
    done: anyio.Event = field(default_factory=anyio.Event)
    reported: anyio.Event = field(default_factory=anyio.Event)
    """The callbacks have had all of its separate streams, or one of them has failed."""
    callback_error: Exception | None = None
    """What a callback raised."""
    stop_waiting: Callable[[], None] | None = None
    """Called when a callback has raised."""

    @property
    def number(self) -> int:
        """The id as markers carry it."""
        return int(self.job_id)

    @property
    def takes_output(self) -> bool:
        """What the pane writes now is the job's."""
        return self.started and not self.over

    @property
    def reports_streams(self) -> bool:
        """Its streams are files, and a caller wants to have what is written to them as it arrives."""
        command = self.command
        return command.tty is False and (command.on_output is not None or command.on_stderr is not None)

    async def all_reported(self) -> None:
        """Wait until the callbacks have had all of its separate streams.

        Raises:
            Exception: what a callback raised.
        """
        if self.reports_streams:
            await self.reported.wait()
        if self.callback_error is not None:
            raise self.callback_error

    @property
    def proof(self) -> str:
        """What its record holds, to know the proof of its end by."""
        return proof_of(self.secret)

    def is_output(self, mark: PromptMarker) -> bool:
        """Whether its command wrote this mark, and not the shell."""
        running = self.takes_output and not self.announced and mark.nonce == self.nonce
        self.prompted |= running and mark.kind == "prompt"
        return running and imitates(mark, self.number, self.proof)

    def start(self, *, soon: bool = False) -> None:
        """The start mark arrived; with ``soon`` there is another to come."""
        self.started, self.over, self.announced = True, False, soon
        self.collector.restart(soon=soon)
        self._after_output()

    def read_again(self) -> None:
        """Its output is to be fed again from its beginning; what a callback has had is not told again."""
        self.collector = collector_for(self.command, self.collector.reported, tell=self.callback_error is None)

    def feed(self, data: bytes) -> None:
        """Output arrived."""
        self.collector.feed(data)
        self._after_output()

    def _after_output(self) -> None:
        self._heed_callback()
        self.touch()

    def _heed_callback(self) -> None:
        if self.collector.callback_error is not None:
            self.fail(self.collector.callback_error)

    def when_callback_fails(self, stop_waiting: Callable[[], None]) -> None:
        """Have this called when a callback raises, or at once when one has raised."""
        self.stop_waiting = stop_waiting
        if self.callback_error is not None:
            stop_waiting()

    def fail(self, error: Exception) -> None:
        """A callback raised: its caller waits no longer."""
        if self.callback_error is None:
            self.callback_error = error
            if self.stop_waiting is not None:
                self.stop_waiting()

    def touch(self) -> None:
        """Wake those who watch for activity."""
        self.active.set()
        self.active = anyio.Event()

    def finish(self, status: Status, exit_code: int | None = None, cwd: str | None = None) -> None:
        """The job ended; later calls change nothing. One that was ended at its deadline has no exit code."""
        if self.done.is_set():
            return
        self.collector.finish()
        self._heed_callback()
        if answered(self.collector.data):
            self.notices.append(ANSWERED)
        self.seconds = time.monotonic() - self.began
        self.ended_at = time.monotonic()
        self.status = status
        self.exit_code = None if status is Status.TIMED_OUT else exit_code
        self.cwd = cwd
        self.done.set()
        self.touch()

    def withdraw(self) -> None:
        """It is proved that it did not run, and will not: it is to be sent again."""
        self.unsent = True
        self.finish(Status.UNKNOWN)

    def result(self, stderr: bytes = b"", stdout: bytes | None = None) -> ShellResult:
        """The job as it stands now."""
        return ShellResult(
            command=self.command.command,
            status=self.status,
            exit_code=self.exit_code,
            stdout_bytes=self.collector.data if stdout is None else stdout,
            stderr_bytes=stderr,
            truncated=self.collector.truncated,
            duration=self.seconds or time.monotonic() - self.began,
            cwd=self.cwd,
            job_id=self.job_id,
            pane=self.pane,
            notices=tuple(self.notices),
        )
