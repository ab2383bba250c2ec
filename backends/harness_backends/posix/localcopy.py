"""Files of this machine, replaced atomically. Blocking calls run in threads."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import anyio.to_thread

from harness.errors import FileError

from .fileerrors import local_error
from .filewrite import STAGE_PREFIX
from .localsource import BLOCK

__all__ = ["Replacement", "replace_local"]


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
