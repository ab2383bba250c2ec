"""The interface of backends, which the core finds by entry point and uses only through these classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

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
    "NotStarted",
    "Progress",
    "ReceiveRequest",
    "ReceivedFile",
    "Reservation",
    "SmallFile",
    "SourceFile",
    "WriteMode",
    "fail",
    "ok",
    "warn",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, Any_="AnyVersion")


# -- Findings of checks.


Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check; ``fix`` is the remedy, or empty."""

    check: str
    level: Level
    message: str
    fix: str = ""


def ok(check: str, message: str) -> Finding:
    """Return a finding without problems."""
    return Finding(check, "ok", message)


def warn(check: str, message: str, fix: str) -> Finding:
    """Return a finding about something that works, but should be fixed."""
    return Finding(check, "warn", message, fix)


def fail(check: str, message: str, fix: str) -> Finding:
    """Return a finding about something that does not work."""
    return Finding(check, "fail", message, fix)


# -- A file opened on one target, which another one receives in pieces.


class SourceFile(ABC):
    """A regular file of a target, opened to be copied.

    ``size`` and ``mtime`` (seconds since the epoch) are those of the time when it was opened. ``data`` is its content
    if that is small, else None.
    """

    path: str
    size: int
    mode: int
    mtime: float
    data: bytes | None

    @abstractmethod
    async def copy(self, offset: int, sink: Callable[[bytes], Awaitable[None]]) -> None:
        """Pass the content from byte ``offset`` to a sink.

        Raises:
            FileError: It cannot be read, or it has less content than ``size``.
            ConnectionLost: The connection broke.
        """

    @abstractmethod
    async def version(self, length: int, scheme: str) -> str | None:
        """Return the version (hash) of the first ``length`` bytes; None if the target has no program for the scheme."""

    @abstractmethod
    async def check_unchanged(self) -> None:
        """Compare the size and the time of the file with those from when it was opened.

        Raises:
            FileError: It has changed.
        """


class ReceiveRequest(NamedTuple):
    """What a target does with the content of a :class:`SourceFile`."""

    path: str
    """The file; links are followed."""
    permissions: int | None = None
    """Mode bits that the file gets in any case; None keeps those of an existing file."""
    new_permissions: int | None = None
    """Mode bits of a file that does not exist, less those of the umask; None is 0666."""
    mtime: float | None = None
    """The time of the last change that the file gets."""
    nonce: str = ""
    """Letters and digits that name the partial files of one copy, so that it finds its own again."""
    force: bool = False
    """Replace even a file that its owner made read-only."""
    parents: bool = False
    """Create missing directories; else the file's directory must exist."""
    overwrite: bool = True
    """Replace a file that exists; else that is an error, and a link is not followed."""
    resume: bool = True
    """Whether a copy that is cut or cancelled leaves its part for the next one; else it leaves nothing."""


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """The result of a received file, whose hash on the target is that of the content."""

    size: int
    created: bool
    resumed_at: int = 0
    """The number of bytes that an earlier copy had left there, which were not transferred again."""
    version: str = ""
    """The hash."""


class SmallFile(NamedTuple):
    """A small file of a target, with its content."""

    mode: int
    mtime: float
    data: bytes


# -- The interface of a backend.


class AnyVersion:
    """The type of :data:`ANY`."""

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = AnyVersion()
"""``write_file(expect=ANY)``: write whatever the current version is."""

WriteMode = Literal["overwrite", "create", "append"]
EVERYTHING = 1 << 40
Progress = Callable[[int, int | None], None]
"""Called with (bytes so far, total bytes or None)."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of the target, probed once per connection; an empty string means: not available.

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
        """Return True if the program is on the target's PATH."""
        return any(name == tool for name, _ in self.tools)

    def program(self, tool: str) -> str:
        """Return the path of a program, or its name if it was not found."""
        return next((path for name, path in self.tools if name == tool and path), tool)


class Reservation(NamedTuple):
    """The job of a key.

    ``ours``: the caller may start it. ``started``: an earlier call has. ``pending``: an earlier call may be about to.
    """

    job_id: str
    state: Literal["ours", "started", "pending"]


class NotStarted(Exception):
    """Nothing ran, and nothing will run, under the job ID that was reserved for a command."""


