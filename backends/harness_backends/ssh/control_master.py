"""OpenSSH's control masters, one for each host, and their sockets."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib
import logging
import os
import re
import socket
import stat
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.lowlevel

from harness.config import Config
from harness.errors import ConfigError, ConnectError, HarnessError, TargetNotFound
from harness.system.background_tasks import open_background_tasks
from harness.system.child_process import run_program
from harness.target import Hop, Target

from .configuration import read_settings
from .login_pacing import ThrottledError, error_at_jump_host, error_of_forward, log_in_paced, share_login
from .multiplex import MuxConnection, MuxConnectionClosed, MuxError, MuxRefused, connect_mux
from .options import (
    SshSettings,
    check_running_argv,
    jump_command,
    jump_config,
    master_argv,
    master_key,
    master_name,
    master_tag,
    server_name,
)

__all__ = [
    "MAX_PATH",
    "ControlMaster",
    "MasterInfo",
    "acquire",
    "connect_with_timeout",
    "count_connections",
    "disconnect",
    "end_master",
    "find_sockets",
    "hold_forward_socket",
    "is_listening",
    "list_masters",
    "lock",
    "plan_master",
    "relocate_socket",
    "socket_path",
    "split_name",
    "with_relocated_socket",
]


# -- Paths of control sockets, and the lock under which they are created and removed.
#
# Each environment has one directory: in its ``XDG_RUNTIME_DIR``, or the fallback. Sockets of another environment are
# not shared, listed or ended. A socket is named ``KEY.TAG.NAME``: a hash of all that the connection depends on, a hash
# of its target, and the target's readable name, truncated to the available length.


CONNECTED = "03"
"""The state of a connected socket in /proc/net/unix."""

MAX_PATH = 90
"""Bytes: ssh first binds a name that is 17 bytes longer, and the system allows 107."""

LOCK_PAUSE = 0.05

SOCKET_SETUP_TIMEOUT = 60.0

_GONE = "point XDG_RUNTIME_DIR to a private directory that you can write to"

_TEMPORARY = re.compile(r"\.[A-Za-z0-9]{16}$")
_NAME = re.compile(r"(?P<key>[0-9a-f]{16})\.(?P<tag>[0-9a-f]{16})(?:\.(?P<name>[A-Za-z0-9._@:~-]+))?")
_FORWARD = "forward-"
"""The start of the names of sockets that belong to forwards."""
_ROOM = MAX_PATH - 1 - 16 - 1 - 16


def socket_directory() -> Path:
    """Return the directory of this environment's sockets, without creating or checking it."""
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
    """Return the path of a master's socket, and create its directory if necessary.

    Raises:
        ConnectError: the directory is unsafe or cannot be created.
    """
    directory = socket_directory()
    _make(directory)
    return str(directory / _file_name(key, tag, name, MAX_PATH - len(os.fsencode(directory)) - 1))


def _file_name(key: str, tag: str, name: str, room: int) -> str:
    whole = f"{key}.{tag}.{name}"
    if len(whole) <= room:
        return whole
    return f"{whole[: room - 1]}~" if room >= len(f"{key}.{tag}.x~") else f"{key}.{tag}"


def relocate_socket(path: str) -> str:
    """Return the socket's current path, which differs if its directory was removed, e.g. at a logout.

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
    """Return the key, tag and target name in a socket's file name; None if harness did not create it."""
    match = _NAME.fullmatch(path.name)
    return (match["key"], match["tag"], match["name"] or "") if match else None


def find_sockets() -> list[Path]:
    """Return this user's control sockets, live or stale."""
    return [path for path in _files() if split_name(path) and path.is_socket() and not _is_being_made(path)]


def _files() -> list[Path]:
    directory = socket_directory()
    with suppress(FileNotFoundError):  # it may be removed at any time
        return sorted(directory.iterdir()) if _is_private(directory) else []
    return []


def _is_being_made(path: Path) -> bool:
    """Return True for the temporary name that ssh binds before it listens."""
    with suppress(OSError):
        return _TEMPORARY.search(path.name) is not None and time.time() - path.stat().st_mtime < SOCKET_SETUP_TIMEOUT
    return True


def is_listening(path: str) -> bool:
    """Return True if a master may listen at this path."""
    return Path(path).is_socket() and not is_stale_socket(Path(path))


