"""Files of this machine, replaced atomically. Blocking calls run in threads."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import anyio.to_thread

from harness.errors import FileError

from .fileerrors import file_error, local_error
from .filescript import Refusal
from .filewrite import STAGE_PREFIX
from .localsource import BLOCK

__all__ = ["Replacement", "replace_local"]


class ReadOnlyError(PermissionError):
    """The file's owner made it read-only."""


class Replacement:
    """A hidden file that takes a path's place when :meth:`commit` is called."""

    def __init__(self, path: str, *, force: bool = False) -> None:
        self.path = path
        self._real = Path(os.path.realpath(path))
        self._stage = self._real.parent / f"{STAGE_PREFIX}{secrets.token_hex(12)}"
        if self._real.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        if not force and _is_read_only(self._real):
            raise ReadOnlyError(errno.EACCES, "is read-only")
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


def _is_read_only(path: Path) -> bool:
    """Whether the owner of a file does not want it written, although it could be replaced."""
    if not path.is_file() or not os.access(path.parent, os.W_OK):
        return False
    return not os.access(path, os.W_OK) or not path.stat().st_mode & 0o222


@asynccontextmanager
async def replace_local(path: str, *, force: bool = False) -> AsyncIterator[Replacement]:
    """A replacement for a file of this machine; nothing has changed unless it was committed.

    Args:
        force: replace a file that its owner made read-only, too.

    Raises:
        FileError: the file or its directory cannot be written.
    """
    try:
        replacement = Replacement(path, force=force)
    except ReadOnlyError as error:
        raise file_error(path, Refusal.READ_ONLY, b"", "this machine") from error
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
