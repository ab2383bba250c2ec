"""The user's ssh configuration for asyncssh, and the settings that asyncssh does not support."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import asyncssh
from anyio import to_thread

from harness.config import Config
from harness.errors import ConfigError
from harness.target import Target

from .configuration import read_defaults, read_settings
from .engine_choice import has_kerberos, reasons_for_openssh, unfollowed_settings
from .known_hosts import host_name
from .options import SshSettings, server_name
from .without_ssh import SYSTEM_CONFIG, USER_CONFIG, find_unknown_line, only_ssh

__all__ = [
    "HostSettings",
    "algorithm_arguments",
    "config_file",
    "host_settings",
    "read_followed_settings",
    "read_host_settings",
    "read_without_ssh",
    "ssh_words",
]

DEFAULT_IDENTITIES = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
USER_FILES = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
SYSTEM_FILES = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
"""The preferred ciphers if the user configured none.

asyncssh encrypts a packet with one call for these; its default, ChaCha20, sets up three ciphers per packet, which takes
half of the time of a command."""

_ARGUMENTS = {
    "casignaturealgorithms": "signature_algs",
    "ciphers": "encryption_algs",
    "hostkeyalgorithms": "server_host_key_algs",
    "kexalgorithms": "kex_algs",
    "macs": "mac_algs",
}
"""asyncssh's arguments for lists of algorithms."""

_NO = frozenset({"no", "false", "none", ""})
_TOKEN = re.compile("%(.)")
_ALGORITHM = re.compile(r"[A-Za-z0-9@._-]+")
_FAMILIES: Mapping[object, str] = {socket.AF_INET: "inet", socket.AF_INET6: "inet6"}
_YES_OR_NO = (
    *("compression", "enablesshkeysign", "gssapiauthentication", "gssapidelegatecredentials", "gssapikeyexchange"),
    *("hostbasedauthentication", "kbdinteractiveauthentication", "passwordauthentication", "pubkeyauthentication"),
    "tcpkeepalive",
)
_TEXTS = (
    *("addressfamily", "bindaddress", "certificatefile", "ciphers", "hostname", "hostkeyalias"),
    *("casignaturealgorithms", "macs", "pkcs11provider", "port", "preferredauthentications", "user"),
)
_OTHERS = ("forwardagent", "hostkeyalgorithms", "kexalgorithms", "proxycommand", "rekeylimit", "sendenv", "setenv")
_PASSED_ON = frozenset({*_YES_OR_NO, *_TEXTS, *_OTHERS})
"""The settings that asyncssh is given, besides those that this engine applies itself."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The settings of a host that this engine applies itself."""

    ssh: SshSettings
    identities: tuple[str, ...] = ()
    """The files of the keys, in the order of the configuration."""
    identities_only: bool = False
    agent: str = ""
    """The socket of the agent; empty for none."""
    names: tuple[str, ...] = ()
    """The names of the host in known_hosts files: a later one counts where there is no key for the ones before."""
    user_files: tuple[str, ...] = ()
    """The user's known_hosts files; new keys are added to the first."""
    system_files: tuple[str, ...] = ()
    server: str = ""
    """What identifies the server that counts a login."""
    prefers_fast_ciphers: bool = True
    lost: tuple[str, ...] = ()
    """The user's settings that asyncssh does not support, as ``name value``."""

    @property
    def checking(self) -> str:
        """The value of ``StrictHostKeyChecking``."""
        return self.ssh.get("stricthostkeychecking", "ask").lower()

    @property
    def hashes_names(self) -> bool:
        """True if new names in known_hosts files are hashed."""
        return _is_on(self.ssh, "hashknownhosts")

    @property
    def forwarded_agent(self) -> str:
        """The socket of the agent that programs on the host may use; empty for none."""
        value = self.ssh.get("forwardagent", "no")
        if value.lower() in _NO:
            return ""
        return self.agent if value.lower() in {"yes", "true"} else os.path.expanduser(os.path.expandvars(value))

    @property
    def uses_proxy_command(self) -> bool:
        """True if a program makes the connection."""
        return self.ssh.get("proxycommand", "none") != "none"


