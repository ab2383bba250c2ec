"""A small program that another program starts, and that reaches this process through a Unix socket.

So ``rsync`` and ``libtmux``, which start a program for each connection or command, use the connection of harness. The
socket and the program are in a private directory that only this user can enter.
"""

from __future__ import annotations

import errno
import os
import shlex
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.abc import SocketStream, UNIXSocketStream

from .background_tasks import open_background_tasks, open_task_group

__all__ = ["cancel_when_closed", "read_words", "serve_program"]

MAX_PARENT_BYTES = 70
"""Bytes of the path of the directory that contains the private one; the kernel limits that of a socket to 108."""
SETUP_SECONDS = 60.0
"""Seconds for which a directory may be one whose socket does not listen yet."""
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


@asynccontextmanager
async def serve_program(
    name: str, source: str, answer: Callable[[UNIXSocketStream], Awaitable[None]]
) -> AsyncIterator[str]:
    """Provide the path of a program, and answer each of its starts while the context is open.

    Args:
        name: The name of the program.
        source: Its source in Python; ``sys.argv[1]`` is the path of the socket, and its own arguments follow.
        answer: Serves one connection. That the program has ended is not an error.
    """

    async def serve(connection: SocketStream) -> None:
        assert isinstance(connection, UNIXSocketStream)
        with suppress(*_GONE):
            async with connection:
                await answer(connection)

    directory = Path(await to_thread.run_sync(_make_directory, f"harness-{name}-"))
    try:
        async with await anyio.create_unix_listener(directory / "s", mode=0o600) as listener:
            program = directory / name
            words = [sys.executable, "-IS", "-c", source, str(directory / "s")]
            program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            program.chmod(0o700)
            async with open_background_tasks() as tasks:
                tasks.start_soon(listener.serve, serve)
                yield str(program)
    finally:
        _remove_directory(directory)


def _make_directory(prefix: str) -> str:
    """Create a directory for a socket with mode 0700."""
    import tempfile  # slow to import, and seldom needed
    import zlib

    usual = tempfile.gettempdir()
    parent = usual if len(os.fsencode(usual)) < MAX_PARENT_BYTES else "/tmp"  # noqa: S108  # mkdtemp makes it private
    host = zlib.crc32(os.uname().nodename.encode())  # other machines may share the directory, but not their sockets
    prefix = f"{prefix}{host:08x}-"
    _remove_unused(Path(parent), prefix)
    return tempfile.mkdtemp(prefix=prefix, dir=parent)


def _remove_unused(parent: Path, prefix: str) -> None:
    """Remove this user's directories of killed processes of this machine: nothing listens at their sockets."""
    for directory in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            status = directory.lstat()
            is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
            if is_private and time.time() - status.st_mtime > SETUP_SECONDS and _is_refused(directory / "s"):
                _remove_directory(directory)


def _is_refused(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(str(path)) == errno.ECONNREFUSED


def _remove_directory(path: Path) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)


async def read_words(connection: UNIXSocketStream, limit: int, received: bytes = b"") -> list[str]:
    """Return the words of a request, which is a line of JSON.

    Args:
        connection: The connection.
        limit: Bytes of the longest request.
        received: Its first bytes.

    Raises:
        ValueError: It is longer, or not a list of words.
    """
    request = bytearray(received)
    while not request.endswith(b"\n"):
        if len(request) > limit:
            raise ValueError(f"the arguments are longer than {limit} bytes")
        request += await connection.receive()
    import json

    words = json.loads(request)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("the request is not a list of arguments")
    return words


@asynccontextmanager
async def cancel_when_closed(connection: UNIXSocketStream) -> AsyncIterator[None]:
    """Cancel the body when the program ends."""

    async def watch() -> None:
        with suppress(*_GONE):
            await connection.receive()
        tasks.cancel_scope.cancel()

    async with open_task_group() as tasks:
        tasks.start_soon(watch)
        yield
        tasks.cancel_scope.cancel()
