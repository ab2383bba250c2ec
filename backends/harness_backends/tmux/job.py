"""One command in a pane, from its dispatch to its end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import anyio

from harness.command import Command
from harness.results import ShellResult, Status

from .output import OutputCollector

__all__ = ["PaneJob", "entered"]


def entered(text: str) -> int | None:
    """What a command's wrapper told of its directory: ``in=NUMBER``; None when it is something else."""
    number = text.removeprefix("in=")
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
    began: float = field(default_factory=time.monotonic)
    started: bool = False
    watched: bool = True
    """Its start is still being seen to, so that a missing one is no sign that a program waits for a person."""
    over: bool = False
    """Its output has ended; how it ended is not known yet."""
    unanswered: float = 0.0
    """Seconds for which nothing answered when it was sent, so that nobody knows whether it was."""
    entered: int | None = None
    """0: its directory was entered; else why not, see :mod:`~..posix.jobcwd`. None: not known, or none was given."""
    seconds: float = 0.0
    status: Status = Status.RUNNING
    exit_code: int | None = None
    cwd: str | None = None
    ending: Status | None = None
    """What it is to end with: it is being ended."""
    unsent: bool = False
    """It is proved that it did not run: the link was lost first, or its id was called off."""
    doubtful: bool = False
    """The link was lost while it was typed."""
    attention: bool = False
    """Its program waits for a person, and the caller has been told."""
    notices: list[str] = field(default_factory=list)
    active: anyio.Event = field(default_factory=anyio.Event)
    """Replaced at every piece of output; set when there is more."""
    done: anyio.Event = field(default_factory=anyio.Event)

    @property
    def number(self) -> int:
        """The id as markers carry it."""
        return int(self.job_id)

    @property
    def takes_output(self) -> bool:
        """What the pane writes now is the job's."""
        return self.started and not self.over

    def start(self) -> None:
        """The start mark arrived. It comes twice: a shell that traces its commands writes between the two."""
        self.started, self.over = True, False
        self.collector.restart()
        self.touch()

    def feed(self, data: bytes) -> None:
        """Output arrived."""
        self.collector.feed(data)
        self.touch()

    def touch(self) -> None:
        """Wake those who watch for activity."""
        self.active.set()
        self.active = anyio.Event()

    def finish(self, status: Status, exit_code: int | None = None, cwd: str | None = None) -> None:
        """The job ended; later calls change nothing. One that was ended at its deadline has no exit code."""
        if self.done.is_set():
            return
        self.collector.finish()
        self.seconds = time.monotonic() - self.began
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
