"""The sockets of harness processes: one for each, in a private directory of this user, named by the process.

The directory belongs to one boot of one machine and one PID namespace, so that a home directory shared by several
machines or containers shows on each of them only the processes that can be reached there.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ..errors import ConfigError, HarnessError
from ..system.private_files import make_private, state_home
from ..system.process_identity import ProcessId, ProcessState, process_state

__all__ = [
    "connect_to",
    "directory_of",
    "listed_processes",
    "listening_socket",
    "live_directory",
    "open_directory",
    "remove_old_sockets",
    "set_aside",
    "socket_name",
    "was_left",
]

PREFIX = "at-"
"""The start of the names of directories for sockets."""
MAX_EMPTY_SECONDS = 86_400.0
"""Age from which an empty directory of another machine is removed; a process that starts there creates it again."""
DEAD = "dead-"
"""The start of the name that the socket of a dead process gets: other dashboards see that it was not closed."""
MAX_DEAD_SECONDS = 3_600.0
"""Seconds after which the socket of a dead process is removed."""
BACKLOG = 64
"""Clients that may wait to be accepted."""


def live_directory() -> Path:
    """Return the directory of everything about running processes."""
    return state_home() / "live"


def directory_of(process: ProcessId) -> Path:
    """Return the directory of the sockets of a process and of those that it can reach."""
    space = process.space.removeprefix("pid:").strip("[]")
    return live_directory() / f"{PREFIX}{process.boot or 'boot'}.{space or 'pid'}.{process.host}".replace("/", "_")


def open_directory(here: ProcessId) -> Path:
    """Return the directory for the processes here, created if it is missing.

    Raises:
        HarnessError: It is not private, or cannot be created.
    """
    directory = directory_of(here)
    try:
        make_private(live_directory(), failure=lambda message, hint: _failure(live_directory(), message, hint))
        make_private(directory, failure=lambda message, hint: _failure(directory, message, hint))
    except OSError as error:
        raise _failure(directory, (error.strerror or str(error)).lower(), "") from error
    return directory


def _failure(directory: Path, message: str, hint: str) -> HarnessError:
    return ConfigError(f"{directory}: {message}", hint=hint)


def socket_name(process: ProcessId) -> str:
    """Return the name of the socket of a process, by which dashboards know it."""
    return f"{process.pid}-{process.started or '0'}".replace(" ", "_").replace("/", "_")


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """Yield a path of the same file that is short enough for a socket's address."""
    if not Path("/proc/self/fd").is_dir():
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


@contextmanager
def listening_socket(here: ProcessId) -> Iterator[socket.socket]:
    """Open this process's socket, which others may connect to while the context is open.

    Raises:
        HarnessError: It cannot be created.
    """
    path = open_directory(here) / socket_name(here)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.setblocking(False)
        try:
            _bind(listener, path)
        except OSError as error:
            raise _failure(path, (error.strerror or str(error)).lower(), "") from error
        try:
            yield listener
        finally:
            _remove(path)


def _bind(listener: socket.socket, path: Path) -> None:
    """Give a socket its name once it listens, so that it is found only then."""
    draft = path.with_name(f".{path.name}")
    draft.unlink(missing_ok=True)  # of a process with the same ID that was killed here
    with _short_path(draft) as short:
        listener.bind(short)
    try:
        draft.chmod(0o600)
        listener.listen(BACKLOG)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _remove(path: Path) -> None:
    """Remove a socket; the directory stays for those who watch it."""
    with suppress(OSError):
        path.unlink()


def set_aside(path: Path) -> None:
    """Give the socket of a dead process another name, so that it is not tried again."""
    with suppress(OSError):
        path.replace(path.with_name(f"{DEAD}{path.name}"))


def was_left(path: Path) -> bool:
    """Return whether a process that has ended did not close its socket; another dashboard may have set it aside."""
    return path.exists() or path.with_name(f"{DEAD}{path.name}").exists()


def connect_to(path: Path) -> socket.socket:
    """Return a non-blocking connection to a process's socket.

    Raises:
        OSError: No process listens, or it has no time.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        with _short_path(path) as short:
            connection.connect(short)
    except BaseException:
        connection.close()
        raise
    return connection


def listed_processes(here: ProcessId) -> dict[Path, ProcessId]:
    """Return the sockets of living processes here; those of dead ones are set aside."""
    found = {}
    for path in _sockets_in(directory_of(here)):
        process = _process_of(path.name, here)
        if process is None:
            continue
        if process_state(process, here) is ProcessState.ALIVE:
            found[path] = process
        else:
            set_aside(path)
    return found


def _sockets_in(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []


def _process_of(name: str, here: ProcessId) -> ProcessId | None:
    """Return the process that a socket belongs to; None if the name is not one of a socket."""
    pid, dash, started = name.partition("-")
    if not dash or not pid.isdecimal():
        return None
    return replace(here, pid=int(pid), started=started.replace("_", " "))


def remove_old_sockets(here: ProcessId) -> None:
    """Remove sockets of processes that died a while ago, directories of earlier boots, and empty ones of elsewhere."""
    for path in _sockets_in(directory_of(here)):
        with suppress(OSError):  # another dashboard has removed it
            if path.name.startswith(DEAD) and time.time() - path.lstat().st_ctime > MAX_DEAD_SECONDS:
                path.unlink()
    for directory in _sockets_in(live_directory()):
        if not directory.name.startswith(PREFIX) or directory == directory_of(here):
            continue
        boot, _, rest = directory.name.removeprefix(PREFIX).partition(".")
        if rest.partition(".")[2] == here.host and boot != here.boot:
            for path in _sockets_in(directory):
                _remove(path)
        with suppress(OSError):  # processes elsewhere have their sockets in it
            if time.time() - directory.stat().st_mtime > MAX_EMPTY_SECONDS or boot != here.boot:
                directory.rmdir()
