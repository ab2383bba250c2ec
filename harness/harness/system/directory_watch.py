"""Waits for changes of a directory on this machine: by inotify on Linux, elsewhere by looking again."""

from __future__ import annotations

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

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    async def wait_for_change(self) -> None:
        """Return when a name has appeared or vanished since the last call, or since the watch was opened."""
        if self._descriptor is None:
            await anyio.sleep(RESCAN_INTERVAL)
            return
        await anyio.wait_readable(self._descriptor)
        try:
            os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return


@contextmanager
def watch_directory(path: Path) -> Iterator[DirectoryWatch]:
    """Watch a directory, which must exist, for names that appear or vanish in it."""
    descriptor = _open_inotify(path)
    try:
        yield DirectoryWatch(descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open_inotify(path: Path) -> int | None:
    """Return a descriptor that becomes readable with a change; None where there is no inotify."""
    import ctypes  # only for those who watch

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "inotify_init1"):
        return None
    descriptor: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:  # the limit of the user is reached
        return None
    if library.inotify_add_watch(descriptor, os.fsencode(path), CHANGES) < 0:
        os.close(descriptor)
        return None
    return descriptor
