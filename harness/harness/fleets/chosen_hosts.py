"""The hosts of a fleet that a pattern means; other hosts are an error."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ..errors import ConfigError
from .host_names import HostName, fold_names, parse_host_name
from .hosts import Host
from .inventories.inventory import Inventory
from .patterns import HostPatterns

__all__ = ["choose_hosts"]


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
