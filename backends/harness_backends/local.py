"""This machine: processes in their own group, killed as a group."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ByteReceiveStream
from anyio.abc import Process as AnyioProcess

from harness.backend import Backend
from harness.config import Config
from harness.errors import ConnectError
from harness.target import Target
from harness.transport import Process, Transport

__all__ = ["LocalTransport", "open_backend"]

TERM_GRACE = 1.0
KILL_GRACE = 2.0
DRAIN_GRACE = 0.5


class LocalProcess(Process):
    """A child process in a session of its own."""

    def __init__(self, process: AnyioProcess) -> None:
        self._process = process

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await _receive(self._process.stdout, max_bytes)

    async def receive_stderr(self, max_bytes: int = 65536) -> bytes:
        return await _receive(self._process.stderr, max_bytes)

    async def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise BrokenPipeError("the process closed its input") from error

    async def send_eof(self) -> None:
        assert self._process.stdin is not None
        with suppress(anyio.BrokenResourceError):
            await self._process.stdin.aclose()

    async def wait(self) -> int:
        return exit_status(await self._process.wait())

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.send_eof()
            await self._end()
            for stream in (self._process.stdout, self._process.stderr):
                with anyio.move_on_after(DRAIN_GRACE):
                    while await _receive(stream, 1 << 20):
                        pass  # the pipe is closed only once its end was seen
                assert stream is not None
                await stream.aclose()

    async def _end(self) -> None:
        for number, grace in ((signal.SIGTERM, TERM_GRACE), (signal.SIGKILL, KILL_GRACE)):
            if self._process.returncode is not None:
                return
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with anyio.move_on_after(grace):
                await self._process.wait()


class LocalTransport(Transport):
    """Starts processes on this machine."""

    def __init__(self, target: Target) -> None:
        self.target = target

    async def open_process(self, argv: Sequence[str]) -> Process:
        try:
            process = await anyio.open_process(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            reason = error.strerror or "it could not be started"
            raise ConnectError(f"{argv[0]}: {reason.lower()}", target=self.target) from error
        return LocalProcess(process)

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def describe(self) -> str:
        return "local"


def exit_status(returncode: int) -> int:
    """A shell's view of a return code: death by signal N is 128 + N."""
    return 128 - returncode if returncode < 0 else returncode


async def _receive(stream: ByteReceiveStream | None, max_bytes: int) -> bytes:
    assert stream is not None
    try:
        return await stream.receive(max_bytes)
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return b""


@asynccontextmanager
async def open_backend(target: Target, config: Config, transport: Transport | None) -> AsyncIterator[Backend]:
    """The backend of ``local:``."""
    from .posix.backend import open_posix_backend

    async with open_posix_backend(LocalTransport(target), config) as backend:
        yield backend
