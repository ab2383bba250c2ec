"""Non-blocking reads and writes of pipes, terminals and sockets on the event loop."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

import anyio
import anyio.lowlevel

__all__ = ["DescriptorStream", "open_pipe", "read_when_ready", "write_when_ready"]

T = TypeVar("T")


async def read_when_ready(source: int | socket.socket, read: Callable[[], T]) -> T:
    """Return the result of a non-blocking read, which is repeated while there is nothing to read.

    Other tasks run in any case: while it waits, else after the read.

    Raises:
        anyio.ClosedResourceError: the source was closed during the wait.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    waited = False
    while True:
        try:
            result = read()
        except BlockingIOError:
            await anyio.wait_readable(source)
            waited = True
            continue
        if not waited:
            await anyio.lowlevel.cancel_shielded_checkpoint()  # what was read must not be lost
        return result


async def write_when_ready(sink: int | socket.socket, data: bytes, write: Callable[[memoryview], int]) -> None:
    """Write all data by a non-blocking write, which returns how many bytes it accepted.

    Raises:
        anyio.ClosedResourceError: the sink was closed during the wait.
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[write(rest) :]
        except BlockingIOError:
            await anyio.wait_writable(sink)


class DescriptorStream:
    """An end of a pipe or terminal, which can be closed while another process still holds the other end.

    One task may read while another writes.

    Args:
        descriptor: The open descriptor; the stream makes it non-blocking and closes it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._open = True
        os.set_blocking(descriptor, False)

    async def read(self, max_bytes: int = 65536) -> bytes:
        """Read the next bytes; ``b""`` at the end, or once the stream is closed."""
        try:
            return await read_when_ready(self._descriptor, lambda: self._read(max_bytes))
        except anyio.ClosedResourceError:
            return b""

    def read_available(self, max_bytes: int = 65536) -> bytes:
        """Read without waiting; ``b""`` if there is nothing to read, or at the end."""
        try:
            return self._read(max_bytes)
        except BlockingIOError:
            return b""

    def _read(self, max_bytes: int) -> bytes:
        try:
            return os.read(self._descriptor, max_bytes) if self._open else b""
        except OSError as error:
            if error.errno != errno.EIO:  # no process holds the other side of the terminal
                raise
            return b""

    async def write(self, data: bytes) -> None:
        """Write all data.

        Raises:
            BrokenPipeError: The reader has closed the pipe, or the stream is closed.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        try:
            await write_when_ready(self._descriptor, data, self._write)
        except anyio.ClosedResourceError as error:
            raise BrokenPipeError("the stream is closed") from error

    def _write(self, data: memoryview) -> int:
        if not self._open:
            raise BrokenPipeError("the stream is closed")
        return os.write(self._descriptor, data)

    def close(self) -> None:
        """Close the descriptor and wake its waiting readers and writers."""
        if self._open:
            self._open = False
            anyio.notify_closing(self._descriptor)
            os.close(self._descriptor)


def open_pipe(ours: ExitStack, theirs: ExitStack, *, reading: bool) -> tuple[DescriptorStream, int]:
    """Create a pipe: this process's end and a child's, each closed with its stack."""
    source, sink = os.pipe()
    mine, child = (source, sink) if reading else (sink, source)
    theirs.callback(os.close, child)
    stream = DescriptorStream(mine)
    ours.callback(stream.close)
    return stream, child
