"""The entries that all formats of inventories share: names of hosts with ranges and ports, and variables."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...errors import ConfigError
from ..host_names import is_ipv6, is_url, parse_host_name
from .inventory import MAX_HOSTS, Inventory, Variable, Variables

__all__ = ["YAML_ENDINGS", "add_hosts", "ansible_variables", "read_text"]

YAML_ENDINGS = (".yml", ".yaml", ".json")
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_BRACKETED = re.compile(r"\[(?P<host>[^\]]+)\]:(?P<port>\d+)")
_WITH_PORT = re.compile(r"(?P<host>(?:[^:\[\]]|\[[^\]]*\])*):(?P<port>\d+)")


def read_text(path: Path, what: str) -> str:
    """Return the text of a file.

    Raises:
        ConfigError: It cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
        raise ConfigError(f"cannot read {what} {path}: {why.lower()}") from error


def ansible_variables(pairs: Mapping[str, object], where: str) -> Variables:
    """Return Ansible's own variables of those that were given, with the place where they were set."""
    return {name: Variable(value, where) for name, value in pairs.items() if name.startswith("ansible_")}


def add_hosts(inventory: Inventory, pattern: str, group: str, variables: Variables, where: str) -> None:
    """Add the hosts of an inventory's name with ranges to a group, or add to their variables.

    Args:
        inventory: What to add to.
        pattern: ``web[01:20]``, ``web1:2222``, ``root@web1``, ``docker://app``.
        group: The group.
        variables: The variables of each of these hosts.
        where: The line or entry, for messages.

    Raises:
        ConfigError: It is not a name, a range is wrong, or there are too many hosts.
    """
    body, port = _split_port(pattern)
    for name in _expand(body, where) if not is_ipv6(body) and not is_url(body) else (body,):
        own = _named_variables(name, port, variables, where) | variables
        if port and name in inventory.hosts and "ansible_port" not in variables:
            known = inventory.hosts[name].get("ansible_port")
            if known is None or str(known.value) != port:
                raise ConfigError(
                    f"{where}: {name!r} is already known with {'no' if known is None else 'another'} port",
                    hint="give two services of one machine two names, each with ansible_host and ansible_port",
                )
        inventory.hosts.setdefault(name, {}).update(own)
        inventory.groups.setdefault(group, {})[name] = None
        if len(inventory.hosts) > MAX_HOSTS:
            raise ConfigError(f"{where}: more than {MAX_HOSTS:,} hosts")


def _split_port(pattern: str) -> tuple[str, str | None]:
    """Split the port off a name, as Ansible does; that of ``user@name:port`` and of a URL stays."""
    match = _BRACKETED.fullmatch(pattern) or _WITH_PORT.fullmatch(pattern)
    if match is None or is_url(pattern) or "@" in pattern:
        return pattern, None
    return match["host"], match["port"]


def _named_variables(name: str, port: str | None, variables: Variables, where: str) -> Variables:
    """Return the variables that a name itself gives: those of ``root@web1``, ``web1:2222`` and ``ssh://root@web1``.

    Raises:
        ConfigError: It is not a name, or it contradicts the variables.
    """
    try:
        parsed = parse_host_name(name)
    except ConfigError as error:
        hint = _name_hint(name)
        what = f"{name!r} is not a host name" if hint else error.message
        raise ConfigError(f"{where}: {what}", hint=hint or error.hint) from None
    if not parsed.is_ssh:
        if variables:
            raise ConfigError(
                f"{where}: {name} is a complete target, and {', '.join(variables)} would have no effect",
                hint="remove the variables",
            )
        return {}
    found: Variables = {}
    for variable, value in (("ansible_user", parsed.user), ("ansible_port", port or parsed.port)):
        if value is not None:
            found[variable] = Variable(str(value), where)
            given = variables.get(variable, found[variable]).value
            if variable == "ansible_user" and str(given) != str(value):
                raise ConfigError(f"{where}: {name!r} has another user in {variable}", hint="keep one of them")
    return found


def _name_hint(name: str) -> str:
    if "," in name:
        return "write one host on each line, or a range: web[01:03]"
    if name == "---" or name.endswith(":"):
        return "an inventory in YAML needs a name that ends with .yml"
    return ""


def _expand(name: str, where: str) -> Iterator[str]:
    """Return the names of Ansible's ranges: ``web[01:20]``, ``rack[a:d]``, ``db[1:9:2]``.

    Raises:
        ConfigError: A range is wrong.
    """
    match = _RANGE.search(name)
    if match is None:
        yield name
        return
    for value in _range_values(match[1], f"{where}: {match[0]} in {name!r} is not a range"):
        yield from _expand(name[: match.start()] + value + name[match.end() :], where)


def _range_values(text: str, wrong: str) -> Iterator[str]:
    first, _, rest = text.partition(":")
    last, colon, step = rest.partition(":")
    letters = string.ascii_letters
    stride = int(step) if _NUMBER.fullmatch(step) else 0 if colon else 1
    first = first or "0"
    padded = len(first) > 1 and first.startswith("0")
    if _NUMBER.fullmatch(first) and _NUMBER.fullmatch(last):
        valid = int(first) <= int(last) and (not padded or len(first) == len(last))
        width = len(first) if padded else 0
        values = (str(number).zfill(width) for number in range(int(first), int(last) + 1, stride or 1))
    else:
        valid = len(first) == len(last) == 1 and first in letters and last in letters
        valid = valid and letters.index(first) <= letters.index(last)
        values = (letter for letter in letters[letters.find(first) : letters.find(last) + 1 : stride or 1])
    if not valid or stride < 1:
        raise ConfigError(wrong, hint="write [01:20], [a:f] or [1:9:2]")
    yield from values