async def read_host_settings(target: Target, config: Config, settings: SshSettings | None = None) -> HostSettings:
    """Read the user's settings for a host: with ``ssh -G``, or with asyncssh if ssh is not installed.

    Args:
        target: The host.
        config: The settings of harness.
        settings: The user's settings for the host if they are known.

    Raises:
        ConfigError: The configuration is wrong, or a file that ``config`` names does not exist.
        ConnectError: ssh does not answer in time.
        ValueError: Or another error of asyncssh.
    """
    _check_files(target, config)
    if shutil.which("ssh") is None:
        return host_settings(await read_without_ssh(target, config), SshSettings())
    return host_settings(settings or await read_settings(target, config), await read_defaults(target, config))


def _check_files(target: Target, config: Config) -> None:
    for what, path in (("ssh configuration", config.ssh_config), ("identity", config.identity)):
        if path and not os.path.exists(os.path.expanduser(path)) and path != "none":
            raise ConfigError(f"the {what} file {path} does not exist", target=target)


def host_settings(settings: SshSettings, defaults: SshSettings) -> HostSettings:
    """Return what this engine applies itself.

    Args:
        settings: The user's settings for the host.
        defaults: OpenSSH's settings without any configuration; empty if they are not known.
    """
    host, port = settings.get("hostname").lower(), int(settings.get("port", "22"))
    alias = settings.get("hostkeyalias")
    via = settings.get("proxyjump", "none")
    unfollowed = unfollowed_settings(settings, defaults, kerberos=has_kerberos(os.environ))
    return HostSettings(
        ssh=settings,
        identities=tuple(_identities(settings)),
        identities_only=_is_on(settings, "identitiesonly"),
        agent=_agent(settings),
        names=(alias,) if alias else tuple(dict.fromkeys((host_name(host, port), host))),
        user_files=_files(settings, "userknownhostsfile", USER_FILES),
        system_files=_files(settings, "globalknownhostsfile", SYSTEM_FILES),
        server=server_name(settings, "") if via == "none" else f"{host} port {port} via {via}",
        prefers_fast_ciphers=settings.all("ciphers") == defaults.all("ciphers"),
        lost=tuple(f"{name} {value}".rstrip() for name, value in unfollowed if name not in _PASSED_ON),
    )


def _is_on(settings: SshSettings, name: str) -> bool:
    return settings.get(name).lower() not in _NO


def _identities(settings: SshSettings) -> Iterator[str]:
    expand = _expander(settings)
    for path in dict.fromkeys(settings.all("identityfile")):
        if path != "none":
            yield os.path.expanduser(expand(path))


def _expander(settings: SshSettings) -> Callable[[str], str]:
    """Return the function that replaces the tokens of ssh_config(5) in a path."""
    tokens = {"%": "%", "d": os.path.expanduser("~"), "h": settings.get("hostname"), "i": str(os.getuid())}
    tokens |= {"n": settings.get("host"), "p": settings.get("port"), "r": settings.get("user")}
    return lambda path: _TOKEN.sub(lambda match: tokens.get(match[1], match[0]), os.path.expandvars(path))


def _agent(settings: SshSettings) -> str:
    path = settings.get("identityagent", "SSH_AUTH_SOCK")
    if path == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    return "" if path == "none" else os.path.expanduser(os.path.expandvars(path))


def _files(settings: SshSettings, name: str, default: str) -> tuple[str, ...]:
    value = settings.get(name) if settings.all(name) else default
    expand = _expander(settings)
    return tuple(os.path.expanduser(expand(path)) for path in value.split() if path != "none")


@contextmanager
def config_file(host: HostSettings, known_types: Sequence[str], *, certificates: bool) -> Iterator[str]:
    """Provide a configuration file for asyncssh; all of it holds for the host.

    Args:
        host: The host's settings.
        known_types: The types of its recorded keys, which are preferred.
        certificates: Whether an authority for its host certificates is recorded.
    """
    lines = [*_config_lines(host.ssh), *_algorithm_lines(host, known_types, certificates=certificates)]
    with _temporary_file(lines) as path:
        yield path


