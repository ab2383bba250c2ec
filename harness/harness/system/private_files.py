"""Private directories and files on this machine, and the location of harness's state."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from ..account import home_directory
from ..errors import HarnessError

__all__ = [
    "Failure",
    "check_own",
    "check_private",
    "is_open_to_others",
    "make_directories",
    "make_private",
    "state_home",
]


# -- Directories of this user on this machine.


def make_directories(path: Path) -> None:
    """Create a directory and its missing parents, all of them private.

    ``Path.mkdir`` creates parents with permissions by the umask, which may allow other users.

    Raises:
        OSError: One of them cannot be created, or is not a directory.
    """
    missing = []
    at = path
    while not at.exists() and at != at.parent:
        missing.append(at)
        at = at.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


# -- The state directory.


def state_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``$XDG_STATE_HOME/harness``, or ``~/.local/state/harness`` if that variable is not an absolute path.

    Args:
        environ: Environment variables; ``os.environ`` by default.
    """
    env = os.environ if environ is None else environ
    state = env.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else home_directory(env) / ".local" / "state"
    return base / "harness"


# -- Private directories and files.


Failure = Callable[[str, str], HarnessError]
"""Creates the error from a message and a hint, which may be empty."""


def make_private(directory: Path, *files: str, failure: Failure) -> None:
    """Create a directory and files in it if they are missing.

    Raises:
        OSError: They cannot be created, or a file is a symlink.
        HarnessError: The directory is not private; see :func:`check_private`.
    """
    make_directories(directory)
    check_private(directory, failure=failure)
    for name in files:
        os.close(os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def check_private(directory: Path, *, failure: Failure) -> None:
    """Refuse a directory that is not private.

    Raises:
        OSError: It does not exist or is not accessible.
        HarnessError: It is a symlink, belongs to another user, or is accessible to others.
    """
    check_own(directory, failure=failure)
    if is_open_to_others(directory):
        raise failure("other users may look into it", f"chmod 700 {directory}")


def check_own(directory: Path, *, failure: Failure) -> None:
    """Refuse a path that is not a directory of this user, whatever its permissions are.

    Raises:
        OSError: It does not exist or is not accessible.
        HarnessError: It is a symlink or not a directory, or belongs to another user.
    """
    info = directory.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise failure("it is not a directory", "")
    if info.st_uid != os.geteuid():
        raise failure("it belongs to another user", "")


def is_open_to_others(directory: Path) -> bool:
    """Return whether its permissions allow access by other users."""
    return bool(directory.lstat().st_mode & 0o077)