def is_stale_socket(path: Path) -> bool:
    """Return True if the socket's process has exited."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(str(path)) == errno.ECONNREFUSED


def _make(directory: Path) -> None:
    for path in [directory.parent, directory] if directory.parent == _shared_root() else [directory]:
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:
            pass  # not a directory: reported below
        except OSError as error:
            raise ConnectError(f"{path} cannot be created: {error.strerror}", hint=_GONE) from error
        if not _is_private(path):
            raise ConnectError(
                f"{path} is unsafe for control sockets: it must be a directory of this user with mode 0700",
                hint="remove it, or point XDG_RUNTIME_DIR to a private directory",
            )


@asynccontextmanager
async def lock(path: str, timeout: float) -> AsyncIterator[None]:
    """Hold the lock of a socket against this user's other processes and tasks, and remove its file afterwards.

    The directory is recreated if it was removed, e.g. by a cleaner of temporary files.

    Raises:
        ConnectError: the lock file cannot be created.
        TimeoutError: another process or task held it for ``timeout`` seconds.
    """
    name = f"{path}.lock"
    with anyio.fail_after(timeout):
        descriptor = await _acquire(name)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)  # still locked: waiting processes notice the removal and create another
        os.close(descriptor)


@asynccontextmanager
async def hold_forward_socket(identity: str, timeout: float) -> AsyncIterator[tuple[str, int]]:
    """Yield a free path for a private socket of a forward, next to the control sockets, and the descriptor of its lock.

    A program that inherits the descriptor holds the lock as well.

    Args:
        identity: What has the same path each time, and is held by one process at a time.
        timeout: Seconds to wait for another process.

    Raises:
        ConnectError: as :func:`socket_path`.
        TimeoutError: another process or task held it for ``timeout`` seconds.
    """
    directory = socket_directory()
    _make(directory)
    digest = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    path = str(directory / f"{_FORWARD}{digest}")
    with anyio.fail_after(timeout):
        descriptor = await _acquire(f"{path}.lock")
    try:
        _remove(path)
        yield path, descriptor
    finally:
        for name in (path, f"{path}.lock"):
            with suppress(FileNotFoundError):
                os.unlink(name)
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
        await anyio.sleep(LOCK_PAUSE)  # a blocking flock would occupy a thread that cannot be cancelled


def _open_lock(name: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with suppress(FileNotFoundError):
            return os.open(name, flags, 0o600)
        _make(Path(name).parent)
        return os.open(name, flags, 0o600)
    except OSError as error:
        raise ConnectError(f"{name} cannot be created: {error.strerror}", hint=_GONE) from error


def remove_unused_locks() -> None:
    """Remove the lock files of processes that were killed while they held one."""
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
    """Return how many connections a listening socket has; None where the system does not report it."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as table:
            rows = [line.rstrip("\n").split(maxsplit=7) for line in table]
    except OSError:
        return None
    names = path, f"{path}."  # ssh binds a longer name, and hard-links this one to it
    return sum(row[5] == CONNECTED and (row[7] == names[0] or row[7].startswith(names[1])) for row in rows if row[7:])


# -- Control masters: find, check, start, list and end them.


logger = logging.getLogger(__name__)

ANSWER_TIMEOUT = 5.0
END_TIMEOUT = 5.0
DEAD_TIMEOUT = 0.2
PRIVATE_PERSIST = 3.0
"""Seconds that a private master outlives a harness process that was killed."""


class ControlMaster(NamedTuple):
    """The location and settings of a target's master, whether or not it is running."""

    target: Target
    hop: Hop
    config: Config
    settings: SshSettings
    path: str
    private: bool = False
    behind: tuple[str, ...] = ()
    """The hosts that are reached through this one."""


class MasterInfo(NamedTuple):
    """A control socket of this user; ``pid`` is None if no master answers.

    ``tag`` identifies the target; ``name`` is for display and ends with ``~`` if truncated.
    """

    name: str
    path: str
    pid: int | None = None
    tag: str = ""


async def plan_master(target: Target, config: Config, settings: SshSettings | None = None) -> ControlMaster:
    """Choose the socket's path for a host.

    Args:
        target: The host.
        config: The settings of harness.
        settings: The user's settings for the host; None reads them.

    Raises:
        ConfigError: ssh rejects its configuration.
        ConnectError: ssh is not installed, or no private directory is available for the socket.
    """
    settings = settings or await _read(target, config)
    key = os.urandom(8).hex() if config.dedicated_connection else master_key(settings, config)
    path = socket_path(key, master_tag(target.last), master_name(target.last))
    return ControlMaster(target, target.last, config, settings, path, config.dedicated_connection)


