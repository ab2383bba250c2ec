"""Inventories: files that name hosts and groups, as a plain list or in Ansible's static INI and YAML formats.

Of Ansible's format this reads hosts with ranges, groups, ``:children`` and the variables ``ansible_host``,
``ansible_user`` and ``ansible_port`` of hosts and groups; other variables are ignored. Programs that print an inventory
are not run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError

__all__ = ["MAX_HOSTS", "Inventory", "read_inventory"]

MAX_HOSTS = 100_000
"""The maximum number of hosts of a fleet and of an inventory: a mistyped range must not fill the memory."""
ADDRESS_VARIABLES = ("ansible_host", "ansible_user", "ansible_port")
"""The variables that say how to reach a host."""
_RANGE = re.compile(r"\[(\w+):(\w+)(?::(\d+))?\]")
_SECTION = re.compile(r"\[(?P<name>[^\]:]+)(?::(?P<kind>\w+))?\]")


@dataclass
class Inventory:
    """Hosts with their address variables, and groups of hosts, in the order of the file."""

    source: str
    hosts: dict[str, dict[str, str]] = field(default_factory=dict)
    groups: dict[str, dict[str, None]] = field(default_factory=dict)
    children: dict[str, list[str]] = field(default_factory=dict)
    group_variables: dict[str, dict[str, str]] = field(default_factory=dict)

    def members(self, group: str) -> list[str]:
        """Return the hosts of a group and of the groups below it, each once."""
        found: dict[str, None] = {}
        for name in self._below(group):
            found.update(self.groups.get(name, {}))
        return list(found)

    def addresses(self) -> dict[str, dict[str, str]]:
        """Return each host's address variables: its own, else those of its group with the fewest groups below it."""
        merged: dict[str, dict[str, str]] = {host: {} for host in self.hosts}
        widest_first = sorted(self.group_variables, key=lambda name: len(self._below(name)), reverse=True)
        for group in widest_first:
            for host in self.members(group):
                merged[host].update(self.group_variables[group])
        return {host: merged[host] | own for host, own in self.hosts.items()}

    def names_of_groups(self) -> list[str]:
        """Return the names of all groups."""
        return list(dict.fromkeys([*self.groups, *self.children]))

    def _below(self, group: str) -> list[str]:
        """Return a group and all groups below it; a group may not be below itself."""
        if group == "all":
            return ["all", *self.names_of_groups()]
        found, waiting = [], [group]
        while waiting:
            name = waiting.pop(0)
            if name not in found:
                found.append(name)
                waiting += self.children.get(name, ())
        return found

    def add(self, host: str, group: str, variables: Mapping[str, str]) -> None:
        """Add a host to a group, or add to its variables."""
        self.hosts.setdefault(host, {}).update(variables)
        self.groups.setdefault(group, {})[host] = None


def read_inventory(path: str | Path) -> Inventory:
    """Read an inventory file.

    Args:
        path: The file; ``.yaml`` and ``.yml`` are read as YAML, others as INI. A plain list is INI without sections.

    Raises:
        ConfigError: The file cannot be read, or a line of it is not understood.
    """
    path = Path(path).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
        raise ConfigError(f"cannot read the inventory {path}: {why.lower()}") from error
    inventory = Inventory(str(path))
    if path.suffix in {".yaml", ".yml"}:
        _read_yaml(inventory, text)
    else:
        _read_ini(inventory, text)
    return inventory


# -- INI


def _read_ini(inventory: Inventory, text: str) -> None:
    group, kind = "ungrouped", "hosts"
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line[0] in "#;":
            continue
        if match := _SECTION.fullmatch(line.partition(" #")[0].strip()):
            group, kind = match["name"], match["kind"] or "hosts"
            if kind not in {"hosts", "children", "vars"}:
                raise _mistake(inventory, number, f"[{group}:{kind}] is not hosts, children or vars")
            inventory.groups.setdefault(group, {})
            continue
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise _mistake(inventory, number, str(error).lower()) from None
        _ini_line(inventory, number, group, kind, line, words)


def _ini_line(inventory: Inventory, number: int, group: str, kind: str, line: str, words: list[str]) -> None:
    if kind == "children":
        inventory.children.setdefault(group, []).append(words[0])
    elif kind == "vars":
        name, separator, value = line.partition("=")
        if not separator:
            raise _mistake(inventory, number, f"{line!r} is not NAME=VALUE")
        inventory.group_variables.setdefault(group, {}).update(_address([(name.strip(), value.strip().strip("'\""))]))
    else:
        variables = _address((name, value) for name, _, value in (word.partition("=") for word in words[1:]))
        for host in _expand(inventory, words[0]):
            inventory.add(host, group, variables)


def _mistake(inventory: Inventory, number: int, what: str) -> ConfigError:
    return ConfigError(f"{inventory.source}, line {number}: {what}")


def _address(pairs: Iterable[tuple[str, Any]]) -> dict[str, str]:
    return {name: str(value) for name, value in pairs if name in ADDRESS_VARIABLES}


def _expand(inventory: Inventory, name: str) -> Iterator[str]:
    """Return the names of Ansible's ranges: ``web[01:20]``, ``rack[a:d]``, ``db[1:9:2]``.

    Raises:
        ConfigError: A range is empty, or there are too many hosts.
    """
    match = _RANGE.search(name)
    if match is None:
        if len(inventory.hosts) >= MAX_HOSTS:
            raise ConfigError(f"{inventory.source}: more than {MAX_HOSTS:,} hosts")
        yield name
        return
    first, last, step = match[1], match[2], int(match[3] or 1)
    if first.isdecimal() and last.isdecimal():
        values = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1, step or 1))
        valid = int(first) <= int(last)
    else:
        values = (chr(code) for code in range(ord(first[0]), ord(last[0]) + 1, step or 1))
        valid = len(first) == len(last) == 1 and first.isalpha() and last.isalpha() and first <= last
    if not valid or step < 1:
        raise ConfigError(f"{inventory.source}: {match[0]} in {name!r} is not a range")
    for value in values:
        yield from _expand(inventory, name[: match.start()] + value + name[match.end() :])


# -- YAML


def _read_yaml(inventory: Inventory, text: str) -> None:
    try:
        import yaml
    except ImportError as error:
        from ..extras import install_extra

        raise ConfigError(
            f"{inventory.source}: reading YAML needs the extra fleet", hint=install_extra("fleet")
        ) from error
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{inventory.source}: invalid YAML: {' '.join(str(error).split())}") from error
    for group, body in _mapping(inventory, content, "the file").items():
        _yaml_group(inventory, str(group), body)


def _yaml_group(inventory: Inventory, group: str, body: object) -> None:
    parts = _mapping(inventory, body, group)
    inventory.groups.setdefault(group, {})
    inventory.group_variables.setdefault(group, {}).update(
        _address(_mapping(inventory, parts.get("vars"), f"{group}: vars").items())
    )
    for name, variables in _mapping(inventory, parts.get("hosts"), f"{group}: hosts").items():
        own = _address(_mapping(inventory, variables, f"{group}: {name}").items())
        for host in _expand(inventory, str(name)):
            inventory.add(host, group, own)
    for child, inner in _mapping(inventory, parts.get("children"), f"{group}: children").items():
        if group != "all":
            inventory.children.setdefault(group, []).append(str(child))
        _yaml_group(inventory, str(child), inner)


def _mapping(inventory: Inventory, value: object, where: str) -> Mapping[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{inventory.source}: {where} is not a mapping")
    return value
