"""The command lines of ``ssh``: the user's settings stay, those that would break a session are switched off. Pure.

ssh takes the first value that it meets for an option, so ours come before the user's.
"""

from __future__ import annotations

import fnmatch
import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.config import Config
from harness.errors import ConfigError
from harness.target import Hop

from .remote import interactive_command

__all__ = [
    "SshSettings",
    "check_options",
    "interactive_argv",
    "master_argv",
    "master_key",
    "master_name",
    "master_tag",
    "query_argv",
]

NAME_LENGTH = 16

_FORWARD = "run ssh -N with it beside harness"
_SHELL = "the command belongs after 'harness run --'"
_CONNECTION = "harness has connections of its own; control_persist says how long they are kept"
_WITHOUT_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(("localforward", "remoteforward", "dynamicforward", "tunnel", "forwardx11"), _FORWARD),
    **dict.fromkeys(("localcommand", "permitlocalcommand", "remotecommand", "sessiontype", "stdinnull"), _SHELL),
    "forkafterauthentication": "harness run --no-wait leaves a command running",
    **dict.fromkeys(("controlmaster", "controlpath", "controlpersist"), _CONNECTION),
    "connecttimeout": "use the setting connect_timeout",
    "serveraliveinterval": "use the setting keepalive_interval",
    "serveralivecountmax": "use the setting keepalive_count",
    "batchmode": "use --batch",
    "loglevel": "-vvv shows what happens",
    "requesttty": "harness takes a terminal where one is needed",
}
"""What is switched off or decided by harness, so that giving it by hand would do nothing, and what to do instead."""
_OFF = frozenset({"no", "none", "false", "default"})

# A master is a login and nothing else. LogLevel is for finding out why a login failed.
_MASTER_ONLY = (
    "ClearAllForwardings=yes",
    "ExitOnForwardFailure=no",
    "ForwardX11=no",
    "LogLevel=DEBUG1",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "Tunnel=no",
)
# For a person's session: what has to be switched off, and the value that does it, when the user set another.
_INTERACTIVE = (
    ("remotecommand", "none", "RemoteCommand=none"),
    ("sessiontype", "default", "SessionType=default"),
    ("stdinnull", "no", "StdinNull=no"),
    ("forkafterauthentication", "no", "ForkAfterAuthentication=no"),
    ("localforward", "", "ClearAllForwardings=yes"),
    ("remoteforward", "", "ClearAllForwardings=yes"),
    ("dynamicforward", "", "ClearAllForwardings=yes"),
    ("tunnel", "false", "Tunnel=no"),
    ("forwardx11", "no", "ForwardX11=no"),
    ("permitlocalcommand", "no", "PermitLocalCommand=no"),
)


@dataclass(frozen=True, slots=True)
class SshSettings:
    """What ``ssh -G`` printed: the settings that hold for a host, names in lower case."""

    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> SshSettings:
        """Read the output of ``ssh -G``."""
        lines = (line.partition(" ") for line in text.splitlines() if line.strip())
        return cls(tuple((name.lower(), value.strip()) for name, _, value in lines))

    def all(self, name: str) -> list[str]:
        """Every value of a setting."""
        return [value for key, value in self.pairs if key == name]

    def get(self, name: str, default: str = "") -> str:
        """The first value of a setting."""
        return next(iter(self.all(name)), default)

    @property
    def forwards_agent(self) -> bool:
        """True when the user forwards an agent to this host."""
        return self.get("forwardagent", "no") not in ("no", "")

    def environment(self, environ: Mapping[str, str]) -> list[bytes]:
        """The variables that the user sends to this host (``SendEnv``), as ``NAME=value``."""
        patterns = [word for line in self.all("sendenv") for word in line.split() if not word.startswith("-")]
        names = [name for name in environ if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
        return [os.fsencode(f"{name}={environ[name]}") for name in names]


def check_options(config: Config, target: object) -> None:
    """Refuse options that would be dropped: whoever gives one expects that it works.

    Args:
        config: Its ``ssh_options`` are checked; what stands in the user's ssh configuration is not.
        target: For the message.

    Raises:
        ConfigError: An option has no effect here.
    """
    for option in config.ssh_options:
        name, *value = re.split(r"[\s=]+", option.strip(), maxsplit=1)
        hint = _WITHOUT_EFFECT.get(name.lower())
        if hint and "".join(value).lower() not in _OFF:
            raise ConfigError(f"{target}: the ssh option {name} has no effect in harness", hint=hint)


def query_argv(hop: Hop, config: Config) -> list[str]:
    """``ssh -G``: prints the user's settings for a host without connecting to it."""
    return ["ssh", "-G", *_user(config), *_destination(hop)]


def master_argv(hop: Hop, config: Config, path: str, *, questions: bool, persist: float) -> list[str]:
    """The command that logs in, listens at ``path``, and goes to the background.

    It ends ``persist`` seconds after the last channel was closed; with ``questions`` it may ask at its terminal.
    """
    seconds = max(1, math.ceil(persist))  # 0 would mean for ever
    ours = (
        "ControlMaster=yes",
        f"ControlPersist={seconds}",
        f"BatchMode={'no' if questions else 'yes'}",
        f"ConnectTimeout={max(1, math.ceil(config.connect_timeout))}",
        f"ServerAliveInterval={max(1, config.keepalive_interval)}",
        f"ServerAliveCountMax={max(1, config.keepalive_count)}",
        *_MASTER_ONLY,
    )
    return ["ssh", "-M", "-N", "-T", "-S", path, *_options(ours), *_user(config), *_destination(hop)]


def interactive_argv(hop: Hop, config: Config, path: str, settings: SshSettings, argv: Sequence[str]) -> list[str]:
    """The command for a person's terminal: through the master while it is there, else by a login of its own."""
    switched_off = dict.fromkeys(
        option for name, harmless, option in _INTERACTIVE if any(value != harmless for value in settings.all(name))
    )
    ours = ("ControlMaster=no", *switched_off)
    destination = _destination(hop)
    return ["ssh", "-t", "-S", path, *_options(ours), *_user(config), *destination, interactive_command(argv)]


def master_key(settings: SshSettings, config: Config) -> str:
    """A short name for all that a master depends on: change an address in the configuration, and it is another one."""
    text = repr((settings.pairs, config.control_persist, config.keepalive_interval, config.keepalive_count))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:NAME_LENGTH]


def master_tag(hop: Hop) -> str:
    """A short name for the target alone, as the user writes it; a name in a file name may be cut, and is not exact."""
    return hashlib.sha256(str(hop).encode("utf-8", "surrogateescape")).hexdigest()[:NAME_LENGTH]


def master_name(hop: Hop) -> str:
    """The target as a part of a file name, for people who look into the directory."""
    return re.sub(r"[^A-Za-z0-9._@:-]", "_", str(hop).partition("://")[2])


def _user(config: Config) -> list[str]:
    words = ["-F", _path(config.ssh_config)] if config.ssh_config else []
    if config.identity:
        words += ["-i", _path(config.identity)]
    return [*words, *_options(config.ssh_options)]


def _path(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path)) if path != "none" else path


def _options(options: Sequence[str]) -> list[str]:
    return [word for option in options for word in ("-o", option)]


def _destination(hop: Hop) -> list[str]:
    port = ["-p", str(hop.port)] if hop.port else []
    user = f"{hop.user}@" if hop.user else ""
    return [*port, "--", f"{user}{hop.host}"]
