"""Where control sockets live, and the lock under which they come and go."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from harness.errors import ConnectError

__all__ = [
    "MAX_PATH",
    "find_sockets",
    "lock",
    "nobody_listens",
    "remove_unused_locks",
    "socket_directories",
    "socket_path",
    "split_name",
]

MAX_PATH = 90
"""Bytes; ssh binds a name that is 17 longer first, and the system takes 107."""

LOCK_PAUSE = 0.05

MAKING_TIME = 60.0

_TEMPORARY = re.compile(r"\.[A-Za-z0-9]{16}$")
_NAME = re.compile(r"(?P<key>[0-9a-f]{16})(?:\.(?P<name>[A-Za-z0-9._@:-]+))?")


def socket_directories() -> list[Path]:
    """The candidates, best first; nothing is made or checked."""
    fallback = _shared_root() / "ssh"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if not runtime.startswith("/") or not _is_private(Path(runtime)):
        return [fallback]
    return [Path(runtime, "harness"), fallback]


def _shared_root() -> Path:
    return Path(f"/tmp/harness-{os.getuid()}")  # noqa: S108  # every level is checked before use: see _make


def _is_private(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def socket_path(key: str, name: str) -> str:
    """The path of a master's socket, in a directory that is made if need be.

    Raises:
        ConnectError: the directory cannot be trusted or made.
    """
    for directory in socket_directories():
        room = MAX_PATH - len(os.fsencode(directory)) - 1
        file = f"{key}.{name}"[: max(0, room)]
        if len(file) >= len(key):
            _make(directory)
            return str(directory / file)
    raise AssertionError("the fallback is short enough")


def split_name(path: Path) -> tuple[str, str] | None:
    """The key and the target's name in a socket's file name; None when it is not one of ours."""
    match = _NAME.fullmatch(path.name)
    return (match["key"], match["name"] or "") if match else None


def find_sockets() -> list[Path]:
    """The control sockets of this user, live or not."""
    return [path for path in _files() if split_name(path) and path.is_socket() and not _is_being_made(path)]


def _files() -> list[Path]:
    return sorted(path for place in socket_directories() if _is_private(place) for path in place.iterdir())


def _is_being_made(path: Path) -> bool:
    """True for the name under which ssh binds a socket for a moment, before it listens there."""
    with suppress(OSError):
        return _TEMPORARY.search(path.name) is not None and time.time() - path.stat().st_mtime < MAKING_TIME
    return True


def nobody_listens(path: Path) -> bool:
    """True when a socket's process has gone for good."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(str(path)) == errno.ECONNREFUSED


def _make(directory: Path) -> None:
    for path in [directory.parent, directory] if directory.parent == _shared_root() else [directory]:
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:
            pass  # something else than a directory; said below
        except OSError as error:
            raise ConnectError(f"{path} cannot be made: {error.strerror}") from error
        if not _is_private(path):
            raise ConnectError(
                f"{path} cannot be trusted with connections: it must be a directory of this user with mode 0700",
                hint="remove it, or point XDG_RUNTIME_DIR to a private directory",
            )


@asynccontextmanager
async def lock(path: str, timeout: float) -> AsyncIterator[None]:
    """Hold the lock of a socket against this user's other processes and tasks. Leaves no file behind.

    Raises:
        TimeoutError: somebody else held it for ``timeout`` seconds.
    """
    name = f"{path}.lock"
    with anyio.fail_after(timeout):
        descriptor = await _acquire(name)
    try:
        yield
    finally:
        os.unlink(name)  # while it is held: who waits for it will see that it is gone, and make another
        os.close(descriptor)


async def _acquire(name: str) -> int:
    while True:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(descriptor, name):
                return descriptor
        except BlockingIOError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        await anyio.sleep(LOCK_PAUSE)  # a lock cannot be waited for without blocking a thread for good


def remove_unused_locks() -> None:
    """Remove the locks of processes that were killed while they held one."""
    for path in _files():
        if path.name.endswith(".lock"):
            with suppress(OSError):
                _remove_unused(str(path))


def _remove_unused(name: str) -> None:
    descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_same_file(descriptor, name):
            os.unlink(name)
    finally:
        os.close(descriptor)


def _is_same_file(descriptor: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name, follow_symlinks=False))
    except FileNotFoundError:
        return False
