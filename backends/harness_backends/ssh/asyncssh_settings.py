"""The user's ssh configuration for asyncssh, and the settings that asyncssh does not support."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import asyncssh

from harness.config import Config
from harness.errors import ConfigError
from harness.target import Target

__all__ = [
    "ConfigFiles",
    "EffectiveConfig",
    "HostSettings",
    "config_files",
    "parse_settings",
    "read_effective",
    "read_host_settings",
    "ssh_words",
    "unsupported_options",
]

SYSTEM_CONFIG = "/etc/ssh/ssh_config"
USER_CONFIG = "~/.ssh/config"
QUERY_TIMEOUT = 10.0
DEFAULT_IDENTITIES = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")

# Unsupported settings, as `ssh -G` names them, that affect which hosts are trusted, who can log in, or what is
# recorded; without those that have no meaning for an engine without a terminal or shared connections.
_LOST = frozenset(
    {
        "addkeystoagent",
        "bindinterface",
        "fingerprinthash",
        "hostbasedacceptedalgorithms",
        "ipqos",
        "knownhostscommand",
        "nohostauthenticationforlocalhost",
        "numberofpasswordprompts",
        "pubkeyacceptedalgorithms",
        "requiredrsasize",
        "revokedhostkeys",
        "securitykeyprovider",
        "updatehostkeys",
        "verifyhostkeydns",
    }
)
_HONOURED_CHECKING = frozenset({"ask", "yes", "true", "accept-new"})
_OFF = frozenset({"no", "false", "none", "off"})

_defaults: dict[str, str] = {}
"""OpenSSH's defaults, queried once per process."""


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """Configuration files for asyncssh, in order of precedence; ``options`` is generated from ``ssh_options``."""

    options: str
    rest: tuple[str, ...]

    @property
    def all(self) -> list[str]:
        """All files in order of precedence."""
        return [self.options, *self.rest] if self.options else [*self.rest]


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """The settings that OpenSSH would use for a host and this engine must know."""

    host_key_checking: str = "ask"
    lost: tuple[str, ...] = ()
    """The user's settings that asyncssh does not support, as ``name value``."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The settings of a host, as asyncssh reads them, that this engine applies itself."""

    identities: tuple[str, ...] = ()
    known_hosts: tuple[str, ...] | None = None
    """The user's known_hosts files; None for the default ones."""
    global_known_hosts: tuple[str, ...] | None = None
    host_key_alias: str = ""
    jumps: tuple[str, ...] = ()
    """The jump hosts (``ProxyJump``), as ``[user@]host[:port]``."""
    chooses_ciphers: bool = False
    """True if the user configured ciphers."""
    server: str = ""
    """What identifies the server that counts a login."""
    proxy_command: bool = False
    """True if a program makes the connection."""


async def read_host_settings(target: Target, config: Config, files: Sequence[str]) -> HostSettings:
    """Read the configuration for a host with asyncssh.

    Raises:
        ConfigError: ``config.identity`` names a file that does not exist.
        ValueError: or another error of asyncssh.
    """
    hop = target.last
    options = await asyncssh.SSHClientConnectionOptions.construct(
        host=hop.host,
        port=hop.port or (),
        username=hop.user or (),
        config=list(files),
        client_keys=None,
        known_hosts=b"#",
    )
    read = options.config.get
    command = read("ProxyCommand")
    place = f"{options.host} port {options.port} via {read('ProxyJump')}"
    return HostSettings(
        identities=_identities(config.identity, read("IdentityFile"), target),
        known_hosts=_paths(read("UserKnownHostsFile")),
        global_known_hosts=_paths(read("GlobalKnownHostsFile")),
        host_key_alias=str(read("HostKeyAlias") or ""),
        jumps=tuple(str(read("ProxyJump") or "").split(",")) if read("ProxyJump") else (),
        chooses_ciphers=bool(read("Ciphers")),
        server=f"proxy command {command}" if command else place,
        proxy_command=bool(command),
    )


def _identities(identity: str, configured: object, target: Target) -> tuple[str, ...]:
    if identity and not os.path.exists(os.path.expanduser(identity)):
        raise ConfigError(f"the identity file {identity} does not exist", target=target)
    named = [identity] if identity else []
    named += _paths(configured) or ()
    if not named:
        named = [f"~/.ssh/{name}" for name in DEFAULT_IDENTITIES]
    found = [path for path in map(os.path.expanduser, named) if os.access(path, os.R_OK)]
    return tuple(dict.fromkeys(found))


