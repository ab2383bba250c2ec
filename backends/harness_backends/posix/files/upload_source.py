"""Files of this machine, read in pieces. Blocking calls run in threads."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO

import anyio.to_thread

from harness.backend import SourceFile
from harness.errors import FileError

from .file_calls import Hasher, display_path, local_error, parse_scheme
from .transfer import Sink

__all__ = ["BLOCK", "LocalSource", "open_source"]

BLOCK = 1 << 20


class LocalSource(SourceFile):
    """A regular file, read up to the size that it had when opened; it may grow meanwhile."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileError(
                f"{display_path(path)}: not a regular file",
                target="this machine",
                hint="pass the path of a regular file",
            )
        self.path = path
        self.size = status.st_size
        self.mode = stat.S_IMODE(status.st_mode) & 0o777
        self.mtime = status.st_mtime
        self.data = None
        self._file = file

    async def copy(self, offset: int, sink: Sink) -> None:
        async for data in self.chunks(offset, self.size):
            await sink(data)

    async def version(self, length: int, scheme: str) -> str | None:
        hasher = Hasher(parse_scheme(scheme))
        async for data in self.chunks(0, length):
            hasher.update(data)
        return hasher.version()

    async def check_unchanged(self) -> None:
        """Accept a file that has grown; one that shrank cannot be read to its end."""

    async def chunks(self, start: int, end: int) -> AsyncIterator[bytes]:
        """Yield a part of the content in pieces.

        Raises:
            FileError: the file shrank meanwhile, or cannot be read.
        """
        while start < end:
            try:
                data = await anyio.to_thread.run_sync(os.pread, self._file.fileno(), min(BLOCK, end - start), start)
            except OSError as error:
                raise local_error(self.path, error) from error
            if not data:
                raise FileError(f"{display_path(self.path)}: the file shrank while it was read", target="this machine")
            start += len(data)
            yield data


@asynccontextmanager
async def open_source(path: str) -> AsyncIterator[LocalSource]:
    """Open a file of this machine for reading, without waiting for a pipe's writer.

    Raises:
        FileError: the file cannot be read, or is not a regular file.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise local_error(path, error) from error
    with os.fdopen(number, "rb", buffering=0) as file:
        yield LocalSource(path, file)
