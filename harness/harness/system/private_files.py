"""Directories and files of this machine that are their user's alone, and where harness keeps its own."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from ..account import home_directory
from ..errors import HarnessError

__all__ = [
    "check_own",
    "check_private",
    "is_open_to_others",
    "make_directories",
    "make_private",
    "state_home",
]


# -- Directories of this user on this machine.


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


# -- Where this machine keeps what harness keeps for its user between runs.


def state_home(environ: Mapping[str, str] | None = None) -> Path:
    """``$XDG_STATE_HOME/harness``, or ``~/.local/state/harness`` where that variable names no absolute path.

    Args:
        environ: ``os.environ`` when not given.
    """
    env = os.environ if environ is None else environ
    state = env.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else home_directory(env) / ".local" / "state"
    return base / "harness"


# -- Directories and files that are their user's alone.


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
