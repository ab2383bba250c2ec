"""The hosts, groups and variables of an inventory, with Ansible's order of precedence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ...errors import ConfigError
from ..host_names import HostName, parse_host_name

__all__ = ["ALL", "MAX_HOSTS", "UNGROUPED", "Inventory", "Variable"]

MAX_HOSTS = 100_000
"""The maximum number of hosts of a fleet and of an inventory: a mistyped range must not fill the memory."""
ALL, UNGROUPED = "all", "ungrouped"
"""Ansible's group of all hosts, and its group of the hosts without another group."""
DEFAULT_PRIORITY = 1
"""Ansible's ``ansible_group_priority`` of a group that has none."""


class Variable(NamedTuple):
    """The value of a variable, and where it was set: ``hosts.ini, line 3``."""

    value: object
    where: str


Variables = dict[str, Variable]


@dataclass
class Inventory:
    """Hosts, groups of hosts and Ansible's variables about connections, in the order of the file."""

    source: str
    hosts: dict[str, Variables] = field(default_factory=dict)
    """The hosts with their own variables."""
    groups: dict[str, dict[str, None]] = field(default_factory=lambda: {ALL: {}, UNGROUPED: {}})
    """The groups with the hosts that are directly in them."""
    children: dict[str, dict[str, None]] = field(default_factory=dict)
    """The groups that are directly in a group."""
    group_variables: dict[str, Variables] = field(default_factory=dict)
    group_files: dict[str, Variables] = field(default_factory=dict)
    """The variables of the files in ``group_vars``, which override all of the inventory's groups."""
    host_files: dict[str, Variables] = field(default_factory=dict)
    """The variables of the files in ``host_vars``."""

    def members(self, group: str) -> list[str]:
        """Return the hosts of a group and of the groups below it, each once."""
        if group == ALL:
            return list(self.hosts)
        if group == UNGROUPED:
            return [host for host in self.hosts if UNGROUPED in self._groups_of(host)]
        found: dict[str, None] = {}
        for name in self._below(group):
            found.update(self.groups.get(name, {}))
        return list(found)

    def names_of_groups(self) -> list[str]:
        """Return the names of the groups of the file."""
        return [name for name in self.groups if name not in {ALL, UNGROUPED}]

    def variables(self, host: str) -> Variables:
        """Return the variables that Ansible uses for a host of the inventory.

        A host's own variable overrides those of its groups. Of the groups, a deeper one overrides a higher one, then
        the higher ``ansible_group_priority`` and then the name that comes later in the alphabet wins.
        """
        merged: Variables = {}
        groups = self._groups_of(host)
        for layer in (self.group_variables, self.group_files):
            for group in (ALL, *groups):
                merged.update(layer.get(group, {}))
        return merged | self.hosts[host] | self.host_files.get(host, {})

    def find(self, name: HostName) -> str | None:
        """Return the inventory's own name of a host, whatever user and port it is given with.

        Raises:
            ConfigError: Several of its hosts have this name.
        """
        if name.text in self.hosts:
            return name.text
        found = self._by_host.get(name.host, [])
        if len(found) > 1:
            raise ConfigError(f"{name.text!r} is ambiguous: {self.source} has {', '.join(found)}")
        return found[0] if found else None

    def check(self) -> None:
        """Check what can only be seen in the whole file.

        Raises:
            ConfigError: A group is in itself, its priority is not a number, or a name is both a host's and a group's.
        """
        for name in self.hosts.keys() & self.groups.keys():
            if own := next(iter(self.hosts[name].values()), None):
                raise ConfigError(
                    f"{own.where}: {name!r} is also the name of a group, and Ansible gives the variables to the group",
                    hint="rename the group or the host",
                )
        assert self._order is not None

    # -- precedence

    def _groups_of(self, host: str) -> list[str]:
        """Return the groups of a host except ``all``, in the order in which their variables apply."""
        found: set[str] = set()
        waiting = list(self._direct_groups.get(host, ()))
        while waiting:
            group = waiting.pop()
            if group not in found:
                found.add(group)
                waiting += self._parents.get(group, ())
        found.discard(ALL)
        others = found - {UNGROUPED}
        return sorted(others, key=self._order.__getitem__) if others else [UNGROUPED]

    @cached_property
    def _by_host(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self.hosts:
            found.setdefault(parse_host_name(name).host, []).append(name)
        return found

    @cached_property
    def _direct_groups(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for group, hosts in self.groups.items():
            for host in hosts:
                found.setdefault(host, []).append(group)
        return found

    @cached_property
    def _parents(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for group, children in self.children.items():
            for child in children:
                found.setdefault(child, []).append(group)
        return found

    @cached_property
    def _order(self) -> Mapping[str, tuple[int, int, str]]:
        """The sort key of each group: its depth, its priority, its name."""
        depths = dict(self._depths())
        if loop := [name for name in self.groups if name not in depths]:
            raise ConfigError(f"{self.source}: a group is in itself: {', '.join(loop)}")
        return {name: (depth, self._priority(name), name) for name, depth in depths.items()}

    def _depths(self) -> Iterator[tuple[str, int]]:
        """Yield each group that is not in itself with the length of the longest path to it from ``all``."""
        missing = {name: len(self._parents.get(name, ())) for name in self.groups}
        depths = {name: int(name != ALL) for name, count in missing.items() if not count}
        waiting = list(depths)
        while waiting:
            name = waiting.pop()
            yield name, depths[name]
            for child in self.children.get(name, ()):
                depths[child] = max(depths.get(child, 0), depths[name] + 1)
                missing[child] -= 1
                if not missing[child]:
                    waiting.append(child)

    def _priority(self, group: str) -> int:
        found = self.group_variables.get(group, {}).get("ansible_group_priority")
        if found is None:
            return DEFAULT_PRIORITY
        try:
            return int(str(found.value))
        except ValueError:
            raise ConfigError(f"{found.where}: ansible_group_priority {found.value!r} is not a number") from None

    def _below(self, group: str) -> list[str]:
        """Return a group and all groups below it."""
        found = {group: None}
        waiting = [group]
        while waiting:
            for child in self.children.get(waiting.pop(0), ()):
                if child not in found:
                    found[child] = None
                    waiting.append(child)
        return list(found)
