"""The user's ssh configuration for a host, as ``ssh -G`` prints it: complete, merged, and the same for both engines."""

from __future__ import annotations

import anyio
from anyio.lowlevel import RunVar

from harness.config import Config
from harness.errors import ConfigError, ConnectError
from harness.system.child_process import run_program
from harness.target import Target

from .options import SshSettings, query_argv
from .without_ssh import no_ssh_hint

__all__ = ["read_defaults", "read_settings"]

MAX_BYTES = 1 << 20
_DEFAULTS = ("ssh", "-G", "-F", "none", "localhost")
_defaults: list[SshSettings] = []
"""OpenSSH's own settings, read once per process."""
_turn: RunVar[anyio.Lock | None] = RunVar("_turn")


async def read_settings(target: Target, config: Config) -> SshSettings:
    """Read the user's settings for a host; this runs no login.

    Raises:
        ConfigError: ssh rejects its configuration.
        ConnectError: ssh is not installed, or does not answer in time.
    """
    return await _query(query_argv(target.last, config), target, config)


async def read_defaults(target: Target, config: Config) -> SshSettings:
    """Read OpenSSH's settings without any configuration.

    Args:
        target: For the message.
        config: Its ``connect_timeout`` limits the time.

    Raises:
        ConnectError: ssh is not installed, or does not answer in time.
    """
    turn = _turn.get(None) or anyio.Lock()
    _turn.set(turn)
    async with turn:  # all hosts of a fleet ask at the same time
        if not _defaults:
            _defaults.append(await _query(_DEFAULTS, target, config))
        return _defaults[0]


async def _query(argv: tuple[str, ...] | list[str], target: Target, config: Config) -> SshSettings:
    limit = config.connect_timeout
    try:
        done = await run_program(argv, timeout=limit, stdout_limit=MAX_BYTES, stderr_limit=MAX_BYTES)
    except FileNotFoundError as error:
        raise ConnectError("ssh is not installed", target=target, hint=no_ssh_hint()) from error
    if done.code is None:
        raise ConnectError("ssh -G did not answer in time", target=target, hint="check Match exec in the ssh config")
    if done.code != 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["ssh -G failed"]
        raise ConfigError(f"ssh rejects its configuration: {words[0]}", target=target)
    return SshSettings.parse(done.stdout.decode("utf-8", "surrogateescape"))
