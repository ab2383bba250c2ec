"""Atomic replacement of files on this machine; blocking calls run in threads.

The hidden file of a killed harness process is removed once it is a day old, when a later process replaces a file in
that directory; the shell library does the same (:mod:`.shell_library`).
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import anyio.to_thread

from harness.errors import FileError

from .file_calls import file_error, local_error
from .shell_library import STAGE_PREFIX, Refusal
from .upload_source import BLOCK

__all__ = ["AtomicFile", "replace_local"]

_STAGE_NAME = re.compile(rf"{re.escape(STAGE_PREFIX)}[0-9a-f]{{24}}")
_DAY = 86400.0
_SWEEP_EVERY = 3600.0


class ReadOnlyError(PermissionError):
    """The file's owner made it read-only."""


class AtomicFile:
    """A hidden file that becomes a path, or replaces it, when :meth:`commit` is called."""

    def __init__(self, path: str, *, force: bool = False, overwrite: bool = True) -> None:
        if not overwrite and os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "exists")
        self.path = path
        self._overwrite = overwrite
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
        """Add data; small pieces are joined, as a thread switch costs more than the copy."""
        self._pieces.append(data)
        self._held += len(data)
        if self._held >= BLOCK:
            await anyio.to_thread.run_sync(self._flush)

    async def commit(self, mode: int) -> None:
        """Replace the path, with these permissions.

        Raises:
            FileExistsError: It exists, and ``overwrite`` is False.
        """
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
        # unlike a rename, this fails if the path exists by now; a hard link would need a file system that has them
        if not self._overwrite:
            os.close(os.open(self._real, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._stage.replace(self._real)
        _remove_leftovers(self._real.parent, int(time.monotonic() / _SWEEP_EVERY))

    def discard(self) -> None:
        """Remove the hidden file, if it still exists."""
        with suppress(OSError):
            self._file.close()
        self._stage.unlink(missing_ok=True)


@lru_cache(maxsize=256)
def _remove_leftovers(directory: Path, hour: int) -> None:
    """Remove this user's hidden files that are a day old, once an hour at most."""
    del hour
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if _STAGE_NAME.fullmatch(entry.name) and _is_leftover(entry.stat(follow_symlinks=False)):
                os.unlink(entry.path)


def _is_leftover(status: os.stat_result) -> bool:
    is_own_file = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    return is_own_file and time.time() - status.st_mtime > _DAY


def _is_read_only(path: Path) -> bool:
    """Return whether a file is read-only, although it could be replaced."""
    if not path.is_file() or not os.access(path.parent, os.W_OK):
        return False
    return not os.access(path, os.W_OK) or not path.stat().st_mode & 0o222


@asynccontextmanager
async def replace_local(path: str, *, force: bool = False, overwrite: bool = True) -> AsyncIterator[AtomicFile]:
    """Provide a replacement for a file of this machine, which changes nothing unless it is committed.

    Args:
        force: also replace a read-only file.
        overwrite: False is an error if the file exists.

    Raises:
        FileError: the file or its directory cannot be written.
    """
    try:
        replacement = AtomicFile(path, force=force, overwrite=overwrite)
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
