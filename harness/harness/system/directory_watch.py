"""Waits for changes of a directory on this machine: by inotify on Linux, elsewhere by polling."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

__all__ = ["RESCAN_INTERVAL", "DirectoryWatch", "watch_directory"]

RESCAN_INTERVAL = 2.0
"""Seconds after which a directory counts as changed where the kernel does not report changes."""
CREATED, MOVED_HERE, MOVED_AWAY, DELETED, DELETED_ITSELF = 0x100, 0x80, 0x40, 0x200, 0x400
CHANGES = CREATED | MOVED_HERE | MOVED_AWAY | DELETED | DELETED_ITSELF
"""Flags of inotify: a name appeared or vanished, or the directory itself did."""


class DirectoryWatch:
    """The watch of one directory; :func:`watch_directory` opens it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._open_inotify()

    def _open_inotify(self) -> int | None:
        """Return a descriptor that becomes readable with a change; None without inotify."""
        if not hasattr(self._library, "inotify_init1"):
            return None
        descriptor: int = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        return descriptor if descriptor >= 0 else None  # negative: the limit of the user is reached

    def renew(self) -> None:
        """Watch the directory that has the path now: the earlier one may have been deleted.

        Where that is not possible, changes are found by polling.
        """
        if self._descriptor is not None:
            path = os.fsencode(self._path)
            if self._library.inotify_add_watch(self._descriptor, path, CHANGES) < 0:
                self.close()

    async def wait_for_change(self) -> None:
        """Return when a name has appeared or vanished since the last call, or since the watch was opened or renewed."""
        if self._descriptor is None:
            await anyio.sleep(RESCAN_INTERVAL)
            return
        await anyio.wait_readable(self._descriptor)
        try:
            os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Release the descriptor."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def watch_directory(path: Path) -> Iterator[DirectoryWatch]:
    """Watch a directory, which must exist, for names that appear or vanish in it."""
    watch = DirectoryWatch(path)
    try:
        watch.renew()
        yield watch
    finally:
        watch.close()
