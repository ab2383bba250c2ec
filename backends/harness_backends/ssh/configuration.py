"""The user's ssh configuration for a host, as ``ssh -G`` prints it: complete, merged, and the same for both engines.

For many hosts, two runs of ssh are enough where :mod:`.shared_settings` proves what it would print for the others.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar

from harness.config import Config
from harness.errors import ConfigError, ConnectError
from harness.system.child_process import ProgramOutput, run_program
from harness.target import Hop, Target

from .options import SshSettings, query_argv
from .shared_settings import NotProvableError, SharedSettings, files_read, read_configuration
from .without_ssh import no_ssh_hint

__all__ = ["read_defaults", "read_settings"]

MAX_BYTES = 1 << 20
MAX_AGE = 10.0
"""Seconds for which the settings of one host are the model of others."""
MAX_MODELS = 100
"""Models that are kept: one for each combination of options, user and port."""
_DEFAULTS = ("ssh", "-G", "-F", "none", "localhost")
_defaults: list[SshSettings] = []
"""OpenSSH's own settings, read once per process."""
_turn: RunVar[anyio.Lock | None] = RunVar("_turn")


@dataclass(eq=False)
class _Model:
    """What is known about the hosts that are asked about with the same options, user and port."""

    turn: anyio.Lock = field(default_factory=anyio.Lock)
    until: float = 0.0
    first: tuple[Hop, SshSettings] | None = None
    shared: SharedSettings | None = None
    is_refuted: bool = False


_models: RunVar[dict[str, _Model]] = RunVar("_models")


async def read_settings(target: Target, config: Config) -> SshSettings:
    """Read the user's settings for a host; this runs no login.

    Raises:
        ConfigError: ssh rejects its configuration.
        ConnectError: ssh is not installed, or does not answer in time.
    """
    model = _model_of(target.last, config)
    if not model.is_refuted or model.until < anyio.current_time():
        async with model.turn:
            found = await _follow(model, target, config)
        if found is not None:
            return found
    return await _query(query_argv(target.last, config), target, config)


def _model_of(hop: Hop, config: Config) -> _Model:
    models = _models.get({})
    _models.set(models)
    options = (hop.scheme, hop.user, hop.port, config.ssh_config, config.identity, config.ssh_options)
    name = repr(options)
    if name not in models and len(models) >= MAX_MODELS:
        models.clear()
    return models.setdefault(name, _Model())


async def _follow(model: _Model, target: Target, config: Config) -> SshSettings | None:
    """Return the settings of the first host, and of others if they follow from them; None if they do not.

    The second host is asked about as well: its settings must be those that were derived.
    """
    if model.until < anyio.current_time():
        model.first = model.shared = None
        model.is_refuted = False
        settings = await _query(query_argv(target.last, config), target, config)
        model.first, model.until = (target.last, settings), anyio.current_time() + MAX_AGE
        return settings
    if model.is_refuted or model.first is None or model.first[0] == target.last:
        return None
    try:
        if model.shared is None:
            model.shared = await _prove(*model.first, target, config)
        elif not model.shared.configuration.is_current():
            model.until = 0.0
            return None
        return model.shared.of(target.last)
    except (NotProvableError, OSError):
        model.is_refuted = model.shared is None
        return None


async def _prove(hop: Hop, settings: SshSettings, target: Target, config: Config) -> SharedSettings:
    """Return the settings of a host as the model of others, if it is right about the host ``target``.

    Raises:
        NotProvableError: It is not, or that cannot be known.
        OSError: A configuration file cannot be read.
    """
    if await to_thread.run_sync(_is_script, shutil.which("ssh") or ""):
        raise NotProvableError("ssh is a script")
    files = await to_thread.run_sync(read_configuration, config)
    shared = SharedSettings(files, hop, settings, await read_defaults(target, config))
    derived = shared.of(target.last)
    argv = query_argv(target.last, config)
    done = await _run([argv[0], "-v", *argv[1:]], target, config)
    printed = SshSettings.parse(done.stdout.decode("utf-8", "surrogateescape"))
    if files_read(done.stderr.decode("utf-8", "surrogateescape")) != shared.configuration.files:
        raise NotProvableError("ssh reads other files")
    if _without_level(printed) != _without_level(derived):
        raise NotProvableError("ssh prints other settings")
    return shared


def _without_level(settings: SshSettings) -> list[tuple[str, tuple[str, ...]]]:
    return [(name, values) for name, values in settings.values.items() if name != "loglevel"]


def _is_script(path: str) -> bool:
    with suppress(OSError):
        return Path(path).read_bytes()[:2] == b"#!"
    return True


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
    done = await _run(argv, target, config)
    return SshSettings.parse(done.stdout.decode("utf-8", "surrogateescape"))


async def _run(argv: tuple[str, ...] | list[str], target: Target, config: Config) -> ProgramOutput:
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
    return done
