"""The command lines of ``ssh``: the user's settings, without those that would break a session. Pure.

ssh uses the first value of an option, so harness's options come before the user's.
"""

from __future__ import annotations

import fnmatch
import hashlib
import math
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from harness.config import Config
from harness.errors import ConfigError
from harness.target import Hop

from .remote_command import interactive_command

__all__ = [
    "SshSettings",
    "cancel_forward_argv",
    "check_options",
    "check_running_argv",
    "interactive_argv",
    "jump_command",
    "jump_config",
    "master_argv",
    "master_key",
    "master_name",
    "master_tag",
    "query_argv",
    "server_name",
]

NAME_LENGTH = 16

_FORWARD = "use 'harness forward', with -L, -R or -D"
_SEPARATE = "run a separate ssh -N with this option"
_SHELL = "the command belongs after 'harness run --'"
_CONNECTION = "harness manages its own connections; control_persist sets how long they are kept"
_WITHOUT_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(("localforward", "remoteforward", "dynamicforward"), _FORWARD),
    **dict.fromkeys(("tunnel", "forwardx11"), _SEPARATE),
    **dict.fromkeys(("localcommand", "permitlocalcommand", "remotecommand", "sessiontype", "stdinnull"), _SHELL),
    "forkafterauthentication": "harness run --no-wait leaves a command running",
    **dict.fromkeys(("controlmaster", "controlpath", "controlpersist"), _CONNECTION),
    "connecttimeout": "use the setting connect_timeout",
    "serveraliveinterval": "use the setting keepalive_interval",
    "serveralivecountmax": "use the setting keepalive_count",
    "batchmode": "use --batch",
    "loglevel": "use -vvv for a debug log",
    "requesttty": "harness requests a terminal where one is needed",
}
"""Options that harness overrides, so that they would have no effect, and what to use instead."""
_OFF = frozenset({"no", "none", "false", "default"})

# A master only logs in. LogLevel shows why a login failed.
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
# For an interactive session: setting, harmless value, and the option that overrides another value of the user.
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


