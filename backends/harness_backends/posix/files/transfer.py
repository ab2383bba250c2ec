"""Bulk data transfer through a separate process, with bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from harness.system.background_tasks import open_task_group
from harness.transport import Process

from ..persistent_shell import ShellReply

__all__ = ["collect", "drain", "feed"]

CHUNK = 256 << 10
_STDERR_KEPT = 8192
_ANSWER_KEPT = 64 << 10
"""Bytes of an answer, which has a few paths and hashes; a program that prints more is read, and not kept."""

Receive = Callable[[int], Awaitable[bytes]]
Sink = Callable[[bytes], Awaitable[None]]


async def feed(process: Process, chunks: AsyncIterator[bytes]) -> ShellReply:
    """Send chunks to a program and return its reply; if it exits early, the rest is not sent.

    An exception from ``chunks`` is raised again, after the program was terminated.
    """
    async with process, _draining(process, answer=True) as streams:
        try:
            async for chunk in chunks:
                await process.send(chunk)
        except BrokenPipeError:
            pass  # its exit code tells why
        await process.send_eof()
        await streams.ended()
        code = await process.wait()
    return ShellReply(code, bytes(streams.out), bytes(streams.err))


async def drain(process: Process, sink: Sink, limit: int | None = None) -> ShellReply:
    """Pass a program's output to ``sink``; with ``limit``, stop after that many bytes, which counts as success."""
    async with process, _draining(process, answer=False) as streams:
        left = limit
        while left != 0 and (data := await process.receive(CHUNK)):
            data = data if left is None else data[:left]
            left = None if left is None else left - len(data)
            await sink(data)
        if left == 0:
            return ShellReply(0, b"", b"")
        await streams.ended()
        code = await process.wait()
    return ShellReply(code, b"", bytes(streams.err))


class _StreamDrainer:
    """A reader of the streams that the caller does not read itself, so that the program never blocks on them."""

    def __init__(self, process: Process, *, answer: bool) -> None:
        self.out = bytearray()
        self.err = bytearray()
        self._process = process
        self._answer = answer
        self._left = 1 + answer
        self._ended = anyio.Event()

    def start(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._gather, self._process.receive_stderr, self.err, _STDERR_KEPT)
        if self._answer:
            tasks.start_soon(self._gather, self._process.receive, self.out, _ANSWER_KEPT)

    async def ended(self) -> None:
        await self._ended.wait()

    async def _gather(self, receive: Receive, into: bytearray, keep: int) -> None:
        while data := await receive(65536):
            if len(into) < keep:
                into += data
        self._left -= 1
        if not self._left:
            self._ended.set()


@asynccontextmanager
async def _draining(process: Process, *, answer: bool) -> AsyncIterator[_StreamDrainer]:
    streams = _StreamDrainer(process, answer=answer)
    async with open_task_group() as tasks:
        streams.start(tasks)
        yield streams
        tasks.cancel_scope.cancel()


async def collect(process: Process) -> ShellReply:
    """Run a program without input until it exits, and return its output."""
    return await feed(process, _nothing())


async def _nothing() -> AsyncIterator[bytes]:
    none: tuple[bytes, ...] = ()
    for chunk in none:
        yield chunk
