"""Standard input and output for a protocol alone: one message per line, and nothing else.

While it runs, anything that is printed goes to standard error, and children get an empty input: a stray line would
break the protocol. Reading and writing wait for the descriptors in the event loop, not in a thread, so that a signal
ends the program even while its client sends or reads nothing.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import anyio

__all__ = ["Wire", "claimed_stdio", "read_some", "write_all"]

READ = 64 << 10
log = logging.getLogger("harness.protocol")


@dataclass(frozen=True, slots=True)
class Wire:
    """The descriptors of the protocol's input and output."""

    incoming: int
    outgoing: int


@contextmanager
def claimed_stdio() -> Iterator[Wire]:
    """Take standard input and output for the protocol alone, until the process exits.

    They are not restored: a thread or a child may still print, and the client would read it.
    """
    wire = Wire(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3), fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield wire
    finally:
        os.close(wire.incoming)
        os.close(wire.outgoing)


async def read_some(descriptor: int) -> bytes:
    """Return available input; empty at the end."""
    await _ready(anyio.wait_readable, descriptor)
    try:
        return os.read(descriptor, READ)
    except OSError as error:
        log.info("cannot read the client's messages: %s", error)
        return b""


async def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data.

    Raises:
        OSError: The client no longer reads.
    """
    view = memoryview(data)
    while view:
        await _ready(anyio.wait_writable, descriptor)
        with suppress(BlockingIOError):
            view = view[os.write(descriptor, view[: select.PIPE_BUF]) :]  # a ready pipe accepts this without blocking


async def _ready(wait: Callable[[int], Awaitable[None]], descriptor: int) -> None:
    try:
        await wait(descriptor)
    except PermissionError:  # a regular file, which epoll does not support and which never blocks
        await anyio.lowlevel.checkpoint()
