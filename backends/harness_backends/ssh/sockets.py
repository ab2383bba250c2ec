"""Where control sockets live, and the lock under which they come and go.

Each environment has one directory: that of its ``XDG_RUNTIME_DIR``, or the fallback. What another environment keeps is
neither shared nor listed nor ended. A socket is named ``KEY.TAG.NAME``: all that the connection depends on, which
target it leads to, and the target's name for people, cut to what room there is.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
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
    "count_connections",
    "find_sockets",
    "lock",
    "nobody_listens",
    "place_again",
    "remove_unused_locks",
    "socket_directory",
    "socket_path",
    "split_name",
]

CONNECTED = "03"
"""The state in /proc/net/unix."""

MAX_PATH = 90
"""Bytes; ssh binds a name that is 17 longer first, and the system takes 107."""

LOCK_PAUSE = 0.05

MAKING_TIME = 60.0

_GONE = "point XDG_RUNTIME_DIR to a private directory that you can write to"

_TEMPORARY = re.compile(r"\.[A-Za-z0-9]{16}$")
_NAME = re.compile(r"(?P<key>[0-9a-f]{16})\.(?P<tag>[0-9a-f]{16})(?:\.(?P<name>[A-Za-z0-9._@:~-]+))?")
_ROOM = MAX_PATH - 1 - 16 - 1 - 16


def socket_directory() -> Path:
    """The directory of this environment's sockets; nothing is made or checked."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if not runtime.startswith("/") or not _is_private(Path(runtime)):
        return _shared_root() / "ssh"
    directory = Path(runtime, "harness")
    if len(os.fsencode(directory)) <= _ROOM:
        return directory
    return _shared_root() / f"ssh-{hashlib.sha256(os.fsencode(runtime)).hexdigest()[:16]}"


def _shared_root() -> Path:
    return Path(f"/tmp/harness-{os.getuid()}")  # noqa: S108  # every level is checked before use: see _make


def _is_private(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def socket_path(key: str, tag: str, name: str) -> str:
    """The path of a master's socket, in a directory that is made if need be.

    Raises:
        ConnectError: the directory cannot be trusted or made.
    """
    directory = socket_directory()
    _make(directory)
    return str(directory / _file_name(key, tag, name, MAX_PATH - len(os.fsencode(directory)) - 1))


def _file_name(key: str, tag: str, name: str, room: int) -> str:
    whole = f"{key}.{tag}.{name}"
    if len(whole) <= room:
        return whole
    return f"{whole[: room - 1]}~" if room >= len(f"{key}.{tag}.x~") else f"{key}.{tag}"


def place_again(path: str) -> str:
    """The path for the same socket now: elsewhere when its directory has gone for good, as at a logout.

    Raises:
        ConnectError: as :func:`socket_path`.
    """
    directory = socket_directory()
    if directory == Path(path).parent:
        _make(directory)
        return path
    key, tag, name = split_name(Path(path)) or ("", "", "")
    return socket_path(key, tag, name)


def split_name(path: Path) -> tuple[str, str, str] | None:
    """The key, the target's tag and the target's name in a socket's file name; None when it is not one of ours."""
    match = _NAME.fullmatch(path.name)
    return (match["key"], match["tag"], match["name"] or "") if match else None


def find_sockets() -> list[Path]:
    """The control sockets of this user, live or not."""
    return [path for path in _files() if split_name(path) and path.is_socket() and not _is_being_made(path)]


def _files() -> list[Path]:
    directory = socket_directory()
    with suppress(FileNotFoundError):  # it may go at any time
        return sorted(directory.iterdir()) if _is_private(directory) else []
    return []


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
            raise ConnectError(f"{path} cannot be made: {error.strerror}", hint=_GONE) from error
        if not _is_private(path):
            raise ConnectError(
                f"{path} cannot be trusted with connections: it must be a directory of this user with mode 0700",
                hint="remove it, or point XDG_RUNTIME_DIR to a private directory",
            )


@asynccontextmanager
async def lock(path: str, timeout: float) -> AsyncIterator[None]:
    """Hold the lock of a socket against this user's other processes and tasks. Leaves no file behind.

    The directory is made again when it has gone, as a cleaner of temporary files may see to.

    Raises:
        ConnectError: the lock cannot be made.
        TimeoutError: somebody else held it for ``timeout`` seconds.
    """
    name = f"{path}.lock"
    with anyio.fail_after(timeout):
        descriptor = await _acquire(name)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)  # while it is held: who waits for it will see that it is gone, and make another
        os.close(descriptor)


async def _acquire(name: str) -> int:
    while True:
        descriptor = _open_lock(name)
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


def _open_lock(name: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with suppress(FileNotFoundError):
            return os.open(name, flags, 0o600)
        _make(Path(name).parent)
        return os.open(name, flags, 0o600)
    except OSError as error:
        raise ConnectError(f"{name} cannot be made: {error.strerror}", hint=_GONE) from error


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


def count_connections(path: str) -> int | None:
    """How many connections the program that listens at a socket has; None where the system does not say."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as table:
            rows = [line.rstrip("\n").split(maxsplit=7) for line in table]
    except OSError:
        return None
    names = path, f"{path}."  # ssh binds a longer name, and links this one to it
    return sum(row[5] == CONNECTED and (row[7] == names[0] or row[7].startswith(names[1])) for row in rows if row[7:])