class Jobs(ABC):
    """Runner of commands without a terminal, and the records of all jobs on the target."""

    @abstractmethod
    async def run(self, command: Command) -> ShellResult:
        """Run one command in a new ``sh``, with separate byte-exact streams, recorded on the target as a job.

        The command never runs twice. Cancelling the caller kills the command's process group and waits, bounded, for
        its exit. A connection lost after dispatch is a result (``unknown``), before it an exception.
        """

    async def reserve(self, key: str, withdraw: str | None = None) -> Reservation:
        """Return the job of a key, or reserve a job ID for it, in one atomic step on the target.

        Args:
            key: The key.
            withdraw: A pending reservation that is given to the caller instead: its command then never runs, and
                :meth:`run` raises :class:`NotStarted` for it.

        Raises:
            UnsupportedOperation: The target cannot store keys.
        """
        raise UnsupportedOperation("commands with a key need job records on the target")

    async def find_key(self, key: str) -> str | None:
        """Return the ID of the job of a key; None if no command was started with it."""
        return None

    @abstractmethod
    async def list(self) -> list[Job]:
        """Return all jobs recorded on the target, oldest first."""

    @abstractmethod
    async def get(self, job_id: str) -> Job:
        """Return one job.

        Raises:
            JobNotFound: unknown job.
        """

    @abstractmethod
    async def wait(self, job_id: str, timeout: float, max_output: int) -> ShellResult:
        """Wait for a job and return its result; ``running`` with the output so far if the timeout expires."""

    async def read(self, job_id: str, stdout: int, stderr: int, limit: int, wait: float) -> JobOutput:
        """Return a job's output so far, from a byte of each stream on and at most ``limit`` bytes of each.

        With ``wait``, wait up to that many seconds for output or the job's end. This default uses :meth:`wait`, which
        returns everything; a backend that can read parts of its logs should override it.
        """
        if wait > 0 and (await self.get(job_id)).status is Status.RUNNING:
            await self.wait(job_id, wait, 0)
        job = await self.get(job_id)  # before the output, so that the output of an ended job is complete
        done = await self.wait(job_id, 0.001, EVERYTHING)
        return JobOutput(job, _part(done.stdout_bytes, stdout, limit), _part(done.stderr_bytes, stderr, limit))

    @abstractmethod
    def follow(self, job_id: str, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield the job's output from byte ``offset``, live, until it ends (standard error follows standard output)."""

    @abstractmethod
    async def kill(self, job_id: str, signal: str = "TERM", grace: float = 2.0) -> Job:
        """Signal the job's process group, send KILL after ``grace`` seconds, and return the job's new state."""

    @abstractmethod
    async def clean(self) -> int:
        """Remove ended jobs beyond the age and size limits, and return their number."""


class Files(ABC):
    """Byte-exact access to files on the target; ``~`` is the home directory, and relative paths start there."""

    @abstractmethod
    async def read(
        self, path: str, offset: int = 0, limit: int | None = None, progress: Progress | None = None
    ) -> FileContent:
        """Read a file or a part of it; raises the matching :class:`FileError`."""

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
        """Return one file's metadata."""

    @abstractmethod
    async def list_dir(self, path: str) -> list[DirEntry]:
        """Return the names in a directory, sorted, without ``.`` and ``..``."""

    @abstractmethod
    async def walk(self, path: str, *, max_entries: int = 100_000) -> list[DirEntry]:
        """Return everything below a directory as relative paths, sorted; symlinks are not followed."""

    @abstractmethod
    async def glob(self, pattern: str, *, root: str = ".", max_entries: int = 100_000) -> list[str]:
        """Return paths below ``root`` that match a pattern with ``*``, ``?``, ``[...]`` and ``**``, sorted."""

    @abstractmethod
    async def mkdir(self, path: str, *, parents: bool = False, exist_ok: bool = False, mode: int = 0o777) -> None:
        """Create a directory."""

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
        """Copy a file from this machine to the target, atomically, without loading it into memory."""

    @abstractmethod
    async def download(
        self, path: str, local: str, progress: Progress | None = None, *, force: bool = False, overwrite: bool = True
    ) -> int:
        """Copy a file from the target to this machine, atomically, and return its size.

        With ``overwrite`` False a file of this machine that exists is :class:`FileExists`.
        """

    # -- copies between targets, which a backend need not support

    async def open_source(self, path: str, *, own_channel: bool = True) -> SourceFile:
        """Open a regular file to be copied to another target.

        Without ``own_channel``, no channel is opened to read it, so that reading never waits for one to be free.
        """
        raise self._no_copies()

    async def receive(
        self, source: SourceFile, request: ReceiveRequest, progress: Progress | None = None
    ) -> ReceivedFile:
        """Write a file with the content of another target's, atomically; its hash is compared first.

        What a cut connection or a cancelled call has left of a large file is not transferred again by the next call.
        The first call of ``progress`` has the number of these bytes, or 0.
        """
        raise self._no_copies()

    async def version(self, path: str, length: int | None = None, scheme: str = "") -> str | None:
        """Return the hash of a file, or of its first bytes; None if the target has no program for the scheme.

        Args:
            path: The file.
            length: The number of bytes; None is all.
            scheme: ``sha256`` or ``cksum``; empty is the one that the target prefers.
        """
        raise self._no_copies()

    async def read_small(self, paths: Sequence[str], max_bytes: int) -> list[SmallFile | None]:
        """Read many small files in one round trip; links are followed.

        Returns:
            The files; None for what is not a regular file, or may not be read.

        Raises:
            FileError: One of them changed meanwhile, or all have more than ``max_bytes`` bytes.
            UnsupportedOperation: The target cannot read many files at once.
        """
        raise self._no_copies()

    async def receive_small(self, files: Sequence[SmallFile], requests: Sequence[ReceiveRequest]) -> list[bool]:
        """Write many small files in one round trip, each atomically after its content was compared by hash.

        No link is followed. All requests have the same ``force``.

        Returns:
            For each file whether it was written. What was not may be received on its own (:meth:`receive`).

        Raises:
            FileError: None was written.
            UnsupportedOperation: The target cannot write many files at once.
        """
        raise self._no_copies()

    async def versions(self, paths: Sequence[str], scheme: str = "") -> list[str]:
        """Return the hashes of many small files in one round trip; ``scheme`` as for :meth:`version`.

        Raises:
            FileError: One of them cannot be read, or the target has no program for the scheme.
            UnsupportedOperation: The target cannot read many files at once.
        """
        raise self._no_copies()

    async def set_attributes(self, path: str, *, mode: int | None = None, mtime: float | None = None) -> None:
        """Set the mode, exactly, and the time of the last change of a file or a directory."""
        raise self._no_copies()

    async def limit_mode(self, path: str, mode: int) -> None:
        """Set mode bits less those of the target's umask."""
        raise self._no_copies()

    @staticmethod
    def _no_copies() -> UnsupportedOperation:
        return UnsupportedOperation(
            "copies to and from this target are not supported", hint="use 'harness upload' or 'harness download'"
        )


class Backend(ABC):
    """One connected target, obtained from a :data:`BackendFactory` and usable until that context is left."""

    target: Target
    transport: Transport
    capabilities: Capabilities
    files: Files
    jobs: Jobs

    @abstractmethod
    def open_terminal(self, session: str, *, create: bool = True) -> AbstractAsyncContextManager[Terminal]:
        """Attach to the tmux session of that name; ``create`` creates it and its default pane if missing.

        Raises:
            UnsupportedOperation: There is no usable tmux; the hint is the remedy.
            PaneGone: The session does not exist, and ``create`` is False; the message names the existing ones.
            TerminalError: The limit of sessions is reached.
        """

    def open_sessions(self, session: str) -> AbstractAsyncContextManager[Sessions]:
        """Open the managed tmux sessions without attaching to one; ``session`` is the default one.

        Raises:
            UnsupportedOperation: There is no usable tmux, or the backend does not support it.
        """
        raise UnsupportedOperation("this target keeps no tmux sessions", target=self.target, hint="use another target")


def _part(whole: bytes, start: int, limit: int) -> OutputPart:
    return OutputPart(whole[start : start + limit], min(start, len(whole)), len(whole))


BackendFactory = Callable[[Target, Config, "Transport | None"], AbstractAsyncContextManager[Backend]]
"""``(target, config, transport of target.base or None)`` → a backend. Found by entry point ``harness.backends``."""
