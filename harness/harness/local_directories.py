"""Directories of this user on this machine."""

from __future__ import annotations

from pathlib import Path

__all__ = ["make_directories"]


def make_directories(path: Path) -> None:
    """Make a directory and those above it where they are missing, all of them for this user alone.

    ``Path.mkdir`` gives those above the last one what the umask leaves, which may be everything.

    Raises:
        OSError: one of them cannot be made, or is something else.
    """
    missing = []
    at = path
    while not at.exists() and at != at.parent:
        missing.append(at)
        at = at.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
