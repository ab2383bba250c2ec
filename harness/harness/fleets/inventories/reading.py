"""Inventories: files that name hosts and groups, as a plain list or in Ansible's static INI and YAML formats.

What is not understood is an error with its line or entry, except for Ansible's variables that say nothing about the
connection. Programs that print an inventory are not run.
"""

from __future__ import annotations

from pathlib import Path

from ...errors import ConfigError
from .ansible_ini import read_ini
from .ansible_yaml import read_variable_files, read_yaml
from .entries import YAML_ENDINGS, read_text
from .inventory import Inventory

__all__ = ["read_inventory"]


def read_inventory(path: str | Path) -> Inventory:
    """Read an inventory file, and the files of ``group_vars`` and ``host_vars`` next to it.

    Args:
        path: The file; ``.yaml``, ``.yml`` and ``.json`` are read as YAML, others as INI. A plain list is INI without
            sections.

    Raises:
        ConfigError: The file cannot be read, or a line of it is not understood.
    """
    path = Path(path).expanduser()
    inventory = Inventory(str(path))
    text = read_text(path, "the inventory")
    if text.startswith("#!"):
        raise ConfigError(
            f"{path} is a program, and harness runs no inventory programs",
            hint="save its output: ansible-inventory -i PROGRAM --list --yaml > hosts.yml",
        )
    if path.suffix == ".toml":
        raise ConfigError(f"{path}: an inventory in TOML is not supported", hint="write it as INI or YAML")
    if path.suffix in YAML_ENDINGS:
        read_yaml(inventory, text)
    else:
        read_ini(inventory, text)
    inventory.check()
    read_variable_files(inventory, path)
    return inventory