@contextmanager
def _temporary_file(lines: Iterable[str]) -> Iterator[str]:
    """Provide the path of a file, of which nothing is left if this process is killed: it has no name of its own."""
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)  # also where opening /dev/fd continues from here
        if os.path.exists(path := f"/dev/fd/{file.fileno()}"):
            yield path
            return
    with tempfile.NamedTemporaryFile(prefix="harness-ssh-") as named:  # such as FreeBSD, as it is installed
        named.write(content)
        named.flush()
        yield named.name


def _config_lines(settings: SshSettings) -> Iterator[str]:
    for name in _YES_OR_NO:
        if settings.all(name):
            yield f"{name} {'yes' if _is_on(settings, name) else 'no'}"
    for name in _TEXTS:
        for value in settings.all(name):
            if name != "ciphers" and value:
                text = value.replace("%", "%%") if name == "hostname" else value
                yield f"{name} {shlex.quote(text)}"
    for value in settings.all("sendenv"):
        yield f"sendenv {value}"
    if settings.all("setenv"):
        yield f"setenv {' '.join(map(shlex.quote, settings.all('setenv')))}"
    if (command := settings.get("proxycommand", "none")) != "none":
        yield f"proxycommand {command}"
    size, _, seconds = settings.get("rekeylimit", "0 0").partition(" ")
    if (size, seconds) != ("0", "0"):
        yield f"rekeylimit {'default' if size == '0' else size} {'none' if seconds in ('0', '') else seconds}"


def _algorithm_lines(host: HostSettings, known_types: Sequence[str], *, certificates: bool) -> Iterator[str]:
    """Yield the algorithms that ssh allows, and no others."""
    ciphers = [name for name in host.ssh.get("ciphers").split(",") if name]
    if ciphers and host.prefers_fast_ciphers:
        ciphers = [*(name for name in CIPHERS if name in ciphers), *(name for name in ciphers if name not in CIPHERS)]
    if ciphers:
        yield f"ciphers {','.join(ciphers)}"
    exchanges = [name for name in host.ssh.get("kexalgorithms").split(",") if name]
    if exchanges:  # asyncssh takes any group that the server chooses, and ssh none below 2048 bits
        yield f"kexalgorithms {','.join([name for name in exchanges if 'group-exchange' not in name] or exchanges)}"
    algorithms = [name for name in host.ssh.get("hostkeyalgorithms").split(",") if name]
    if not certificates:  # asyncssh refuses a certificate without an authority, and ssh uses the key in it
        algorithms = [name for name in algorithms if "-cert-" not in name]
    preferred = {"rsa-sha2-512", "rsa-sha2-256"} if "ssh-rsa" in known_types else set()
    preferred |= {*known_types}
    first = [name for name in algorithms if name in preferred or "-cert-" in name]
    if algorithms:
        yield f"hostkeyalgorithms {','.join(dict.fromkeys([*first, *algorithms]))}"


def algorithm_arguments(
    host: HostSettings, known_types: Sequence[str], *, certificates: bool
) -> dict[str, tuple[str, ...]]:
    """Return the algorithms of :func:`config_file` as arguments for asyncssh.

    It takes each name in a file as a pattern, and compares it with all that it knows, again for each host.
    """
    lines = dict(line.split(" ", 1) for line in _algorithm_lines(host, known_types, certificates=certificates))
    lines |= {name: host.ssh.get(name) for name in ("casignaturealgorithms", "macs")}
    found = {_ARGUMENTS[name]: _supported_names(name, value) for name, value in lines.items()}
    return {name: algorithms for name, algorithms in found.items() if algorithms}


