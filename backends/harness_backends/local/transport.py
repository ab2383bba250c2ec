"""Processes of this machine, each in its own process group."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack, suppress

import anyio
import anyio.lowlevel
from anyio.abc import Process as AnyioProcess

from harness.errors import ConnectError
from harness.target import Target
from harness.transport import Process, Transport
from harness.withheld import child_env

__all__ = ["LocalProcess", "LocalTransport"]

TERM_GRACE = 1.0
KILL_GRACE = 2.0


class PipeEnd:
    """This process's end of a pipe, which can be closed while a grandchild still holds the other end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._open = True
        os.set_blocking(descriptor, False)

    async def read(self, max_bytes: int) -> bytes:
        """Read the next bytes; ``b""`` at the end."""
        await anyio.lowlevel.checkpoint()
        while self._open:
            try:
                return os.read(self._descriptor, max_bytes)
            except BlockingIOError:
                with suppress(anyio.ClosedResourceError):
                    await anyio.wait_readable(self._descriptor)
        return b""

    async def write(self, data: bytes) -> None:
        """Write all data; raise :exc:`BrokenPipeError` if the reader has closed the pipe."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        rest = memoryview(data)
        while rest:
            if not self._open:
                raise BrokenPipeError("the process's input is closed")
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                with suppress(anyio.ClosedResourceError):
                    await anyio.wait_writable(self._descriptor)

    def close(self) -> None:
        """Close the pipe and wake its waiting readers and writers."""
        if self._open:
            self._open = False
            anyio.notify_closing(self._descriptor)
            os.close(self._descriptor)


class LocalProcess(Process):
    """A child process in its own session."""

    def __init__(self, process: AnyioProcess, stdin: PipeEnd, stdout: PipeEnd, stderr: PipeEnd) -> None:
        self._process = process
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = stderr

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._stdout.read(max_bytes)

    async def receive_stderr(self, max_bytes: int = 65536) -> bytes:
        return await self._stderr.read(max_bytes)

    async def send(self, data: bytes) -> None:
        await self._stdin.write(data)

    async def send_eof(self) -> None:
        self._stdin.close()

    async def wait(self) -> int:
        return exit_status(await self._process.wait())

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            self._stdin.close()
            await self._end()
            self._stdout.close()
            self._stderr.close()

    async def _end(self) -> None:
        for number, grace in ((signal.SIGTERM, TERM_GRACE), (signal.SIGKILL, KILL_GRACE)):
            if self._process.returncode is not None:
                return
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with anyio.move_on_after(grace):
                await self._process.wait()


class LocalTransport(Transport):
    """A transport that starts processes on this machine."""

    shares_sockets = False

    def __init__(self, target: Target) -> None:
        self.target = target

    async def open_process(self, argv: Sequence[str]) -> Process:
        with ExitStack() as ours, ExitStack() as theirs:
            pipes = [_pipe(ours, theirs, reading=reading) for reading in (False, True, True)]
            process = await self._start(argv, *(child for _, child in pipes))
            ours.pop_all()
            return LocalProcess(process, *(pipe for pipe, _ in pipes))

    async def _start(self, argv: Sequence[str], stdin: int, stdout: int, stderr: int) -> AnyioProcess:
        try:
            return await anyio.open_process(
                list(argv), stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, env=child_env()
            )
        except OSError as error:
            reason = error.strerror or "could not be started"
            raise ConnectError(f"{argv[0]}: {reason.lower()}", target=self.target) from error

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def describe(self) -> str:
        return "local"


def _pipe(ours: ExitStack, theirs: ExitStack, *, reading: bool) -> tuple[PipeEnd, int]:
    """Create a pipe: this process's end and the child's, each closed with its stack."""
    source, sink = os.pipe()
    mine, child = (source, sink) if reading else (sink, source)
    theirs.callback(os.close, child)
    pipe = PipeEnd(mine)
    ours.callback(pipe.close)
    return pipe, child


def exit_status(returncode: int) -> int:
    """Return a shell's exit status for a return code: death by signal N is 128 + N."""
    return 128 - returncode if returncode < 0 else returncode
