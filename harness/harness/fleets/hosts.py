"""The hosts that patterns mean: ``web[1-20],db1,!web7``, ``@web``, ``web*``, target URLs.

ClusterShell's ``NodeSet`` expands, subtracts and folds names, and resolves groups: those of the inventory, else those
of ClusterShell's own configuration. Wildcards match the hosts of the inventory, else the ``Host`` entries of the ssh
configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..account import home_directory
from ..errors import ConfigError, TargetNotFound
from ..target import Hop, Target
from .inventory import MAX_HOSTS, Inventory

__all__ = ["Host", "fold_names", "resolve_hosts", "ssh_config_hosts"]

MAX_INCLUDES = 100
_SEPARATOR = re.compile(r"[,!&^](?![^\[]*\])")
"""An operator of ``NodeSet`` outside brackets."""
_NUMBERS = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Host:
    """A host of a fleet: the name that its results carry, and its target."""

    name: str
    target: Target


def resolve_hosts(
    patterns: str | Sequence[str], inventory: Inventory | None = None, *, ssh_config: str | None = None
) -> tuple[Host, ...]:
    """Return the hosts that patterns mean, each once, in the order of the names.

    Args:
        patterns: ``web[1-20],db1,!web7``: names with ranges, joined by ``,`` (and), ``!`` (without), ``&`` (only those
            also in); ``@group``; wildcards; target URLs. Without a pattern, all hosts of the inventory.
        inventory: The hosts, groups and addresses of a file.
        ssh_config: The ssh configuration whose ``Host`` entries wildcards match; None is the user's.

    Raises:
        ConfigError: A pattern is wrong or matches no host, or ClusterShell is not installed.
    """
    given = [patterns] if isinstance(patterns, str) else list(patterns)
    if not given and inventory is not None:
        given = ["*"]
    names: dict[str, None] = {}
    for pattern in given:
        names.update(dict.fromkeys(_names(pattern.strip(), inventory, ssh_config)))
    if not names:
        raise ConfigError("no hosts were given", hint="for example --hosts 'web[1-20],db1' or --inventory FILE")
    if len(names) > MAX_HOSTS:
        raise ConfigError(f"the patterns mean {len(names):,} hosts; a fleet has at most {MAX_HOSTS:,}")
    addresses = inventory.addresses() if inventory is not None else {}
    return tuple(Host(name, _target(name, addresses.get(name, {}))) for name in names)


def fold_names(names: Iterable[str]) -> str:
    """Return names in short: ``web[1-3,5],db1``."""
    known = list(names)
    try:
        node_set, no_groups, mistakes = _node_set(), _no_groups(), _mistakes()
    except ImportError:  # without the extra, several --ssh work
        return ",".join(known)
    try:
        return str(node_set(",".join(known), resolver=no_groups))
    except mistakes:  # names that are no patterns, such as IPv6 addresses
        return ",".join(known)


def ssh_config_hosts(path: str | None = None) -> list[str]:
    """Return the names of the ``Host`` entries of an ssh configuration and its included files, without patterns.

    Args:
        path: The file; None is ``~/.ssh/config``.
    """
    found: dict[str, None] = {}
    waiting = [Path(path).expanduser() if path else home_directory() / ".ssh/config"]
    for _ in range(MAX_INCLUDES):
        if not waiting:
            break
        _read_entries(waiting.pop(0), found, waiting)
    return list(found)


def _read_entries(file: Path, found: dict[str, None], waiting: list[Path]) -> None:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return  # ssh itself ignores a missing file
    for line in lines:
        keyword, *values = re.split(r"[\s=]+", line.strip().replace('"', ""))
        if keyword.lower() == "host":
            found.update(dict.fromkeys(value for value in values if value and not set(value) & set("*?!")))
        elif keyword.lower() == "include":
            for value in values:
                base = Path(value).expanduser()
                base = base if base.is_absolute() else home_directory() / ".ssh" / base
                waiting += sorted(base.parent.glob(base.name)) if base.name else []


# -- one pattern


def _names(pattern: str, inventory: Inventory | None, ssh_config: str | None) -> list[str]:
    if not pattern:  # an unset shell variable must not run the command anywhere
        raise ConfigError("the pattern of hosts is empty")
    if _is_url(pattern) and not _SEPARATOR.search(pattern) and re.search(r"\[[^\]]*:", pattern):
        return [pattern]  # one URL with an IPv6 address, whose brackets are no range
    resolver = _resolver(pattern, inventory, ssh_config)
    _check_size(pattern)
    for element in _SEPARATOR.split(pattern):
        if element and not len(_parse(element, pattern, resolver)):
            raise ConfigError(f"no host matches {element!r}", hint=_known(inventory, element))
    chosen = list(_parse(re.sub(r",\s*([!&^])", r"\1", pattern), pattern, resolver))
    if not chosen:
        raise ConfigError(f"{pattern!r} leaves no host")
    return [str(name) for name in chosen]


def _check_size(pattern: str) -> None:
    """Refuse a range of more than :data:`MAX_HOSTS`, before it is expanded.

    Raises:
        ConfigError: The ranges of one element multiply to more.
    """
    for element in _SEPARATOR.split(pattern):
        size = 1
        for part in re.findall(r"\[([^\]]*)\]", element):
            size *= sum(
                max(int(match[2]) - int(match[1]) + 1, 1) if (match := _NUMBERS.match(item)) else 1
                for item in part.split(",")
            )
        if size > MAX_HOSTS:
            raise ConfigError(f"{element!r} means {size:,} hosts; a fleet has at most {MAX_HOSTS:,}")


def _parse(text: str, pattern: str, resolver: Any) -> Any:
    try:
        return _node_set()(text.strip(), resolver=resolver)
    except _mistakes() as error:
        raise ConfigError(f"{pattern!r} is not a pattern of hosts: {error}") from error


def _known(inventory: Inventory | None, element: str) -> str:
    if inventory is None:
        return "'harness hosts' lists the hosts of the ssh configuration" if "@" not in element else ""
    names = [f"@{name}" for name in inventory.names_of_groups()]
    return f"{inventory.source} has {len(inventory.hosts)} hosts" + (f" and {', '.join(names)}" if names else "")


def _is_url(name: str) -> bool:
    return "://" in name or name == "local:"


def _target(name: str, known: Mapping[str, str]) -> Target:
    """Return the target of a host: a URL's own, else SSH to it, with the addresses of the inventory.

    Raises:
        ConfigError: The name is not a host, or a variable of the inventory is wrong.
    """
    try:
        if _is_url(name):
            return Target.parse(name)
        target = Target.parse(f"ssh://{name}")
        if not known or target.base is not None:
            return target
        hop = target.last
        port = known.get("ansible_port")
        if port and not (port.isdecimal() and 0 < int(port) < 65536):
            raise ConfigError(f"{name}: ansible_port {port!r} is not a port")
        found = Hop(
            "ssh",
            known.get("ansible_host", hop.host),
            known.get("ansible_user", hop.user),
            int(port) if port else hop.port,
        )
        return Target.parse(str(found))  # checks the inventory's values, too
    except TargetNotFound as error:
        raise ConfigError(error.message, hint=error.hint) from error


# -- ClusterShell


def _resolver(pattern: str, inventory: Inventory | None, ssh_config: str | None) -> Any:
    from ..extras import install_extra

    try:
        from ClusterShell.NodeUtils import GroupResolver, GroupSource
    except ImportError as error:
        raise ConfigError("patterns of hosts need the extra fleet", hint=install_extra("fleet")) from error
    if inventory is not None:
        groups = {name: ",".join(inventory.members(name)) for name in ("all", *inventory.names_of_groups())}
        return GroupResolver(GroupSource("inventory", groups, ",".join(inventory.hosts)))
    if re.search(r"[*?]", pattern):
        return GroupResolver(GroupSource("ssh configuration", {}, ",".join(ssh_config_hosts(ssh_config))))
    if re.search(r"(?:^|[,!&^])@", pattern):
        from ClusterShell.NodeSet import std_group_resolver

        return std_group_resolver()
    return _no_groups()


def _no_groups() -> Any:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP

    return RESOLVER_NOGROUP


def _node_set() -> Any:
    from ClusterShell.NodeSet import NodeSet

    return NodeSet


def _mistakes() -> tuple[type[Exception], ...]:
    """The exceptions of ClusterShell about a pattern or about its group sources."""
    from ClusterShell.NodeSet import NodeSetException
    from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError

    return (NodeSetException, GroupResolverError, GroupSourceError)
