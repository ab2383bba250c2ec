"""What operations return: small frozen values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from .deprecated_names import renamed_names

__all__ = [
    "DirEntry",
    "FileContent",
    "FileStat",
    "Job",
    "JobOutput",
    "OutputPart",
    "PaneInfo",
    "SessionInfo",
    "ShellResult",
    "Status",
    "WriteResult",
    "without_helpers",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, asked_for="without_helpers")


# -- What operations return: small frozen values.


class Status(StrEnum):
    """How a command stands. Only ``completed`` and ``shell_exited`` always come with an exit code."""

    COMPLETED = "completed"
    """It ended, and we have proof."""
    RUNNING = "running"
    """It was dispatched and has not ended."""
    TIMED_OUT = "timed_out"
    """We ended it at its deadline, and it is proved gone."""
    INTERRUPTED = "interrupted"
    """It was ended by a cancel or by an operator's ``C-c``."""
    SHELL_EXITED = "shell_exited"
    """The shell itself ended; a fresh one was started."""
    UNKNOWN = "unknown"
    """The link or the server was lost after dispatch; ask again by job id."""


@dataclass(frozen=True, slots=True)
class ShellResult:
    """The outcome of one command.

    ``stdout_bytes`` and ``stderr_bytes`` are exact; ``stdout`` and ``stderr`` are the same as UTF-8 text with
    ``surrogateescape``. With a terminal both streams are one and ``stderr_bytes`` is empty, unless ``tty=False``.
    ``truncated`` counts the bytes of stdout and stderr that were left out between head and tail (0: nothing).
    ``duration`` is in seconds. ``notices`` are sentences for the caller about anything unusual.
    """

    command: str
    status: Status
    exit_code: int | None = None
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    truncated: int = 0
    duration: float = 0.0
    cwd: str | None = None
    job_id: str | None = None
    pane: str | None = None
    notices: tuple[str, ...] = ()

    @property
    def stdout(self) -> str:
        """The standard output as text."""
        return self.stdout_bytes.decode("utf-8", "surrogateescape")

    @property
    def stderr(self) -> str:
        """The standard error as text."""
        return self.stderr_bytes.decode("utf-8", "surrogateescape")

    @property
    def ok(self) -> bool:
        """True when the command completed with exit code 0."""
        return self.status is Status.COMPLETED and self.exit_code == 0


@dataclass(frozen=True, slots=True)
class Job:
    """One command as the target keeps it. Times are seconds since the epoch, on the target's clock."""

    job_id: str
    command: str
    status: Status
    exit_code: int | None = None
    started: float | None = None
    ended: float | None = None
    pane: str | None = None
    owner: str | None = None
    cwd: str | None = None
    helper: bool = False
    """It was the work of a tool, beside the terminal: nobody asked for this command."""


@dataclass(frozen=True, slots=True)
class OutputPart:
    """A part of one stream of a job. ``start`` is the byte of the stream with which ``data`` begins.

    ``size`` is how many bytes the stream has now, so that there is more when ``end`` is below it. ``lost`` counts the
    bytes between what was asked for and ``start`` that the target no longer has. ``gone``: the job has ended, and
    the target no longer has all of the stream: its file was removed, or cut short.
    """

    data: bytes = b""
    start: int = 0
    size: int = 0
    lost: int = 0
    gone: bool = False

    @property
    def end(self) -> int:
        """The byte after the last one of ``data``: where to go on."""
        return self.start + len(self.data)


@dataclass(frozen=True, slots=True)
class JobOutput:
    """What ``read_job`` returns. When ``job`` has ended, both streams are complete."""

    job: Job
    stdout: OutputPart = OutputPart()
    stderr: OutputPart = OutputPart()

    @classmethod
    def of_whole(cls, whole: ShellResult, start: int, limit: int) -> JobOutput:
        """A part of the one stream of a job whose whole output is there."""
        job = Job(whole.job_id or "", whole.command, whole.status, whole.exit_code, pane=whole.pane, cwd=whole.cwd)
        data = whole.stdout_bytes
        return cls(job, OutputPart(data[start : start + limit], min(start, len(data)), len(data)))


@dataclass(frozen=True, slots=True)
class FileContent:
    """What ``read_file`` returns. ``size`` is the whole file's, also when only a part was read.

    ``version`` identifies the content; give it to ``write_file(expect=...)`` to refuse a lost race.
    ``mode`` holds the permission bits (``0o644``). ``path`` is the real path on the target.
    """

    data: bytes
    size: int
    mode: int
    version: str
    path: str

    @property
    def text(self) -> str:
        """The data as UTF-8 text with ``surrogateescape``."""
        return self.data.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What ``write_file`` returns."""

    bytes_written: int
    created: bool
    version: str


FileType = Literal["file", "dir", "link", "other"]


@dataclass(frozen=True, slots=True)
class FileStat:
    """One file's metadata. ``mtime`` is in seconds since the epoch; ``target`` is where a link points.

    ``size``, ``uid`` and ``gid`` are -1 where a target without tools cannot tell them.
    """

    path: str
    type: FileType
    size: int
    mode: int
    uid: int
    gid: int
    mtime: float
    target: str | None = None


@dataclass(frozen=True, slots=True)
class DirEntry:
    """One name in a directory (``list_dir``), or one path below it (``walk``, ``glob``).

    ``size`` is -1 where a target without tools cannot tell it.
    """

    name: str
    type: FileType
    size: int = 0


@dataclass(frozen=True, slots=True)
class PaneInfo:
    """One managed pane. ``pane_id`` is tmux's (``%3``), ``name`` is ours. ``foreground`` is the running program."""

    name: str
    pane_id: str
    session: str
    default: bool = False
    width: int = 0
    height: int = 0
    foreground: str = ""
    cwd: str = ""
    busy: str = ""
    """What holds the pane, as a phrase; empty when it is at its prompt."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One managed tmux session."""

    name: str
    attached: int = 0
    panes: tuple[PaneInfo, ...] = field(default=())
    default: bool = False


# -- Which of the jobs of a target a list shows. Pure.


def without_helpers(jobs: Iterable[Job], *, helpers: bool = False) -> list[Job]:
    """Those that somebody asked for; with ``helpers`` also what tools ran for their own work."""
    return [job for job in jobs if helpers or not job.helper]
