"""What a backend provides for a target. The core finds backends by entry point and talks to these classes only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from .command import Command
from .config import Config
from .deprecated_names import renamed_names
from .errors import UnsupportedOperation
from .results import DirEntry, FileContent, FileStat, Job, JobOutput, OutputPart, ShellResult, Status, WriteResult
from .target import Target
from .terminal import Sessions, Terminal
from .transport import Transport

__all__ = [
    "ANY",
    "AnyVersion",
    "Backend",
    "BackendFactory",
    "Capabilities",
    "Files",
    "Finding",
    "Jobs",
    "Level",
    "Progress",
    "WriteMode",
    "fail",
    "ok",
    "warn",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, Any_="AnyVersion")


# -- What a check has to say.


Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check. ``fix`` says what to do; it is empty when nothing is to be done."""

    check: str
    level: Level
    message: str
    fix: str = ""


def ok(check: str, message: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", message)


def warn(check: str, message: str, fix: str) -> Finding:
    """It works, with something to know or to put right."""
    return Finding(check, "warn", message, fix)


def fail(check: str, message: str, fix: str) -> Finding:
    """It does not work."""
    return Finding(check, "fail", message, fix)


# -- What a backend provides for a target. The core finds backends by entry point and talks to these classes only.


class AnyVersion:
    """The type of :data:`ANY`."""

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = AnyVersion()
"""``write_file(expect=ANY)``: write whatever is there now."""

WriteMode = Literal["overwrite", "create", "append"]
EVERYTHING = 1 << 40
Progress = Callable[[int, int | None], None]
"""Called with (bytes so far, bytes in all or None)."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the target offers, probed once per connection. An empty string means: not there.

    ``tools`` maps a program's name to its path (``sha256sum``, ``rg``, ``git``, ``sudo``, ``setsid``, ...).
    """

    user: str = ""
    uid: int = -1
    home: str = ""
    shell: str = ""
    system: str = ""
    hostname: str = ""
    state_dir: str = ""
    tmux_version: str = ""
    tools: tuple[tuple[str, str], ...] = field(default=())

    def has(self, tool: str) -> bool:
        """True when the program is on the target's PATH."""
        return any(name == tool for name, _ in self.tools)


class Jobs(ABC):
    """Runs commands without a terminal, and keeps the record of every job on the target, with or without one."""

    @abstractmethod
    async def run(self, command: Command) -> ShellResult:
        """Run one command in a fresh ``sh``, with separate byte-exact streams, kept on the target as a job.

        Never runs it twice. Cancelling the caller kills the command's process group and waits, bounded, until it is
        gone. A link lost after dispatch is a result (``unknown``), before it an exception.
        """

    @abstractmethod
    async def list(self) -> list[Job]:
        """Every job that the target still keeps, oldest first."""

    @abstractmethod
    async def get(self, job_id: str) -> Job:
        """One job.

        Raises:
            JobNotFound: there is none of that id.
        """

    @abstractmethod
    async def wait(self, job_id: str, timeout: float, max_output: int) -> ShellResult:
        """The job's result; ``running`` with the output so far when the time is over first."""

    async def read(self, job_id: str, stdout: int, stderr: int, limit: int, wait: float) -> JobOutput:
        """What the job has written so far, from a byte of each stream on and at most ``limit`` bytes of each.

        With ``wait`` it is waited for that many seconds until there is something or the job has ended. This is made of
        :meth:`wait`, which brings everything: a backend that can read parts of its logs should.
        """
        if wait > 0 and (await self.get(job_id)).status is Status.RUNNING:
            await self.wait(job_id, wait, 0)
        job = await self.get(job_id)  # before the output, so that the output of one that has ended is complete
        done = await self.wait(job_id, 0.001, EVERYTHING)
        return JobOutput(job, _part(done.stdout_bytes, stdout, limit), _part(done.stderr_bytes, stderr, limit))

    @abstractmethod
    def follow(self, job_id: str, offset: int = 0) -> AsyncIterator[bytes]:
        """The job's output from byte ``offset``, live, until it ends (standard error follows standard output)."""

    @abstractmethod
    async def kill(self, job_id: str, signal: str = "TERM", grace: float = 2.0) -> Job:
        """Signal the job's process group; KILL what is left after ``grace`` seconds. Returns the job as it is then."""

    @abstractmethod
    async def clean(self) -> int:
        """Remove ended jobs beyond the age and size limits; returns how many."""


class Files(ABC):
    """Files on the target, byte-exact. Paths are the target's; ``~`` is its user's home; relative is to the home."""

    @abstractmethod
    async def read(
        self, path: str, offset: int = 0, limit: int | None = None, progress: Progress | None = None
    ) -> FileContent:
        """Read a file or a part of it. Raises the matching :class:`FileError`."""

    @abstractmethod
    async def write(
        self,
        path: str,
        content: bytes,
        mode: WriteMode = "overwrite",
        expect: str | AnyVersion | None = ANY,
        parents: bool = True,
        permissions: int | None = None,
        progress: Progress | None = None,
        *,
        force: bool = False,
    ) -> WriteResult:
        """Write a file atomically. ``expect`` is a version, or None for "must not exist".

        A file that its owner made read-only is refused without ``force``.
        """

    @abstractmethod
    async def stat(self, path: str, *, follow: bool = True) -> FileStat:
        """One file's metadata."""

    @abstractmethod
    async def list_dir(self, path: str) -> list[DirEntry]:
        """The names in a directory, sorted, without ``.`` and ``..``."""

    @abstractmethod
    async def walk(self, path: str, *, max_entries: int = 100_000) -> list[DirEntry]:
        """Everything below a directory, as paths relative to it, sorted. Links are not followed."""

    @abstractmethod
    async def glob(self, pattern: str, *, root: str = ".", max_entries: int = 100_000) -> list[str]:
        """Paths below ``root`` that match a pattern with ``*``, ``?``, ``[...]`` and ``**``, sorted."""

    @abstractmethod
    async def mkdir(self, path: str, *, parents: bool = False, exist_ok: bool = False, mode: int = 0o777) -> None:
        """Make a directory."""

    @abstractmethod
    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Remove a file, a link, an empty directory, or with ``recursive`` a tree."""

    @abstractmethod
    async def rename(self, source: str, destination: str, *, overwrite: bool = False) -> None:
        """Rename within one file system."""

    @abstractmethod
    async def upload(
        self, local: str, path: str, progress: Progress | None = None, *, force: bool = False
    ) -> WriteResult:
        """Copy a file of this machine to the target, atomically, without holding it in memory."""

    @abstractmethod
    async def download(self, path: str, local: str, progress: Progress | None = None, *, force: bool = False) -> int:
        """Copy a file of the target to this machine, atomically; returns its size."""


class Backend(ABC):
    """One connected target. Obtained from a :data:`BackendFactory`, and usable until that context is left."""

    target: Target
    transport: Transport
    capabilities: Capabilities
    files: Files
    jobs: Jobs

    @abstractmethod
    def open_terminal(self, session: str, *, create: bool = True) -> AbstractAsyncContextManager[Terminal]:
        """Attach to the tmux session of that name, with ``create`` making it, and its default pane, if need be.

        Raises:
            UnsupportedOperation: no usable tmux; the hint says what would help.
            PaneGone: there is no such session, and ``create`` is False; the message names those that are there.
            TerminalError: there are as many sessions as the configuration allows.
        """

    def open_sessions(self, session: str) -> AbstractAsyncContextManager[Sessions]:
        """The managed tmux sessions, attaching to none; ``session`` is the one that counts as the default.

        Raises:
            UnsupportedOperation: no usable tmux, or none with this backend.
        """
        raise UnsupportedOperation("this target keeps no tmux sessions", target=self.target, hint="use another target")


def _part(whole: bytes, start: int, limit: int) -> OutputPart:
    return OutputPart(whole[start : start + limit], min(start, len(whole)), len(whole))


BackendFactory = Callable[[Target, Config, "Transport | None"], AbstractAsyncContextManager[Backend]]
"""``(target, config, transport of target.base or None)`` → a backend. Found by entry point ``harness.backends``."""

Argv = Sequence[str]