@lru_cache(maxsize=1000)
def _shared(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return one object for equal values: nearly all are the same for all hosts of a fleet."""
    return values


@dataclass(frozen=True, slots=True)
class SshSettings:
    """The output of ``ssh -G``: the values of each setting of a host, with names in lower case."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @classmethod
    def parse(cls, text: str) -> SshSettings:
        """Parse the output of ``ssh -G``."""
        values: dict[str, tuple[str, ...]] = {}
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name:
                name = sys.intern(name.lower())
                values[name] = _shared((*values.get(name, ()), value.strip()))
        return cls(values)

    def all(self, name: str) -> tuple[str, ...]:
        """Return every value of a setting."""
        return self.values.get(name, ())

    def get(self, name: str, default: str = "") -> str:
        """Return the first value of a setting."""
        found = self.values.get(name)
        return found[0] if found else default

    @property
    def forwards_agent(self) -> bool:
        """True if the user enabled agent forwarding for this host."""
        return self.get("forwardagent", "no") not in ("no", "")

    def environment(self, environ: Mapping[str, str]) -> list[bytes]:
        """Return the variables that ``SendEnv`` selects, as ``NAME=value``."""
        patterns = [word for line in self.all("sendenv") for word in line.split() if not word.startswith("-")]
        names = [name for name in environ if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
        return [os.fsencode(f"{name}={environ[name]}") for name in names]


def check_options(config: Config, target: object) -> None:
    """Reject options that would have no effect.

    Args:
        config: Its ``ssh_options`` are checked; the user's ssh configuration is not.
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
    """Return the ``ssh -G`` command that prints the user's settings for a host."""
    return ["ssh", "-G", *_user(config), *_destination(hop)]


def check_running_argv(hop: Hop, config: Config) -> list[str]:
    """Return the command that succeeds if the user's own master for a host runs."""
    return ["ssh", "-O", "check", *_user(config), *_destination(hop)]


def cancel_forward_argv(path: str, option: str, spec: str) -> list[str]:
    """Return the arguments of ssh that end a forward of the master at ``path``."""
    return ["-F", "/dev/null", "-S", path, "-O", "cancel", option, spec, "--", "master"]


def jump_config(settings: SshSettings, config: Config) -> tuple[str, Config] | None:
    """Return the last jump host before a host, with its settings; None without jump hosts.

    As with OpenSSH, ``identity`` and ``ssh_options`` do not apply to jump hosts.
    """
    before, _, jump = settings.get("proxyjump", "none").rpartition(",")
    if jump == "none" or "%" in jump:
        return None
    options = (f"ProxyJump={before}",) if before else ()
    return jump, replace(config, identity="", ssh_options=options)


def jump_command(jump: Hop, path: str) -> str:
    """Return a ``ProxyCommand`` that connects through the jump host's master at ``path``, and never logs in itself."""
    options = _options(("ControlMaster=no", "ProxyCommand=false"))
    words = ["ssh", "-F", "/dev/null", "-S", path, *options]
    quoted = [shlex.quote(word).replace("%", "%%") for word in (*words, jump.host)]
    return " ".join([*quoted[:-1], "-W '[%h]:%p' --", quoted[-1]])


def master_argv(
    hop: Hop, config: Config, path: str, *, questions: bool, persist: float, proxy_command: str = ""
) -> list[str]:
    """Return the command that logs in, listens at ``path``, and goes to the background.

    It exits ``persist`` seconds after the last channel was closed; with ``questions`` it may prompt at its terminal.
    """
    seconds = max(1, math.ceil(persist))  # 0 would mean no limit
    ours = (
        "ControlMaster=yes",
        f"ControlPersist={seconds}",
        f"BatchMode={'no' if questions else 'yes'}",
        f"ConnectTimeout={max(1, math.ceil(config.connect_timeout))}",
        f"ServerAliveInterval={max(1, config.keepalive_interval)}",
        f"ServerAliveCountMax={max(1, config.keepalive_count)}",
        *_MASTER_ONLY,
        *([f"ProxyCommand={proxy_command}"] if proxy_command else []),
    )
    return ["ssh", "-M", "-N", "-T", "-S", path, *_options(ours), *_user(config), *_destination(hop)]


def interactive_argv(
    hop: Hop, config: Config, path: str, settings: SshSettings, argv: Sequence[str], *, logs_in: bool = True
) -> list[str]:
    """Return the command for an operator's terminal: through the master if it runs, else with its own login.

    Args:
        hop: The host.
        config: The settings of harness.
        path: The master's socket.
        settings: The user's settings for the host.
        argv: The program and its arguments.
        logs_in: False lets the command fail if the master has exited.
    """
    switched_off = dict.fromkeys(
        option for name, harmless, option in _INTERACTIVE if any(value != harmless for value in settings.all(name))
    )
    ours = ("ControlMaster=no", *(() if logs_in else ("ProxyCommand=false",)), *switched_off)
    destination = _destination(hop)
    return ["ssh", "-t", "-S", path, *_options(ours), *_user(config), *destination, interactive_command(argv)]


def master_key(settings: SshSettings, config: Config) -> str:
    """Return a hash of all settings that a master depends on, so that changed settings use a new master."""
    pairs = tuple((name, value) for name, values in settings.values.items() for value in values)
    text = repr((pairs, config.control_persist, config.keepalive_interval, config.keepalive_count))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:NAME_LENGTH]


def server_name(settings: SshSettings, jump_path: str) -> str:
    """Return what identifies the server that counts a login; hosts that it counts together have the same name.

    Args:
        settings: The host's settings.
        jump_path: The socket of the jump host's master, through which the login goes; empty without one.
    """
    address = f"{settings.get('hostname')} port {settings.get('port')}"
    if jump_path:
        return f"{address} via {jump_path}"
    jump = settings.get("proxyjump", "none").partition(",")[0]
    if jump != "none":
        return f"jump host {jump}"
    command = settings.get("proxycommand", "none")
    if command != "none":
        return f"proxy command {command}"
    return address


def master_tag(hop: Hop) -> str:
    """Return a hash of the target as the user wrote it; unlike the name in the file name it is never truncated."""
    return hashlib.sha256(str(hop).encode("utf-8", "surrogateescape")).hexdigest()[:NAME_LENGTH]


def master_name(hop: Hop) -> str:
    """Return the target's readable name as part of a file name."""
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
