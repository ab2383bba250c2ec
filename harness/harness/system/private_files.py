"""Directories and files that are their user's alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from ..errors import HarnessError
from ..local_directories import make_directories

__all__ = ["check_own", "check_private", "is_open_to_others", "make_private"]

Failure = Callable[[str, str], HarnessError]
"""Makes the error of what is wrong, and a hint, which may be empty."""


def make_private(directory: Path, *files: str, failure: Failure) -> None:
    """Make a directory, and files in it, where they are missing.

    Raises:
        OSError: they cannot be made, or a file is a link.
        HarnessError: the directory is not private; see :func:`check_private`.
    """
    make_directories(directory)
    check_private(directory, failure=failure)
    for name in files:
        os.close(os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def check_private(directory: Path, *, failure: Failure) -> None:
    """Refuse a directory that is not ours alone.

    Raises:
        OSError: there is none, or nobody may look.
        HarnessError: it is a link, belongs to somebody else, or is open to others.
    """
    check_own(directory, failure=failure)
    if is_open_to_others(directory):
        raise failure("other users may look into it", f"chmod 700 {directory}")


def check_own(directory: Path, *, failure: Failure) -> None:
    """Refuse what is no directory of ours; whether others may look into it is not asked.

    Raises:
        OSError: there is none, or nobody may look.
        HarnessError: it is a link, or belongs to somebody else.
    """
    info = directory.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise failure("it is no directory", "")
    if info.st_uid != os.geteuid():
        raise failure("it belongs to another user", "")


def is_open_to_others(directory: Path) -> bool:
    """Whether its rights let other users in."""
    return bool(directory.lstat().st_mode & 0o077)