async def _read(target: Target, config: Config) -> SshSettings:
    async with open_background_tasks() as tasks:
        tasks.start_soon(_prepare)
        return await read_settings(target, config)


async def _prepare() -> None:
    """Preload the modules needed next while ``ssh -G`` runs."""
    await anyio.lowlevel.checkpoint()
    for name in ("harness_backends.ssh.openssh", "harness_backends.composition"):
        importlib.import_module(name)


def with_relocated_socket(master: ControlMaster) -> ControlMaster:
    """Return the master with its current socket path; see :func:`relocate_socket`."""
    return master._replace(path=relocate_socket(master.path))


async def acquire(master: ControlMaster) -> MuxConnection:
    """Return a lease on the running master, or log in to start one; the master runs while the lease is open.

    Raises:
        ConnectError: the login failed; a subclass where the reason is known.
    """
    lease = await _lease(master.path)
    if lease is not None:
        return lease
    jump = await _plan_jump_host(master)
    server = server_name(master.settings, jump.path if jump else "")
    async with _lease_jump_host(jump, master):  # already here, so that all hosts wait for one login of it
        return await log_in_paced(server, partial(_log_in, master, jump), max_pause=master.config.connect_timeout)


async def _plan_jump_host(master: ControlMaster) -> ControlMaster | None:
    """Return the master of the jump host before a host; None without one, or if the user's own master is running."""
    found = jump_config(master.settings, master.config)
    if found is None:
        return None
    name, config = found
    try:
        target = Target.parse(name if name.startswith("ssh://") else f"ssh://{name}")
    except TargetNotFound:
        return None  # ssh reports it
    behind = (*master.behind, str(master.hop))
    if str(target.last) in behind:
        raise ConfigError(f"the jump host {name} is behind itself", target=master.target, hint="check ProxyJump")
    try:
        jump = (await plan_master(target, config))._replace(behind=behind)
    except HarnessError as error:
        raise error_at_jump_host(error, target, master.target) from error
    if jump.settings.get("controlpath", "none") != "none" and await _runs_own_master(jump):
        return None
    return jump


async def _runs_own_master(jump: ControlMaster) -> bool:
    argv = check_running_argv(jump.hop, jump.config)
    return (await run_program(argv, timeout=ANSWER_TIMEOUT, stdout_limit=0, stderr_limit=0)).code == 0


@asynccontextmanager
async def _lease_jump_host(jump: ControlMaster | None, master: ControlMaster) -> AsyncIterator[None]:
    """Keep the jump host's master running while the host behind it logs in; it then runs as long as that connection."""
    if jump is None:
        yield
        return
    try:
        lease = await share_login(jump.path, partial(acquire, jump))
    except HarnessError as error:
        raise error_at_jump_host(error, jump.target, master.target) from error
    with lease:
        yield


async def _log_in(master: ControlMaster, jump: ControlMaster | None) -> MuxConnection:
    """Log in once, unless another harness process has done so meanwhile."""
    async with _lease_jump_host(jump, master):
        try:
            return await _log_in_locked(master, jump)
        except ThrottledError as error:
            if jump is not None and await _refuses_forward(jump, master.settings):
                raise error_of_forward(jump.hop.host, master.target) from error
            raise  # if the jump host's connection was lost, the next try logs in to it again


async def _refuses_forward(jump: ControlMaster, settings: SshSettings) -> bool:
    """Return whether a jump host cannot connect to a host behind it: the messages of a proxy command are not known."""
    ours, theirs = socket.socketpair()
    try:
        with (
            ours,
            theirs,
            await connect_with_timeout(jump.path) as session,
            anyio.fail_after(jump.config.connect_timeout),
        ):
            await session.open_forward(settings.get("hostname"), int(settings.get("port")), (theirs.fileno(),) * 2)
    except (MuxRefused, TimeoutError, ValueError):
        return True
    except MuxError:
        return False
    return False


