"""Control masters: found, checked, started, listed and ended."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.lowlevel

from harness.config import Config
from harness.errors import ConfigError, ConnectError
from harness.system.background_tasks import background_tasks
from harness.target import Hop, Target

from .mux import MuxConnection, MuxError, MuxGone, connect_mux
from .options import Settings, master_argv, master_key, master_name, master_tag, query_argv
from .sockets import find_sockets, lock, nobody_listens, place_again, remove_unused_locks, socket_path, split_name

__all__ = [
    "Master",
    "MasterInfo",
    "acquire",
    "connect_in_time",
    "disconnect",
    "end_master",
    "list_masters",
    "placed_again",
    "plan_master",
]

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT = 5.0
END_TIMEOUT = 5.0
DEAD_TIMEOUT = 0.2
PRIVATE_PERSIST = 3.0
"""Seconds that a private master outlives a harness that was killed."""


@dataclass(frozen=True, slots=True)
class Master:
    """Where the master of a target is, or is to be."""

    target: Target
    hop: Hop
    config: Config
    settings: Settings
    path: str
    private: bool = False


@dataclass(frozen=True, slots=True)
class MasterInfo:
    """A control socket of this user. ``pid`` is None when nobody answers there.

    ``tag`` tells targets apart; ``name`` is for people: it ends with ``~`` where it was cut.
    """

    name: str
    path: str
    pid: int | None = field(default=None)
    tag: str = ""


async def plan_master(target: Target, config: Config) -> Master:
    """Read the user's settings for the host, and choose the socket.

    Raises:
        ConfigError: ssh does not accept its configuration.
        ConnectError: there is no ssh, or no private directory for the socket.
    """
    settings = await _query(target, config)
    key = os.urandom(8).hex() if config.fresh_connection else master_key(settings, config)
    path = socket_path(key, master_tag(target.last), master_name(target.last))
    return Master(target, target.last, config, settings, path, config.fresh_connection)


async def _query(target: Target, config: Config) -> Settings:
    argv = query_argv(target.last, config)
    try:
        with anyio.fail_after(config.connect_timeout):
            async with background_tasks() as tasks:
                tasks.start_soon(_prepare)
                done = await anyio.run_process(argv, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError as error:
        raise ConnectError("ssh was not found", target=target, hint="install the OpenSSH client") from error
    except TimeoutError:
        raise ConnectError(
            "ssh -G did not answer in time", target=target, hint="check Match exec in the ssh config"
        ) from None
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["ssh -G failed"]
        raise ConfigError(f"ssh does not accept its configuration: {words[0]}", target=target)
    return Settings.parse(done.stdout.decode("utf-8", "surrogateescape"))


async def _prepare() -> None:
    """Load what every target needs next, while ``ssh -G`` runs in a process of its own."""
    await anyio.lowlevel.checkpoint()
    for name in ("harness_backends.ssh.openssh", "harness_backends.posix.backend"):
        importlib.import_module(name)


def placed_again(master: Master) -> Master:
    """The same master, its socket where this environment's are now; see :func:`.sockets.place_again`."""
    return replace(master, path=place_again(master.path))


async def acquire(master: Master) -> MuxConnection:
    """A lease on a live master: the one that is there, or after a login a new one. It stays while the lease is open.

    Raises:
        ConnectError: the target cannot be entered; a subclass where the reason is known.
    """
    lease = await _lease(master.path)
    if lease is not None:
        return lease
    try:
        async with lock(master.path, master.config.login_timeout):
            return await _lease(master.path) or await _start(master)
    except TimeoutError:
        raise ConnectError(
            f"another harness has been logging in for {master.config.login_timeout:g} s",
            target=master.target,
            hint="it may be waiting for its operator's answer",
        ) from None


async def connect_in_time(path: str) -> MuxConnection:
    """Connect to the master at ``path``.

    Raises:
        MuxError: nobody listens there, or does not answer in time.
    """
    try:
        with anyio.fail_after(ANSWER_TIMEOUT):
            return await connect_mux(path)
    except TimeoutError:
        raise MuxGone(f"{path}: no answer within {ANSWER_TIMEOUT:g} s") from None


async def _lease(path: str) -> MuxConnection | None:
    """A connection to the master at ``path``, if one answers there in time."""
    try:
        return await connect_in_time(path)
    except MuxError:
        return None


async def _start(master: Master) -> MuxConnection:
    """Log in. The caller holds the lock, and found nobody at the socket."""
    _remove(master.path)
    await _remove_dead()
    persist = PRIVATE_PERSIST if master.private else master.config.control_persist

    def argv(questions: bool) -> list[str]:
        return master_argv(master.hop, master.config, master.path, questions=questions, persist=persist)

    logger.info("logging in to %s", master.target)
    from .login import log_in  # not needed where a master lives

    await log_in(argv, master.target, master.config.login_timeout)
    lease = await _lease(master.path)
    if lease is None:
        raise ConnectError("ssh logged in, but its control master does not answer", target=master.target)
    return lease


async def _remove_dead() -> None:
    """Remove what masters and harnesses that were killed have left; nobody else would."""
    remove_unused_locks()
    for path in find_sockets():
        if nobody_listens(path):
            with suppress(TimeoutError):
                async with lock(str(path), DEAD_TIMEOUT):
                    if nobody_listens(path):
                        _remove(str(path))


def _remove(path: str) -> None:
    """Remove the socket of a master that has gone, or that does not answer; anything else there is not ours."""
    if Path(path).is_symlink() or (os.path.lexists(path) and not Path(path).is_socket()):
        raise ConnectError(f"{path} is in the way of a control socket", hint="look at it, and remove it")
    with suppress(FileNotFoundError):
        os.unlink(path)


async def end_master(path: str) -> bool:
    """End the master at ``path`` and all its sessions; remove its socket. False when none was there."""
    ended = False
    with suppress(TimeoutError, ConnectError):  # ConnectError: the directory has gone for good
        async with lock(path, END_TIMEOUT):
            with suppress(MuxError), anyio.move_on_after(END_TIMEOUT), await connect_mux(path) as connection:
                await connection.terminate()
                ended = True
            _remove(path)
    return ended


async def list_masters() -> list[MasterInfo]:
    """The control masters of this user's harness processes, by name."""
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
    """End the masters of one target, whatever their options, or all of them; sockets without a master are removed.

    Returns those that were alive. What runs on the targets under tmux or as a job lives on.
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
