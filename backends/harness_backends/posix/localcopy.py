"""Files of this machine: read in pieces, and replaced atomically. Blocking calls run in threads."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import anyio.to_thread

from harness.errors import FileError

from .fileerrors import local_error, shown
from .filewrite import STAGE_PREFIX

__all__ = ["LocalSource", "Replacement", "open_source", "replace_local"]

BLOCK = 1 << 20


class LocalSource:
    """A regular file, exactly as long as it was when it was opened."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{shown(path)}: not a regular file", target="this machine", hint="name a file")
        self.path = path
        self.size = status.st_size
        self.mode = stat.S_IMODE(status.st_mode) & 0o777
        self._file = file

    async def chunks(self, look: Callable[[bytes], None]) -> AsyncIterator[bytes]:
        """The content, in pieces; ``look`` sees each first, in the thread that read it.

        Raises:
            FileError: it became shorter meanwhile, or cannot be read.
        """
        left = self.size
        while left:
            try:
                data = await anyio.to_thread.run_sync(self._read, min(BLOCK, left), look)
            except OSError as error:
                raise local_error(self.path, error) from error
            if not data:
                raise FileError(f"{shown(self.path)}: became shorter while it was read", target="this machine")
            left -= len(data)
            yield data

    def _read(self, size: int, look: Callable[[bytes], None]) -> bytes:
        data = self._file.read(size)
        look(data)
        return data


@asynccontextmanager
async def open_source(path: str) -> AsyncIterator[LocalSource]:
    """Open a file of this machine for reading. Never waits for a pipe's writer.

    Raises:
        FileError: it cannot be read, or is no regular file.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise local_error(path, error) from error
    with os.fdopen(number, "rb", buffering=0) as file:
        yield LocalSource(path, file)


class Replacement:
    """A hidden file that takes a path's place when :meth:`commit` is called."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._real = Path(os.path.realpath(path))
        self._stage = self._real.parent / f"{STAGE_PREFIX}{secrets.token_hex(12)}"
        if self._real.is_dir():
            raise IsADirectoryError(21, "is a directory")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file: BinaryIO = os.fdopen(os.open(self._stage, flags, 0o600), "wb", buffering=0)
        self._pieces: list[bytes] = []
        self._held = 0

    async def write(self, data: bytes) -> None:
        """Add data. Small pieces are written together, as each visit to a thread costs more than its copy."""
        self._pieces.append(data)
        self._held += len(data)
        if self._held >= BLOCK:
            await anyio.to_thread.run_sync(self._flush)

    async def commit(self, mode: int) -> None:
        """Take the path's place, with these permissions."""
        await anyio.to_thread.run_sync(self._commit, mode)

    def _flush(self) -> None:
        data = memoryview(b"".join(self._pieces))
        while data:
            data = data[self._file.write(data) :]
        self._pieces, self._held = [], 0

    def _commit(self, mode: int) -> None:
        self._flush()
        self._file.close()
        self._stage.chmod(mode)
        self._stage.replace(self._real)

    def discard(self) -> None:
        """Remove the hidden file, if it still exists."""
        with suppress(OSError):
            self._file.close()
        self._stage.unlink(missing_ok=True)


@asynccontextmanager
async def replace_local(path: str) -> AsyncIterator[Replacement]:
    """A replacement for a file of this machine; nothing has changed unless it was committed.

    Raises:
        FileError: the file or its directory cannot be written.
    """
    try:
        replacement = Replacement(path)
    except OSError as error:
        raise local_error(path, error) from error
    try:
        yield replacement
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise local_error(path, error) from error
    finally:
        replacement.discard()
