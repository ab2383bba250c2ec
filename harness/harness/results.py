"""The results of operations, as small frozen values."""

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


# -- Results.


class Status(StrEnum):
    """The status of a command; only ``completed`` and ``shell_exited`` always have an exit code."""

    COMPLETED = "completed"
    """It ended, and its exit code is known."""
    RUNNING = "running"
    """It was dispatched and has not ended."""
    TIMED_OUT = "timed_out"
    """Harness killed it at its deadline, and its exit is confirmed."""
    INTERRUPTED = "interrupted"
    """It was ended by a cancel or by an operator's ``C-c``."""
    SHELL_EXITED = "shell_exited"
    """The shell itself exited; a new one was started."""
    UNKNOWN = "unknown"
    """The connection or the server was lost after dispatch; ask again by job ID."""


@dataclass(frozen=True, slots=True)
class ShellResult:
    """The outcome of one command.

    ``stdout_bytes`` and ``stderr_bytes`` are exact; ``stdout`` and ``stderr`` are the same as UTF-8 text with
    ``surrogateescape``. With a terminal both streams are one and ``stderr_bytes`` is empty, unless ``tty=False``.
    ``truncated`` counts the bytes of stdout and stderr that were omitted between head and tail (0: none);
    ``stdout_gap`` and ``stderr_gap`` are the places where they are missing in the bytes, and their number (None: none).
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
    stdout_gap: tuple[int, int] | None = None
    stderr_gap: tuple[int, int] | None = None

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
        """True if the command completed with exit code 0."""
        return self.status is Status.COMPLETED and self.exit_code == 0


@dataclass(frozen=True, slots=True)
class Job:
    """One command with its record on the target; times are seconds since the epoch, on the target's clock."""

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
    """Whether it is a helper command, which a tool ran for itself."""
    key: str | None = None
    """The ``key`` of the call that started it."""


@dataclass(frozen=True, slots=True)
class OutputPart:
    """A part of one stream of a job; ``data`` starts at the byte ``start`` of the stream.

    ``size`` is the current size of the stream, so there is more if ``end`` is below it. ``lost`` counts the dropped
    bytes between the requested byte and ``start``. ``gone``: the job has ended, and the target no longer has the whole
    stream, as its file was removed or truncated.
    """

    data: bytes = b""
    start: int = 0
    size: int = 0
    lost: int = 0
    gone: bool = False

    @property
    def end(self) -> int:
        """The byte after the last one of ``data``, where to resume reading."""
        return self.start + len(self.data)


@dataclass(frozen=True, slots=True)
class JobOutput:
    """The result of ``read_job``; if ``job`` has ended, both streams are complete."""

    job: Job
    stdout: OutputPart = OutputPart()
    stderr: OutputPart = OutputPart()

    @classmethod
    def of_whole(cls, whole: ShellResult, start: int, limit: int) -> JobOutput:
        """Return a part of the single stream of a job from its complete output."""
        job = Job(whole.job_id or "", whole.command, whole.status, whole.exit_code, pane=whole.pane, cwd=whole.cwd)
        data = whole.stdout_bytes
        return cls(job, OutputPart(data[start : start + limit], min(start, len(data)), len(data)))


@dataclass(frozen=True, slots=True)
class FileContent:
    """The result of ``read_file``; ``size`` is the whole file's, even if only a part was read.

    ``version`` identifies the content; ``write_file(expect=...)`` with it refuses to overwrite a concurrent change.
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
    """The result of ``write_file``."""

    bytes_written: int
    created: bool
    version: str


FileType = Literal["file", "dir", "link", "other"]


@dataclass(frozen=True, slots=True)
class FileStat:
    """One file's metadata; ``mtime`` is in seconds since the epoch, ``target`` is the target of a symlink.

    ``size``, ``uid`` and ``gid`` are -1 if the target lacks the tools to find them.
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

    ``size`` is -1 if the target lacks the tools to find it.
    """

    name: str
    type: FileType
    size: int = 0


@dataclass(frozen=True, slots=True)
class PaneInfo:
    """One managed pane: ``pane_id`` is tmux's (``%3``), ``name`` harness's, ``foreground`` the running program."""

    name: str
    pane_id: str
    session: str
    default: bool = False
    width: int = 0
    height: int = 0
    foreground: str = ""
    cwd: str = ""
    busy: str = ""
    """What holds the pane, as a phrase; empty if it is at its prompt."""
    lent: bool | None = None
    """Whether the operator has lent this pane of their own tmux; None for a managed pane."""
    lent_until: float | None = None
    """The Unix time at which the lend ends; None without one."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One managed tmux session."""

    name: str
    attached: int = 0
    panes: tuple[PaneInfo, ...] = field(default=())
    default: bool = False


# -- Filtering of jobs. Pure.


def without_helpers(jobs: Iterable[Job], *, helpers: bool = False) -> list[Job]:
    """Return the jobs without helper commands; with ``helpers``, all jobs."""
    return [job for job in jobs if helpers or not job.helper]
