"""What the variables of an inventory say about a connection, as Ansible's ``ssh`` connection reads them.

Honored: the host, the user, the port, and ``ansible_connection=local``. A variable that would make another machine or
another account of the connection, and that harness does not follow, is an error: another connection, SSH arguments that
are not known to be harmless, a proxy, another ``ssh`` program, ``ansible_become``. All others are ignored: keys,
passwords, timeouts and what only Ansible's modules use.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...errors import ConfigError
from ..host_names import is_url, parse_host_name
from .inventory import Variable

__all__ = ["Connection", "read_connection"]

SSH_CONNECTIONS = frozenset({"ssh", "smart", "paramiko", "paramiko_ssh", "libssh", ""})
HARMLESS_FLAGS = frozenset("46ACKTXYaknqtvxy")
"""Flags of ``ssh`` that do not change which machine and account it reaches."""
HARMLESS_VALUES = frozenset("Eceim")
"""The same, for options with a value."""
_OPTIONS = """
addkeystoagent addressfamily batchmode checkhostip ciphers compression connectionattempts connecttimeout
controlmaster controlpath controlpersist forwardagent forwardx11 forwardx11trusted globalknownhostsfile
gssapiauthentication gssapidelegatecredentials hashknownhosts hostbasedauthentication hostkeyalgorithms
identitiesonly identityagent identityfile ipqos kbdinteractiveauthentication kexalgorithms loglevel macs
numberofpasswordprompts passwordauthentication preferredauthentications pubkeyacceptedalgorithms
pubkeyacceptedkeytypes pubkeyauthentication rekeylimit requesttty sendenv serveralivecountmax
serveraliveinterval setenv stricthostkeychecking tcpkeepalive updatehostkeys userknownhostsfile verifyhostkeydns
visualhostkey
"""
HARMLESS_OPTIONS = frozenset(_OPTIONS.split())
"""The same, for ``-o`` and the keywords of ssh_config."""
ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
HONORED = {
    "host": ("ansible_host", "ansible_ssh_host"),
    "user": ("ansible_user", "ansible_ssh_user"),
    "port": ("ansible_port", "ansible_ssh_port"),
}
"""The variables with their older names."""
FALSE = frozenset({"false", "no", "off", "0", "n", "f", ""})


@dataclass(frozen=True, slots=True)
class Connection:
    """How an inventory reaches a host; what is None is not said there."""

    host: str | None = None
    user: str | None = None
    port: int | None = None
    local: bool = False


def read_connection(name: str, variables: Mapping[str, Variable], *, ignore_become: bool = False) -> Connection:
    """Return the connection that a host's variables mean.

    Args:
        name: The host, for messages.
        variables: Its variables.
        ignore_become: Accept ``ansible_become``: the caller decides as which account commands run.

    Raises:
        ConfigError: A value is wrong, or a variable would lead to another machine or account.
    """
    local = _is_local(name, variables)
    if not ignore_become:
        _check_become(name, variables)
    if local:
        return Connection(local=True)
    for variable, (value, where) in variables.items():
        if variable in ARGUMENTS:
            _check_arguments(name, variable, value, where)
        elif "proxy" in variable and value:
            raise _unsupported(name, variable, where, "set ProxyJump or ProxyCommand in the ssh configuration")
        elif variable == "ansible_ssh_executable" and str(value).rpartition("/")[2] != "ssh":
            raise _unsupported(name, variable, where, "harness uses the ssh program of PATH")
    host, user, port = (_value(name, variables, key) for key in HONORED)
    return Connection(_host(name, host), str(user.value) if user else None, _port(name, port))


def _is_local(name: str, variables: Mapping[str, Variable]) -> bool:
    found = variables.get("ansible_connection")
    if found is None or found.value is None:
        return False
    kind = str(found.value).rpartition(".")[2]
    if kind != "local" and kind not in SSH_CONNECTIONS:
        raise ConfigError(
            f"{found.where}: {name} has ansible_connection={found.value}; harness reads only ssh and local",
            hint=f"leave the host out, for example with '!{name}'; a container is written docker://NAME",
        )
    return kind == "local"


def _check_become(name: str, variables: Mapping[str, Variable]) -> None:
    found = variables.get("ansible_become")
    if found is not None and found.value is not None and str(found.value).lower() not in FALSE:
        user = variables.get("ansible_become_user", Variable("root", "")).value
        raise ConfigError(
            f"{found.where}: {name} has ansible_become, and harness would run the command as the account of the login",
            hint=f"say which account is meant: --user {user}, or --user with the name of the login's account",
        )


def _check_arguments(name: str, variable: str, value: object, where: str) -> None:
    """Check that SSH arguments are known to change neither machine nor account.

    Raises:
        ConfigError: One is not.
    """
    try:
        words = shlex.split(str(value)) if value is not None else []
    except ValueError:
        words = [str(value)]
    waiting = iter(words)
    for word in waiting:
        if not _is_harmless(word, waiting):
            raise _unsupported(
                name,
                f"{variable} with {word!r}",
                where,
                "write it into the ssh configuration, or give it with -o for all hosts",
            )


def _is_harmless(word: str, following: Iterator[str]) -> bool:
    """Return whether an argument is harmless, and take its value from those that follow."""
    if not word.startswith("-") or word == "-":
        return False
    for place, letter in enumerate(word[1:], 2):
        if letter in HARMLESS_FLAGS:
            continue
        value = word[place:] or next(following, "")
        option = re.split(r"[\s=]", value.strip(), maxsplit=1)[0].lower()
        return letter in HARMLESS_VALUES or (letter == "o" and option in HARMLESS_OPTIONS)
    return True


def _unsupported(name: str, what: str, where: str, hint: str) -> ConfigError:
    return ConfigError(
        f"{where}: {name} has {what}, which harness does not follow: it could reach another host", hint=hint
    )


# -- host, user, port


def _value(name: str, variables: Mapping[str, Variable], key: str) -> Variable | None:
    """Return a variable under its newer or older name as text.

    Raises:
        ConfigError: The two differ, or the value is not text that names something.
    """
    known = [(each, variables[each]) for each in HONORED[key] if each in variables]
    given = {each: found for each, found in known if found.value is not None}
    for each, found in given.items():
        text = str(found.value)
        if type(found.value) not in (str, int) or not text or re.search(r"\s|\{\{|\{%", text):
            template = "; harness does not evaluate templates" if "{" in text else ""
            raise ConfigError(
                f"{found.where}: {name}: {each} {found.value!r} is not a {key}{template}",
                hint="write the value itself, in quotes if it looks like a number or a truth value",
            )
    values = list(given.values())
    if len({str(found.value) for found in values}) > 1:
        both = " and ".join(f"{each} {found.value!r}" for each, found in given.items())
        raise ConfigError(f"{values[-1].where}: {name} has {both}", hint=f"keep {HONORED[key][0]}")
    return values[0] if values else None


def _host(name: str, found: Variable | None) -> str | None:
    if found is None:
        return None
    text = str(found.value)
    host = parse_host_name(text) if not is_url(text) else None
    if isinstance(found.value, int) or host is None or host.user or host.port:
        raise ConfigError(
            f"{found.where}: {name}: ansible_host {found.value!r} is not a host",
            hint="write a name or an address; user and port are ansible_user and ansible_port",
        )
    return host.host


def _port(name: str, found: Variable | None) -> int | None:
    if found is None:
        return None
    text = str(found.value)
    if not (re.fullmatch(r"\d{1,9}", text, re.ASCII) and 0 < int(text) < 65536):
        raise ConfigError(f"{found.where}: {name}: ansible_port {text!r} is not a port", hint="use 1 to 65535")
    return int(text)
