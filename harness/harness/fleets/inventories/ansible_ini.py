"""Ansible's inventories in INI; a plain list of hosts is one without sections."""

from __future__ import annotations

import ast
import re
import shlex

from ...errors import ConfigError
from .entries import add_hosts, ansible_variables
from .inventory import ALL, UNGROUPED, Inventory

__all__ = ["read_ini"]

_SECTION = re.compile(r"\[(?P<name>[^:\]\s]+)(?::(?P<kind>\w+))?\]\s*(?:#.*)?")


def read_ini(inventory: Inventory, text: str) -> None:
    """Add what the text of an inventory in INI says.

    Raises:
        ConfigError: A line is not understood.
    """
    _IniReader(inventory).read(text)


class _IniReader:
    """Reads the lines of an inventory in INI."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.group, self.kind = UNGROUPED, "hosts"
        self.number = 0
        self.declared = {ALL, UNGROUPED}
        """The groups with a section of hosts or children."""
        self.references: list[tuple[str, str]] = []
        """The groups that other sections name, with an error for those that are not declared."""

    def read(self, text: str) -> None:
        """Add what the lines say.

        Raises:
            ConfigError: A line is not understood.
        """
        for self.number, whole in enumerate(text.splitlines(), 1):
            line = whole.strip()
            if not line or line[0] in "#;":
                continue
            if match := _SECTION.fullmatch(line):
                self._section(match["name"], match["kind"] or "hosts")
            elif line[0] == "[" and not re.match(r"\[[^\]]*:[^\]]*\]:\d", line):
                raise self._mistake(f"{line!r} is not a section", "write [GROUP], [GROUP:children] or [GROUP:vars]")
            elif self.kind == "vars":
                self._variable(line)
            elif self.kind == "children":
                self._child(line)
            else:
                self._host(line)
        for name, message in self.references:
            if name not in self.declared:
                raise ConfigError(message, hint=f"write a section [{name}], even if it is empty")

    @property
    def where(self) -> str:
        """The line, for messages."""
        return f"{self.inventory.source}, line {self.number}"

    def _mistake(self, what: str, hint: str = "") -> ConfigError:
        return ConfigError(f"{self.where}: {what}", hint=hint)

    def _section(self, group: str, kind: str) -> None:
        if kind not in {"hosts", "children", "vars"}:
            raise self._mistake(f"[{group}:{kind}] is not hosts, children or vars")
        self.group, self.kind = group, kind
        if kind == "vars":
            self.references.append((group, f"{self.where}: [{group}:vars] is about an undefined group"))
        else:
            self.declared.add(group)
            self.inventory.groups.setdefault(group, {})

    def _variable(self, line: str) -> None:
        name, separator, value = (part.strip() for part in line.partition("="))
        if not separator or not name or re.search(r"\s", name):
            raise self._mistake(f"{line!r} is not NAME=VALUE")
        found = ansible_variables({name: _ini_value(value)}, self.where)
        self.inventory.group_variables.setdefault(self.group, {}).update(found)

    def _child(self, line: str) -> None:
        name = line.partition("#")[0].strip()
        if not name or re.search(r"[:\]\s]", name):
            raise self._mistake(f"{line!r} is not the name of a group", "write one group on each line")
        if name in {ALL, UNGROUPED}:
            raise self._mistake(f"the group {name} cannot be in another group")
        self.references.append((name, f"{self.where}: [{self.group}:children] names an undefined group {name!r}"))
        self.inventory.children.setdefault(self.group, {})[name] = None

    def _host(self, line: str) -> None:
        try:
            name, *words = shlex.split(line, comments=True)
        except ValueError as error:
            raise self._mistake(f"{str(error).lower()} in {line!r}") from None
        pairs = {}
        for word in words:
            variable, separator, value = word.partition("=")
            if not separator or not variable:
                raise self._mistake(
                    f"{word!r} is not NAME=VALUE", "write one host on each line, and no spaces around '='"
                )
            pairs[variable] = _ini_value(value)
        add_hosts(self.inventory, name, self.group, ansible_variables(pairs, self.where), self.where)


def _ini_value(text: str) -> object:
    """Return a value as Ansible reads it in INI: a Python literal, else the text."""
    try:
        value = ast.literal_eval(text)
        if isinstance(value, int) and not isinstance(value, bool):
            return value if text.partition("#")[0].strip() == str(value) else text  # not of 1_000 or 0x16
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value
