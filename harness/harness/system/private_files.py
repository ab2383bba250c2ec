"""Private directories and files on this machine, and the location of harness's state."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import HarnessError
from .account import home_directory

__all__ = [
    "Failure",
    "check_own",
    "check_private",
    "hold_lock",
    "is_locked",
    "is_open_to_others",
    "make_directories",
    "make_private",
    "replace_file",
    "state_home",
    "write_new_file",
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


# -- Files that only their owner may read or write.


LOCK_PAUSE = 0.02
"""Seconds between two attempts to lock a file: a lock that is waited for could not be given up."""


def write_new_file(path: Path, data: bytes) -> None:
    """Write a new file, which is on disk when this returns; leave no incomplete one.

    Raises:
        FileExistsError: The name exists, also as a symlink.
        OSError: It cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def replace_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace a file as a whole, or create it; it is on disk when this returns.

    Args:
        path: The file.
        data: Its new content.
        mode: Its permissions.

    Raises:
        OSError: It cannot be written; an existing file is unchanged.
    """
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    write_new_file(draft, data)
    try:
        draft.chmod(mode)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def hold_lock(path: Path, timeout: float) -> Iterator[None]:
    """Hold the lock of a file, which is created if it is missing; it is released when the process exits.

    Raises:
        TimeoutError: Another process has held it for this many seconds.
        OSError: It cannot be opened, or is a symlink.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + timeout
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise TimeoutError(f"another process has held the lock for {timeout:g} s")
            time.sleep(LOCK_PAUSE)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file, or may hold it; False if it does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held, or a file system without locks
        return True
    finally:
        os.close(descriptor)
    return False


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
