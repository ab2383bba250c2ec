"""A server's process on this machine: what it is, what it may know of us, and its end with everything it started."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
import anyio.lowlevel
from anyio.abc import Process

from ..errors import ConfigError, ConnectError

__all__ = ["ChildProcess", "Launch", "child_environment", "locate", "open_child"]

INHERITED = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"})
"""What a server gets of our environment, and variables that begin with LC_."""
CLOSE_GRACE = 2.0
TERM_GRACE = 2.0
KILL_GRACE = 2.0
CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Launch:
    """A process as it will be started: ``command`` begins with the absolute path of the program."""

    command: tuple[str, ...]
    environ: Mapping[str, str]
    cwd: str | None = None


def child_environment(environ: Mapping[str, str], extras: Mapping[str, str]) -> dict[str, str]:
    """What a server may know: the usual few variables and what its settings add. Pure."""
    kept = {name: value for name, value in environ.items() if name in INHERITED or name.startswith("LC_")}
    return {name: value for name, value in kept.items() if not value.startswith("()")} | dict(extras)


def locate(program: str, search: str, cwd: str | None, pin: str, where: str) -> str:
    """The file that is started for a program's name. With a ``pin``, the file itself, and only if it has that digest.

    Reads files: for a worker thread.

    Raises:
        ConfigError: there is no such program, or it is another one than the pinned.
    """
    name = os.path.join(cwd or os.getcwd(), program) if os.sep in program else program
    found = shutil.which(name, path=search)
    if found is None:
        raise ConfigError(f"{where}: there is no program {program!r} that can be started on this machine")
    path = os.path.abspath(found)
    if not pin:
        return path
    path = os.path.realpath(path)
    digest = _digest(path, where)
    if digest != pin:
        raise ConfigError(
            f"{where}: {path} is not the pinned program: its SHA-256 is {digest}",
            hint="find out what changed it; set pin to the new digest to allow it",
        )
    return path


def _digest(path: str, where: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{where}: {path}: {(error.strerror or str(error)).lower()}") from error


class ChildProcess:
    """A process in a session of its own. Our ends of its pipes can be closed while a grandchild holds the others."""

    def __init__(self, process: Process, stdin: int, stdout: int, stderr: int) -> None:
        self._process = process
        self._closed = False
        self._open = {stdin, stdout, stderr}
        self._stdin, self._stdout, self._stderr = stdin, stdout, stderr
        for descriptor in self._open:
            os.set_blocking(descriptor, False)

    @property
    def pid(self) -> int:
        """Its process id, which is its group's and its session's, too."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its return code, None while it runs; negative for a signal."""
        return self._process.returncode

    async def read(self) -> bytes:
        """The next of its output, ``b""`` at the end."""
        return await self._read(self._stdout)

    async def read_errors(self) -> bytes:
        """The next of what it writes to stderr, ``b""`` at the end."""
        return await self._read(self._stderr)

    async def _read(self, descriptor: int) -> bytes:
        await anyio.lowlevel.checkpoint()
        while descriptor in self._open:
            try:
                return os.read(descriptor, CHUNK)
            except BlockingIOError:
                with suppress(anyio.ClosedResourceError):
                    await anyio.wait_readable(descriptor)
        return b""

    async def write(self, data: bytes) -> None:
        """Write everything.

        Raises:
            BrokenPipeError: nobody reads it any more.
        """
        rest = memoryview(data)
        while rest:
            if self._stdin not in self._open:
                raise BrokenPipeError("its input is closed")
            try:
                rest = rest[os.write(self._stdin, rest) :]
            except BlockingIOError:
                with suppress(anyio.ClosedResourceError):
                    await anyio.wait_writable(self._stdin)

    async def wait(self) -> int:
        """Its return code once it has ended, whoever still holds its pipes."""
        return await self._process.wait()

    async def aclose(self) -> None:
        """End it: its input is closed, then its whole group is asked to end, then killed. Bounded, never cancelled."""
        if self._closed:  # its group's number may be another's by now
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            self._close(self._stdin)
            await self._ended_within(CLOSE_GRACE)
            if self._process.returncode is None:
                self._signal(signal.SIGTERM)
                await self._ended_within(TERM_GRACE)
            self._signal(signal.SIGKILL)  # also when it ended by itself: what it started may live on
            await self._ended_within(KILL_GRACE)
            for descriptor in (self._stdout, self._stderr):
                self._close(descriptor)

    async def _ended_within(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            anyio.notify_closing(descriptor)
            os.close(descriptor)


@asynccontextmanager
async def open_child(launch: Launch, where: str) -> AsyncIterator[ChildProcess]:
    """Start a process; it and its whole group have ended when this is left.

    Raises:
        ConnectError: it could not be started.
    """
    with ExitStack() as theirs, ExitStack() as ours:
        pipes = [_pipe(ours, theirs, reading=reading) for reading in (False, True, True)]
        process = await _start(launch, [child for _, child in pipes], where)
        ours.pop_all()
        child = ChildProcess(process, *(mine for mine, _ in pipes))
    try:
        yield child
    finally:
        await child.aclose()


async def _start(launch: Launch, ends: Sequence[int], where: str) -> Process:
    stdin, stdout, stderr = ends
    command, env = list(launch.command), launch.environ
    with anyio.CancelScope(shield=True):  # a cancel in between would lose a process that has begun
        try:
            process = await anyio.open_process(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=launch.cwd, start_new_session=True
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConnectError(f"{where}: {command[0]} could not be started: {reason.lower()}") from error
    return process


def _pipe(ours: ExitStack, theirs: ExitStack, *, reading: bool) -> tuple[int, int]:
    """A new pipe: our end and the child's, each closed with its stack."""
    source, sink = os.pipe()
    mine, child = (source, sink) if reading else (sink, source)
    ours.callback(os.close, mine)
    theirs.callback(os.close, child)
    return mine, child
