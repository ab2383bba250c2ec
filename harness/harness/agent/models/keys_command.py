"""Runs the key command: without a shell, input or terminal, and with a timeout."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from subprocess import DEVNULL

import anyio
from anyio.abc import Process

__all__ = ["CommandOutput", "printed_by"]

LINGER = 0.25
"""Maximum seconds for output after the program's exit: a daemon that it started may keep the pipe open."""
ENDING = 2.0
"""Maximum seconds to wait for a killed program."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """Output of a program, at most one byte longer than the limit; ``code`` None: it was killed."""

    code: int | None
    stdout: bytes
    stderr: bytes


async def printed_by(argv: Sequence[str], timeout: float, limit: int) -> CommandOutput:
    """Run a program in its own session, so that it cannot read from harness's terminal.

    Args:
        argv: the program and its arguments.
        timeout: seconds after which the program and its process group are killed.
        limit: maximum bytes of each output. More on standard output kills the program; more on standard error is read
            and dropped.

    Raises:
        OSError: it could not be started.
    """
    code: int | None = None
    with _pipe(limit, ends_full=True) as stdout, _pipe(limit) as stderr:
        async with _process(argv, stdout, stderr) as process:
            with anyio.move_on_after(timeout):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_until_enough, stdout, tasks.cancel_scope)
                    tasks.start_soon(stderr.read)
                    code = await process.wait()
                    tasks.cancel_scope.deadline = anyio.current_time() + LINGER
        return CommandOutput(code, stdout.rest(), stderr.rest())


async def _until_enough(stdout: _Pipe, scope: anyio.CancelScope) -> None:
    await stdout.read()
    if stdout.is_full:
        scope.cancel()


class _Pipe:
    """A pipe whose reading end harness keeps."""

    def __init__(self, limit: int, *, ends_full: bool) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self._data = b""
        self._limit = limit
        self._ends_full = ends_full

    @property
    def is_full(self) -> bool:
        """Whether more than the limit was received."""
        return len(self._data) > self._limit

    async def read(self) -> None:
        """Read to the end, or with ``ends_full`` until the limit is exceeded."""
        more = True
        while more:
            await anyio.wait_readable(self.reading)
            more = self._take() and not (self._ends_full and self.is_full)

    def rest(self) -> bytes:
        """Return everything received, including what has not been read yet."""
        with suppress(BlockingIOError):
            while len(self._data) <= self._limit and self._take():
                pass
        return self._data

    def _take(self) -> bool:
        """Read available data; return False at the end."""
        chunk = os.read(self.reading, 1 << 16)
        self._data = (self._data + chunk)[: self._limit + 1]
        return bool(chunk)

    def given(self) -> None:
        """Close the writing end, which the program has inherited."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1


@contextmanager
def _pipe(limit: int, *, ends_full: bool = False) -> Iterator[_Pipe]:
    pipe = _Pipe(limit, ends_full=ends_full)
    try:
        yield pipe
    finally:
        pipe.given()
        os.close(pipe.reading)


@asynccontextmanager
async def _process(argv: Sequence[str], stdout: _Pipe, stderr: _Pipe) -> AsyncIterator[Process]:
    process = await anyio.open_process(
        list(argv), stdin=DEVNULL, stdout=stdout.writing, stderr=stderr.writing, start_new_session=True
    )
    try:
        stdout.given()
        stderr.given()
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with anyio.move_on_after(ENDING, shield=True):
                await process.wait()
