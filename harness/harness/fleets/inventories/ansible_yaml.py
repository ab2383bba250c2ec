"""Ansible's inventories in YAML, and the YAML files of ``group_vars`` and ``host_vars``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from .entries import YAML_ENDINGS, add_hosts, ansible_variables, read_text
from .inventory import ALL, UNGROUPED, Inventory, Variables

__all__ = ["read_variable_files", "read_yaml"]

MAX_FILES = 10_000
"""The maximum number of files of ``group_vars`` and ``host_vars``."""


class _Encrypted:
    """A value that Ansible Vault encrypted."""

    def __repr__(self) -> str:
        return "(encrypted)"


def read_yaml(inventory: Inventory, text: str) -> None:
    """Add what the text of an inventory in YAML says.

    Raises:
        ConfigError: An entry is not understood.
    """
    content = _mapping(_load(text, inventory.source), f"{inventory.source}: the file")
    if "plugin" in content:
        raise ConfigError(
            f"{inventory.source} configures the inventory plugin {content['plugin']}, and harness runs none",
            hint=f"save its output: ansible-inventory -i {inventory.source} --list --yaml > hosts.yml",
        )
    try:
        for group, body in content.items():
            _read_group(inventory, group, body)
    except RecursionError:
        raise ConfigError(f"{inventory.source}: a group is in itself, or groups are nested too deeply") from None


def read_variable_files(inventory: Inventory, path: Path) -> None:
    """Add the variables of the files next to an inventory that Ansible reads, too.

    Args:
        inventory: The inventory.
        path: Its file.

    Raises:
        ConfigError: A file cannot be read.
    """
    directory = path.resolve().parent
    for folder, names, target in (
        ("group_vars", list(inventory.groups), inventory.group_files),
        ("host_vars", list(inventory.hosts), inventory.host_files),
    ):
        if not (directory / folder).is_dir():
            continue
        for name in names:
            variables: Variables = {}
            for file in _variable_files(directory / folder, name):
                content = _load(read_text(file, "the variables"), str(file))
                variables |= ansible_variables(dict(_mapping(content, f"{file}: the file")), str(file))
            if variables:
                target[name] = variables


def _variable_files(folder: Path, name: str) -> Iterator[Path]:
    """Yield the files of a group or host: the first of ``NAME``, ``NAME.yml`` ..., or all files of the directory."""
    if "/" in name:
        return
    for ending in ("", ".yml", ".yaml", ".json"):
        path = folder / f"{name}{ending}"
        if path.is_dir():
            yield from _files_below(path)
            return
        if path.exists():
            yield path
            return


def _files_below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name.endswith("~"):
            continue
        if path.is_dir() and not path.suffix:
            yield from _files_below(path)
        elif path.is_file() and path.suffix in ("", *YAML_ENDINGS):
            yield path


# -- groups


def _read_group(inventory: Inventory, group: object, body: object) -> str:
    source = inventory.source
    if not isinstance(group, str) or not group:
        raise ConfigError(f"{source}: the group {group!r} is not text", hint="write the name in quotes")
    where = f"{source}: group {group}"
    parts = _mapping(body, where)
    if unknown := [str(key) for key in parts if key not in ("hosts", "vars", "children")]:
        raise ConfigError(f"{where}: {unknown[0]!r} is not hosts, vars or children")
    inventory.groups.setdefault(group, {})
    for key, value in parts.items():  # in the order of the file: the last value of a variable wins
        if key == "vars":
            variables = ansible_variables(_variables(value, f"{where}: vars"), where)
            inventory.group_variables.setdefault(group, {}).update(variables)
        elif key == "hosts":
            _read_hosts(inventory, group, value, where)
        else:
            for child, inner in _entries(value, f"{where}: children"):
                if child == ALL or (child == UNGROUPED and group != ALL):
                    raise ConfigError(f"{where}: the group {child} cannot be in another group")
                inventory.children.setdefault(group, {})[_read_group(inventory, child, inner)] = None
    return group


def _read_hosts(inventory: Inventory, group: str, value: object, where: str) -> None:
    for name, values in _entries(value, f"{where}: hosts"):
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where}: the host {name!r} is not text", hint="write the name in quotes")
        entry = f"{where}, host {name}"
        add_hosts(inventory, name, group, ansible_variables(_variables(values, entry), entry), entry)


def _variables(value: object, where: str) -> dict[str, object]:
    found = dict(_mapping(value, where))
    if wrong := [name for name in found if not isinstance(name, str)]:
        raise ConfigError(f"{where}: the variable {wrong[0]!r} is not text", hint="write the name in quotes")
    return found


def _entries(value: object, where: str) -> Iterable[tuple[object, object]]:
    """Return the entries of a mapping; a single name is a mapping, too."""
    return [(value, None)] if isinstance(value, str) else _mapping(value, where).items()


def _mapping(value: object, where: str) -> Mapping[Any, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} is not a mapping", hint="write NAME: for each entry, without '-'")
    return value


# -- YAML


def _load(text: str, source: str) -> object:
    if text.startswith("$ANSIBLE_VAULT"):
        raise ConfigError(f"{source} is encrypted with Ansible Vault, and may hold addresses of hosts")
    try:
        import yaml
    except ImportError as error:
        from ...extras import install_extra

        raise ConfigError(f"{source}: reading YAML needs the extra fleet", hint=install_extra("fleet")) from error
    try:
        return yaml.load(text, _loader())  # noqa: S506  # a SafeLoader
    except RecursionError:
        raise ConfigError(f"{source}: invalid YAML: nested too deeply") from None
    except (yaml.YAMLError, ValueError, KeyError) as error:  # those of Python: a date 2024-13-01, !!bool x
        raise ConfigError(f"{source}: invalid YAML: {' '.join(str(error).split())}") from error


@cache
def _loader() -> Any:
    """Return a safe loader that refuses a key given twice, and knows Ansible's tags."""
    import yaml

    loader_class: Any = type("Loader", (yaml.SafeLoader,), {})

    def construct(loader: Any, node: Any) -> Iterator[dict[object, object]]:
        keys = set()
        for key, _ in node.value:
            text = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None
            if text is not None and text in keys:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            keys.add(text)
        mapping: dict[object, object] = {}
        yield mapping
        mapping.update(loader.construct_mapping(node))

    loader_class.add_constructor("tag:yaml.org,2002:map", construct)
    loader_class.add_constructor("!vault", lambda loader, node: _Encrypted())
    loader_class.add_constructor("!vault-encrypted", lambda loader, node: _Encrypted())
    loader_class.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))
    return loader_class
