"""Runs one command of the operator on this machine and kills everything that it leaves running."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from subprocess import PIPE

import anyio
from anyio.abc import Process

__all__ = ["STDERR_KEPT", "STDOUT_KEPT", "HookExit", "run_hook"]

log = logging.getLogger(__name__)

STDOUT_KEPT = 1 << 20
"""Maximum bytes of an answer; a longer one is invalid."""
STDERR_KEPT = 1_024
"""Maximum bytes of standard error, for messages."""
LINGER = 0.25
"""Seconds that output may continue after the command has exited: its child processes may hold it open."""
ENDING = 2.0
"""Seconds that killed processes may take to exit."""


@dataclass(frozen=True, slots=True)
class HookExit:
    """How a hook ended: ``code`` is negative for a signal, None after a timeout; ``cut``: its output was truncated."""

    code: int | None
    stdout: bytes
    stderr: bytes
    cut: bool = False


class _Pipe:
    """A pipe read by harness: it reaches its end when no process holds the write end any more."""

    def __init__(self, limit: int) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.data = bytearray()
        self.cut = False
        self._limit = limit

    async def read(self) -> None:
        """Read to the end and keep the first bytes."""
        while True:
            await anyio.wait_readable(self.reading)
            chunk = os.read(self.reading, 1 << 16)
            if not chunk:
                return
            room = self._limit - len(self.data)
            self.data += chunk[:room]
            self.cut = self.cut or len(chunk) > room

    def given(self) -> None:
        """Close the write end here, after the command has inherited it."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def close(self) -> None:
        self.given()
        os.close(self.reading)


@contextmanager
def _pipes() -> Iterator[tuple[_Pipe, _Pipe, _Pipe]]:
    """Open pipes for stdout and stderr, and one without data that ends when all processes of the hook have exited."""
    pipes: list[_Pipe] = []
    try:
        for limit in (STDOUT_KEPT, STDERR_KEPT, 0):
            pipes.append(_Pipe(limit))
        yield pipes[0], pipes[1], pipes[2]
    finally:
        for pipe in pipes:
            pipe.close()


async def run_hook(argv: Sequence[str], data: bytes, env: Mapping[str, str], timeout: float) -> HookExit:
    """Run a command in its own process group, which is killed before this returns or raises.

    Args:
        argv: the command.
        data: its standard input.
        env: its complete environment.
        timeout: seconds.

    Raises:
        OSError: it could not be started.
    """
    code: int | None = None
    with _pipes() as (stdout, stderr, life):
        async with _process(argv, env, stdout, stderr, life) as process:
            with anyio.move_on_after(timeout):
                async with anyio.create_task_group() as tasks:
                    for pipe in (stdout, stderr):
                        tasks.start_soon(pipe.read)
                    tasks.start_soon(_send, process, data)
                    code = await process.wait()
                    tasks.cancel_scope.deadline = anyio.current_time() + LINGER
        return HookExit(code, bytes(stdout.data), bytes(stderr.data), stdout.cut)


@asynccontextmanager
async def _process(
    argv: Sequence[str], env: Mapping[str, str], stdout: _Pipe, stderr: _Pipe, life: _Pipe
) -> AsyncIterator[Process]:
    process = await anyio.open_process(
        list(argv),
        stdin=PIPE,
        stdout=stdout.writing,
        stderr=stderr.writing,
        env=dict(env),
        pass_fds=(life.writing,),
        start_new_session=True,
    )
    try:
        for pipe in (stdout, stderr, life):
            pipe.given()
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process, life)


async def _send(process: Process, data: bytes) -> None:
    assert process.stdin is not None
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):  # it does not read its input
        await process.stdin.send(data)
        await process.stdin.aclose()


async def _end(process: Process, life: _Pipe) -> None:
    """Kill the process group and wait for its processes to exit."""
    with suppress(ProcessLookupError, PermissionError):  # all have exited, or the rest run as another user
        os.killpg(process.pid, signal.SIGKILL)
    with anyio.move_on_after(ENDING) as scope:
        await process.wait()
        if process.stdin is not None:
            await process.stdin.aclose()
        await life.read()
    if scope.cancelled_caught:
        log.warning("a hook left a process running outside of its process group (hook's process id: %d)", process.pid)