def _supported_names(setting: str, value: str) -> tuple[str, ...]:
    """Return the algorithms of a setting that asyncssh knows; empty if it has patterns."""
    names = value.split(",")
    if not all(map(_ALGORITHM.fullmatch, names)):
        return ()
    known = {name.decode() for name in _supported_algorithms(setting)}
    return tuple(name for name in names if name in known)


def _supported_algorithms(setting: str) -> Sequence[bytes]:
    if setting == "ciphers":
        return asyncssh.encryption.get_encryption_algs()
    if setting == "macs":
        return asyncssh.mac.get_mac_algs()
    if setting == "kexalgorithms":
        return asyncssh.kex.get_kex_algs()
    plain = asyncssh.public_key.get_public_key_algs()
    return plain + asyncssh.public_key.get_certificate_algs() if setting == "hostkeyalgorithms" else plain


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


# -- Without the ssh program, asyncssh reads the files.


async def read_followed_settings(target: Target, config: Config) -> SshSettings:
    """Return the settings of a host on a machine without ssh, all of which this engine follows.

    Raises:
        ConfigError: The configuration is wrong.
        ConnectError: Only ssh follows a setting.
    """
    if reason := await to_thread.run_sync(find_unknown_line, config):
        raise only_ssh(target, reason)
    try:
        settings = await read_without_ssh(target, config)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the ssh configuration is wrong: {error}", target=target) from error
    reasons = reasons_for_openssh(settings, SshSettings(), kerberos=has_kerberos(os.environ))
    if reasons:
        raise only_ssh(target, reasons[0])
    return settings


async def read_without_ssh(target: Target, config: Config) -> SshSettings:
    """Read the configuration with asyncssh, and return the settings as ``ssh -G`` would print them.

    Raises:
        ConfigError: An option is not ``Name=value``.
        ValueError: Or another error of asyncssh.
    """
    hop = target.last
    with _files_without_ssh(config) as files:
        read = await asyncssh.SSHClientConnectionOptions.construct(
            host=hop.host,
            port=hop.port or (),
            username=hop.user or (),
            config=files,
            client_keys=None,
            known_hosts=b"#",
        )
    pairs = {"host": [hop.host], "hostname": [read.host], "port": [str(read.port)], "user": [read.username]}
    pairs |= {name.lower(): _values(name, value) for name, value in read.config.get_options(reload=False).items()}
    for option in config.ssh_options:
        name, _, value = option.replace("=", " ", 1).partition(" ")
        pairs.setdefault(name.strip().lower(), [value.strip()])
    if not pairs.get("identityfile"):
        pairs["identityfile"] = [f"~/.ssh/{name}" for name in DEFAULT_IDENTITIES]
    if config.identity:
        pairs["identityfile"].insert(0, config.identity)
    return SshSettings({name: tuple(values) for name, values in pairs.items() if values})


@contextmanager
def _files_without_ssh(config: Config) -> Iterator[list[str]]:
    """Provide the configuration files in order of precedence; ``ssh_options`` are written to a temporary one."""
    wanted = [config.ssh_config] if config.ssh_config else [USER_CONFIG, SYSTEM_CONFIG]
    found = [path for path in map(os.path.expanduser, wanted) if os.access(path, os.R_OK)]
    with _temporary_file(map(_option, config.ssh_options)) as path:
        yield [path, *found]


def _option(text: str) -> str:
    name = text.partition("=")[0].strip() if "=" in text else text.partition(" ")[0]
    if "\n" in text or not name.isalnum() or name.lower() in {"host", "match", "include"}:
        raise ConfigError(f"{text!r} is not a valid ssh option", hint="write Name=value, as for ssh -o")
    return text


def _values(name: str, value: object) -> list[str]:
    """Return a value of asyncssh as ``ssh -G`` prints it."""
    if isinstance(value, list):
        words = [str(part) for part in value]
        return [" ".join(words) or "none"] if name.endswith("KnownHostsFile") else words
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if name == "AddressFamily":
        return [_FAMILIES.get(value, "any")]
    if name == "RekeyLimit":
        return []
    return [] if value is None else [str(value)]
