"""Directories on disks that can be filled."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

__all__ = ["DISKS", "file_limit", "small_disk"]


@contextmanager
def small_disk(directory: Path, *, size: str = "1m") -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """A file system of this size; what is given fills it, for as long as it lasts.

    What jobs of state directories on it have in memory is removed at the end.
    """
    directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "harness-test", directory], check=True)

    @contextmanager
    def full() -> Iterator[None]:
        path = directory / "filler"
        with path.open("wb", buffering=0) as file:
            for length in (4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * length)
        yield
        path.unlink()

    try:
        yield full
    finally:
        for link in directory.rglob("jobs/*.cmd"):
            if link.is_symlink():
                shutil.rmtree(link.readlink().parent, ignore_errors=True)
        subprocess.run(["umount", "-l", directory], check=True)


@contextmanager
def file_limit(directory: Path) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """No file may grow any more: the same for SQLite, where no file system can be mounted."""
    directory.mkdir(parents=True, mode=0o700)

    @contextmanager
    def full() -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        largest = max((path.stat().st_size for path in directory.iterdir() if path.name.endswith("-wal")), default=100)
        writes_bytecode = sys.dont_write_bytecode
        sys.dont_write_bytecode = True  # importlib would keep a truncated file
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            sys.dont_write_bytecode = writes_bytecode

    yield full


DISKS = {"limit": file_limit} | ({"mount": small_disk} if os.getuid() == 0 else {})
