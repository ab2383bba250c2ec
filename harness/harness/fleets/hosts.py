"""The hosts that patterns and inventories mean, with the target of each."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import takewhile
from pathlib import Path

from ..errors import ConfigError, TargetNotFound
from ..system.account import expand_home, home_directory
from ..target import Hop, Target
from .host_names import HostName, fold_names, is_url, parse_host_name
from .inventories.connection_variables import read_connection
from .inventories.inventory import MAX_HOSTS, Inventory
from .patterns import HostPatterns

__all__ = ["Host", "NamedTarget", "address_of", "choose_hosts", "names_by_address", "resolve_hosts", "ssh_config_hosts"]

MAX_INCLUDES = 100
SSH_PORT = 22


@dataclass(frozen=True, slots=True)
class Host:
    """A host of a fleet: the name that its results carry, and its target."""

    name: str
    target: Target


@dataclass(frozen=True, slots=True)
class NamedTarget:
    """A table ``[targets.NAME]`` of the settings."""

    url: str
    settings: tuple[str, ...] = ()
    """The names of its settings that say more than where it is: many hosts share one set of settings."""


def resolve_hosts(
    patterns: str | Sequence[str],
    inventory: Inventory | None = None,
    *,
    ssh_config: str | None = None,
    targets: Mapping[str, NamedTarget] | None = None,
    ignore_become: bool = False,
) -> tuple[Host, ...]:
    """Return the hosts that patterns mean, each once, in the order in which they are named.

    Args:
        patterns: ``web[1-20],db1,!web7``: names with ranges, joined by ``,`` (and), ``!`` (without), ``&`` (only those
            also in); ``@group``; wildcards; target URLs. Several are one list: ``&`` and ``!`` apply to all of them.
            Without a name, all hosts of the inventory.
        inventory: The hosts, groups and addresses of a file.
        ssh_config: The ssh configuration whose ``Host`` entries wildcards match; None is the user's.
        targets: Names of targets; those of the inventory come first.
        ignore_become: Accept hosts with ``ansible_become``: commands run as the account of the login, or as the user
            that they are given.

    Raises:
        ConfigError: A pattern is wrong, matches no host or excludes none; or the inventory says something about a host
            that harness does not follow.
    """
    given = [patterns] if isinstance(patterns, str) else list(patterns)
    named = targets or {}
    target = partial(_target, inventory=inventory, named=named)
    names = HostPatterns(
        inventory,
        tuple(named),
        partial(ssh_config_hosts, ssh_config),
        lambda name: target(name, ignore_become=True).last.port,
    ).choose(given)
    if len(names) > MAX_HOSTS:
        raise ConfigError(f"the patterns mean {len(names):,} hosts; a fleet has at most {MAX_HOSTS:,}")
    return tuple(Host(name.text, target(name, ignore_become=ignore_become)) for name in names)


def names_by_address(inventory: Inventory) -> dict[tuple[str, int], list[str]]:
    """Return the names of the hosts of an inventory by :func:`address_of` where SSH connects.

    Hosts whose variables cannot be followed are left out: no fleet has them.
    """
    found: dict[tuple[str, int], list[str]] = {}
    for entry in inventory.hosts:
        try:
            hop = _inventory_target(parse_host_name(entry), entry, inventory, ignore_become=True).last
        except ConfigError:
            continue
        if hop.scheme == "ssh":
            found.setdefault(address_of(hop), []).append(entry)
    return found


def address_of(hop: Hop) -> tuple[str, int]:
    """Return the host and the port of an SSH hop; without a port, that of SSH."""
    return hop.host.lower(), hop.port or SSH_PORT


def ssh_config_hosts(path: str | None = None) -> list[str]:
    """Return the names of the ``Host`` entries of an ssh configuration and its included files, without patterns.

    Args:
        path: The file; None is ``~/.ssh/config``.
    """
    found: dict[str, None] = {}
    waiting = [expand_home(path) if path else home_directory() / ".ssh/config"]
    for _ in range(MAX_INCLUDES):
        if not waiting:
            break
        _read_entries(waiting.pop(0), found, waiting)
    return list(found)


def _read_entries(file: Path, found: dict[str, None], waiting: list[Path]) -> None:
    try:
        if not file.is_file():  # a named pipe would block
            return
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return  # ssh itself ignores a missing file
    for line in lines:
        keyword, *values = re.split(r"[\s=]+", line.strip().replace('"', ""))
        values = list(takewhile(lambda value: not value.startswith("#"), values))
        if keyword.lower() == "host":
            found.update(dict.fromkeys(value for value in values if value and not set(value) & set("*?!")))
        elif keyword.lower() == "include":
            for value in values:
                waiting += map(Path, sorted(glob.glob(str(home_directory() / ".ssh" / expand_home(value)))))


# -- the target of a name


def _target(
    name: HostName, *, inventory: Inventory | None, named: Mapping[str, NamedTarget], ignore_become: bool
) -> Target:
    """Return the target of a host: as the inventory or the settings know it, else a URL's own or SSH to the name.

    Raises:
        ConfigError: A variable of the inventory is wrong or cannot be followed, or a named target has settings.
    """
    exact = is_url(name.text)
    if inventory is not None and (not exact or name.text in inventory.hosts):
        entry = inventory.find(name)
        if entry is not None:
            return _inventory_target(name, entry, inventory, ignore_become=ignore_become)
    if not exact and name.host in named:
        return _named_target(name, named[name.host])
    return name.target


def _inventory_target(name: HostName, entry: str, inventory: Inventory, *, ignore_become: bool) -> Target:
    known = name if entry == name.text else parse_host_name(entry)
    if not known.is_ssh:
        return known.target
    variables = inventory.variables(entry)
    found = read_connection(entry, variables, ignore_become=ignore_become)
    base = Target((Hop("local") if found.local else Hop("ssh", found.host or known.host, found.user, found.port),))
    if name.text != entry:
        base = _with_user_and_port(name, base)
    try:
        checked = Target.parse(str(base))
    except TargetNotFound as error:
        raise ConfigError(f"{inventory.source}: {entry}: {error.message}", hint=error.hint) from error
    if checked != base:
        raise ConfigError(f"{inventory.source}: {entry}: {found.user!r} is not a user")
    return base


def _named_target(name: HostName, table: NamedTarget) -> Target:
    if table.settings:
        raise ConfigError(
            f"{name.host} is a target with settings of its own ({', '.join(table.settings)}), and many hosts share"
            " one set of settings",
            hint=f"run it with --target {name.host}, or write ssh://{name.text} for the host of this name",
        )
    return _with_user_and_port(name, Target.parse(table.url))


def _with_user_and_port(name: HostName, target: Target) -> Target:
    """Return a target with the user and the port of a name, as far as the name gives them.

    Raises:
        ConfigError: The target is not a host behind SSH.
    """
    if name.user is None and name.port is None:
        return target
    if target.last.scheme != "ssh":
        raise ConfigError(f"{name.text}: {target} takes no user and no port")
    hop = replace(target.last, user=name.user or target.last.user, port=name.port or target.last.port)
    return Target((*target.hops[:-1], hop))


# -- The hosts of a fleet that a pattern means.


def choose_hosts(pattern: str, hosts: Sequence[Host], inventory: Inventory | None = None) -> tuple[str, ...]:
    """Return the names of the hosts that a pattern means, in the order in which it names them.

    Args:
        pattern: ``web[1-3],!web2``, ``@db``, ``web*``; ``*`` is all of them.
        hosts: The hosts of the fleet.
        inventory: The groups of a file.

    Raises:
        ConfigError: The pattern is wrong, or names no host of the fleet.
    """
    patterns = _FleetPatterns(hosts, inventory)
    try:
        return tuple(name.text for name in patterns.choose([pattern]))
    except ConfigError as error:
        raise ConfigError(error.message, hint=f"the hosts are {fold_names(host.name for host in hosts)}") from error


class _FleetPatterns(HostPatterns):
    """Patterns whose names, groups and wildcards only mean hosts of a fleet."""

    def __init__(self, hosts: Sequence[Host], inventory: Inventory | None) -> None:
        ports = {host.name: host.target.last.port for host in hosts}
        super().__init__(inventory, (), tuple, lambda name: ports.get(name.text))
        self._hosts = [parse_host_name(host.name) for host in hosts]

    def choose(self, patterns: Sequence[str]) -> list[HostName]:
        known = {name.text for name in self._hosts}
        found = super().choose(patterns)
        for name in found:
            if name.text not in known:  # a user or a port was added to the name of a host
                raise ConfigError(f"{name.text!r} is not a host of this fleet")
        return found

    def _single(self, text: str) -> HostName:
        wanted = parse_host_name(text)
        found = [name for name in self._hosts if name.text == wanted.text]
        found = found or [name for name in self._hosts if name.host == text]
        if len(found) != 1:
            problem = "means several hosts" if found else "is not a host"
            raise ConfigError(f"{wanted.text!r} {problem} of this fleet")
        return found[0]

    def _group(self, text: str) -> list[HostName]:
        members = {name.host for name in super()._group(text)}
        return self._some([name for name in self._hosts if name.host in members], text)

    def _wildcard(self, text: str) -> list[HostName]:
        found = [name for name in self._hosts if fnmatchcase(name.text, text) or fnmatchcase(name.host, text)]
        return self._some(found, text)

    def _some(self, found: list[HostName], text: str) -> list[HostName]:
        if not found:
            raise ConfigError(f"no host of this fleet matches {text!r}")
        return found