def _paths(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(str(path) for path in value if path)


@contextmanager
def config_files(config: Config) -> Iterator[ConfigFiles]:
    """Provide the configuration files; ``ssh_options`` are written to a temporary one.

    Raises:
        ConfigError: an option is not ``Name=value``, or the ``ssh_config`` file does not exist.
    """
    if config.ssh_config and not os.path.exists(os.path.expanduser(config.ssh_config)):
        raise ConfigError(f"the ssh configuration file {config.ssh_config} does not exist")
    wanted = [config.ssh_config] if config.ssh_config else [USER_CONFIG, SYSTEM_CONFIG]
    found = [path for path in map(os.path.expanduser, wanted) if os.access(path, os.R_OK)]
    with tempfile.TemporaryDirectory(prefix="harness-ssh-") as directory:
        path = Path(directory, "options")
        path.write_text("".join(f"{_option(text)}\n" for text in config.ssh_options))
        yield ConfigFiles(str(path), tuple(found))


def _option(text: str) -> str:
    name = text.partition("=")[0].strip() if "=" in text else text.partition(" ")[0]
    if "\n" in text or not name.isalnum() or name.lower() in {"host", "match", "include"}:
        raise ConfigError(f"{text!r} is not a valid ssh option", hint="write Name=value, as for ssh -o")
    return text


def ssh_words(target: Target, config: Config) -> list[str]:
    """Return the arguments that give OpenSSH's client the same settings and host."""
    words = ["-F", config.ssh_config] if config.ssh_config else []
    if config.identity:
        words += ["-i", config.identity]
    for option in config.ssh_options:
        words += ["-o", option]
    jumps = [str(hop).removeprefix("ssh://") for hop in target.hops[:-1] if hop.scheme == "ssh"]
    words += ["-J", ",".join(jumps)] if jumps else []
    hop = target.last
    words += ["-p", str(hop.port)] if hop.port else []
    return [*words, f"{hop.user}@{hop.host}" if hop.user else hop.host]


async def read_effective(target: Target, config: Config, files: ConfigFiles) -> EffectiveConfig:
    """Read the user's settings for this host with ``ssh -G``; without ssh, only ``ssh_options`` are known.

    Raises:
        ConfigError: OpenSSH cannot read the configuration.
    """
    if not files.rest and not config.ssh_options:
        return EffectiveConfig()
    try:
        if not _defaults:
            _defaults.update(await _query(["-F", "none", "localhost"], target))
        actual = await _query(ssh_words(target, config), target)
    except FileNotFoundError:
        actual = parse_settings("\n".join(option.replace("=", " ", 1) for option in config.ssh_options))
    return EffectiveConfig(actual.get("stricthostkeychecking", "ask").lower(), unsupported_options(_defaults, actual))


async def _query(words: list[str], target: Target) -> dict[str, str]:
    with anyio.fail_after(QUERY_TIMEOUT):
        done = await anyio.run_process(["ssh", "-G", *words], check=False)
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ConfigError(reason[0] if reason else "ssh rejects its configuration", target=target)
    return parse_settings(done.stdout.decode("utf-8", "replace"))


def parse_settings(text: str) -> dict[str, str]:
    """Parse ``name value`` lines into a mapping with lower-case names; the first value of a name is used."""
    settings: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        settings.setdefault(name.lower(), value.strip())
    return settings


def unsupported_options(defaults: Mapping[str, str], actual: Mapping[str, str]) -> tuple[str, ...]:
    """Return the non-default settings that asyncssh does not support, as sorted ``name value`` strings."""
    lost = [f"{name} {value}" for name, value in actual.items() if _is_lost(name, value, defaults.get(name))]
    checking = actual.get("stricthostkeychecking", "ask")
    if checking.lower() not in _HONOURED_CHECKING:
        lost.append(f"stricthostkeychecking {checking}")
    return tuple(sorted(lost))


def _is_lost(name: str, value: str, default: str | None) -> bool:
    return name in _LOST and value != default and value.lower() not in _OFF
