"""Files of this machine, read in pieces. Blocking calls run in threads."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import BinaryIO

import anyio.to_thread

from harness.errors import FileError

from .file_calls import display_path, local_error

__all__ = ["BLOCK", "LocalSource", "open_source"]

BLOCK = 1 << 20


class LocalSource:
    """A regular file, read up to the size that it had when opened."""

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
        self._file = file

    async def chunks(self, look: Callable[[bytes], None]) -> AsyncIterator[bytes]:
        """Yield the content in pieces; ``look`` gets each piece first, in the reading thread.

        Raises:
            FileError: the file shrank meanwhile, or cannot be read.
        """
        left = self.size
        while left:
            try:
                data = await anyio.to_thread.run_sync(self._read, min(BLOCK, left), look)
            except OSError as error:
                raise local_error(self.path, error) from error
            if not data:
                raise FileError(f"{display_path(self.path)}: the file shrank while it was read", target="this machine")
            left -= len(data)
            yield data

    def _read(self, size: int, look: Callable[[bytes], None]) -> bytes:
        data = self._file.read(size)
        look(data)
        return data


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
