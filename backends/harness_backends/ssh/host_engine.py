"""The SSH engine of a host: asyncssh if that follows all of the host's ssh configuration, else OpenSSH."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import anyio
from anyio.lowlevel import RunVar

from harness.config import Config
from harness.errors import HarnessError, TargetNotFound
from harness.login import current_prompter
from harness.target import Target

from .configuration import read_defaults, read_settings
from .control_master import is_listening, plan_master
from .engine_choice import has_kerberos, reasons_for_openssh
from .options import SshSettings, jump_config
from .without_ssh import has_ssh

__all__ = ["HostEngine", "choose_engine", "has_asyncssh", "problem_of_asyncssh"]

OLDEST_ASYNCSSH = (2, 18)
FUTURE_ASYNCSSH = (3,)
"""The first version that may be incompatible, as in the dependencies of the extra."""
REMEMBERED = 10.0
"""Seconds for which the engine of a jump host is remembered, for all hosts behind it."""

logger = logging.getLogger(__name__)


class HostEngine(NamedTuple):
    """The engine of a host, and the settings that decided about it."""

    settings: SshSettings
    reasons: tuple[str, ...] = ()
    """Why it is OpenSSH; empty for asyncssh."""


@dataclass(eq=False)
class _JumpHost:
    """What is known about a jump host."""

    turn: anyio.Lock = field(default_factory=anyio.Lock)
    until: float = 0.0
    reasons: tuple[str, ...] = ()


_jump_hosts: RunVar[dict[str, _JumpHost]] = RunVar("_jump_hosts")


async def choose_engine(target: Target, config: Config, behind: tuple[str, ...] = ()) -> HostEngine:
    """Choose the engine of a host; this logs in nowhere.

    Args:
        target: The host.
        config: The settings of harness.
        behind: The hosts that are reached through this one.

    Raises:
        ConfigError: ssh rejects its configuration.
        ConnectError: ssh does not answer in time, or it is not installed and asyncssh cannot take its place.
    """
    reasons: tuple[str, ...] = ()
    if has_asyncssh() and not has_ssh():
        from .asyncssh_settings import read_followed_settings  # loaded here: only now it is needed

        settings = await read_followed_settings(target, config)
    else:
        settings = await read_settings(target, config)
        reasons = await _reasons(target, config, settings)
    if not reasons:
        reasons = await _reasons_of_jump_host(target, config, settings, behind)
    if reasons:
        logger.debug("%s: OpenSSH, because of: %s", target, "; ".join(reasons))
    return HostEngine(settings, reasons)


async def _reasons(target: Target, config: Config, settings: SshSettings) -> tuple[str, ...]:
    if not has_asyncssh():
        return ("asyncssh is not installed",)
    if config.identity and not _exists(config.identity):
        return (f"identity {config.identity}: it does not exist",)
    defaults = await read_defaults(target, config)
    reasons = reasons_for_openssh(settings, defaults, kerberos=has_kerberos(os.environ))
    if reasons:
        return reasons
    if is_listening((await plan_master(target, config, settings)).path):
        return ("a connection of OpenSSH to it is kept",)
    if problem := problem_of_asyncssh():
        return (problem,)
    from .asyncssh_login import find_differences  # loaded here: only now it is needed
    from .asyncssh_settings import host_settings

    host = host_settings(settings, defaults)
    return tuple(await find_differences(host, may_unlock=_may_unlock_keys(), timeout=config.connect_timeout))


def has_asyncssh() -> bool:
    """Return whether asyncssh is installed, without importing it."""
    with suppress(ValueError):  # it is being imported, or marked as missing
        return importlib.util.find_spec("asyncssh") is not None
    return False


def problem_of_asyncssh() -> str:
    """Return why the installed asyncssh cannot be used; empty if it can."""
    try:
        with _quick_library_search():
            import asyncssh
    except Exception as error:  # whatever one of the libraries that it needs raises
        return f"asyncssh cannot be imported: {error}"
    version = asyncssh.__version__
    found = tuple(int(word) for word in re.findall(r"\d+", version)[:2])
    if not OLDEST_ASYNCSSH <= found < FUTURE_ASYNCSSH:
        return f"asyncssh {version} is not supported"
    return ""


@contextmanager
def _quick_library_search() -> Iterator[None]:
    """Answer from the linker's cache that a library is missing: for that, Python starts ldconfig, gcc and ld.

    asyncssh searches optional libraries when it is imported.
    """
    known = b""
    with suppress(OSError):
        if not os.environ.get("LD_LIBRARY_PATH"):
            known = Path("/etc/ld.so.cache").read_bytes()
    if "asyncssh" in sys.modules or not known.startswith(b"glibc-ld.so.cache"):
        yield
        return
    import ctypes.util

    search = ctypes.util.find_library
    ctypes.util.find_library = lambda name: search(name) if f"lib{name}.".encode() in known else None
    try:
        yield
    finally:
        ctypes.util.find_library = search


def _exists(path: str) -> bool:
    return os.path.exists(os.path.expanduser(path))


def _may_unlock_keys() -> bool:
    """Return whether ssh could get a passphrase that asyncssh cannot get: from a program, or from a Mac's keychain."""
    by_program = bool(os.environ.get("SSH_ASKPASS")) and current_prompter() is None
    return by_program or sys.platform == "darwin"


async def _reasons_of_jump_host(
    target: Target, config: Config, settings: SshSettings, behind: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the reasons of the jump host before a host, which its own connection must follow as well."""
    found = jump_config(settings, config)
    if found is None:
        return ()
    name, jump_settings = found
    if behind:  # only that of the host itself is remembered, so that no two can wait for each other
        return await _ask_jump_host(name, jump_settings, (*behind, str(target.last)))
    known = _jump_hosts.get({})
    _jump_hosts.set(known)
    jump_host = known.setdefault(f"{name} {jump_settings!r}", _JumpHost())
    async with jump_host.turn:
        if jump_host.until < anyio.current_time():
            jump_host.reasons = await _ask_jump_host(name, jump_settings, (str(target.last),))
            jump_host.until = anyio.current_time() + REMEMBERED
        return jump_host.reasons


async def _ask_jump_host(name: str, config: Config, behind: tuple[str, ...]) -> tuple[str, ...]:
    try:
        jump = Target.parse(name if name.startswith("ssh://") else f"ssh://{name}")
        if str(jump.last) in behind:
            return (f"the jump host {name} is behind itself",)
        engine = await choose_engine(jump, config, behind)
    except TargetNotFound:
        return (f"proxyjump {name}",)
    except HarnessError as error:
        return (f"jump host {name}: {error.message}",)  # OpenSSH reports it
    own = engine.settings.get("controlpath", "none")
    reasons = engine.reasons or ((f"controlpath {own}",) if own != "none" else ())
    return tuple(f"jump host {name}: {reason}" for reason in reasons)