async def _log_in_locked(master: ControlMaster, jump: ControlMaster | None) -> MuxConnection:
    try:
        async with lock(master.path, master.config.login_timeout):
            return await _lease(master.path) or await _start(master, jump)
    except TimeoutError:
        raise ConnectError(
            f"another harness process has been logging in for {master.config.login_timeout:g} s",
            target=master.target,
            hint="it may be waiting for an answer to a login prompt",
        ) from None


async def connect_with_timeout(path: str) -> MuxConnection:
    """Connect to the master at ``path``.

    Raises:
        MuxError: no master listens there, or it does not answer in time.
    """
    try:
        with anyio.fail_after(ANSWER_TIMEOUT):
            return await connect_mux(path)
    except TimeoutError:
        raise MuxConnectionClosed(f"{path}: no answer within {ANSWER_TIMEOUT:g} s") from None


async def _lease(path: str) -> MuxConnection | None:
    """Connect to the master at ``path``; return None if none answers in time."""
    try:
        return await connect_with_timeout(path)
    except MuxError:
        return None


async def _start(master: ControlMaster, jump: ControlMaster | None) -> MuxConnection:
    """Log in. The caller holds the lock and found no master at the socket."""
    _remove(master.path)
    await _remove_dead()
    persist = PRIVATE_PERSIST if master.private else master.config.control_persist

    command = jump_command(jump.hop, jump.path) if jump else ""

    def argv(questions: bool) -> list[str]:
        return master_argv(
            master.hop, master.config, master.path, questions=questions, persist=persist, proxy_command=command
        )

    logger.info("logging in to %s", master.target)
    from .login import log_in  # not needed if a master is running

    await log_in(argv, master.target, master.config.login_timeout, jump_host=jump.hop.host if jump else "")
    lease = await _lease(master.path)
    if lease is None:
        raise ConnectError("ssh logged in, but its control master does not answer", target=master.target)
    return lease


async def _remove_dead() -> None:
    """Remove locks and sockets of killed harness processes and masters."""
    remove_unused_locks()
    forwards = [path for path in _files() if path.name.startswith(_FORWARD) and path.is_socket()]
    for path in [*forwards, *find_sockets()]:
        if is_stale_socket(path):
            with suppress(TimeoutError):
                async with lock(str(path), DEAD_TIMEOUT):
                    if is_stale_socket(path):
                        _remove(str(path))


def _remove(path: str) -> None:
    """Remove the socket of an exited or unresponsive master; refuse to remove anything else."""
    if Path(path).is_symlink() or (os.path.lexists(path) and not Path(path).is_socket()):
        raise ConnectError(f"{path} exists and is not a control socket", hint="check what it is, then remove it")
    with suppress(FileNotFoundError):
        os.unlink(path)


async def end_master(path: str) -> bool:
    """Terminate the master at ``path`` with its sessions, and remove its socket.

    Returns:
        False if no master answered.
    """
    ended = False
    with suppress(TimeoutError, ConnectError):  # ConnectError: the directory cannot be used
        async with lock(path, END_TIMEOUT):
            with suppress(MuxError), anyio.move_on_after(END_TIMEOUT), await connect_mux(path) as connection:
                await connection.terminate()
                ended = True
            _remove(path)
    return ended


async def list_masters() -> list[MasterInfo]:
    """Return the control masters of this user's harness processes, sorted by name."""
    found = []
    for path in find_sockets():
        _, tag, name = split_name(path) or ("", "", "")
        found.append(MasterInfo(name, str(path), await _pid(str(path)), tag))
    return sorted(found, key=lambda master: (master.name, master.path))


async def _pid(path: str) -> int | None:
    with suppress(MuxError), anyio.move_on_after(ANSWER_TIMEOUT), await connect_mux(path) as connection:
        return await connection.alive()
    return None


async def disconnect(config: Config, target: Target | None) -> list[MasterInfo]:
    """Terminate the masters of a target (whatever their options) or of all targets, and remove stale sockets.

    Jobs and tmux sessions on the targets keep running.

    Returns:
        The masters that were alive.
    """
    ended = []
    for master in _chosen(await list_masters(), target):
        if await end_master(master.path):
            ended.append(master)
    return ended


def _chosen(masters: Iterable[MasterInfo], target: Target | None) -> list[MasterInfo]:
    if target is None:
        return list(masters)
    tags = {master_tag(hop) for hop in target.hops if hop.scheme == "ssh"}
    return [master for master in masters if master.tag in tags]
