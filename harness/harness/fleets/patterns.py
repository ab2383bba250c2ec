"""Patterns of hosts: ``web[1-20],db1,!web7``, ``@web``, ``web*``, target URLs.

ClusterShell expands ranges and resolves the groups of its own configuration. Hosts are chosen in the order in which
patterns name them; then ``&`` and at last ``!`` apply to all of them, wherever they are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import NamedTuple

from ..errors import ConfigError
from ..target import mask_password
from .host_names import HostName, is_url, parse_host_name
from .inventories.inventory import MAX_HOSTS, Inventory

__all__ = ["HostPatterns", "check_pattern"]

GROUP_HINT = "name a group of --inventory, or of ClusterShell's groups.conf"

MAX_NAMES_SHOWN = 5
"""The maximum number of names in a hint."""
_COMMA = re.compile(r",(?![^\[]*\])")
_OPERATOR = re.compile(r"([!&])(?![^\[]*\])")
"""An operator outside brackets."""
_RANGES = re.compile(r"\[([^\[\]:]*)\]")
"""The brackets of a range, not those of an IPv6 address."""
_NUMBERS = re.compile(r"(\d{1,18})-(\d{1,18})(?!\d)")
_TOO_LONG = re.compile(r"\d{19}")
"""A number that Python may refuse to read, and ClusterShell, too."""
_WILDCARD = re.compile(r"[*?]")
_GROUP = re.compile(r"@(?:\w[\w.+-]*:)?[\w*?\[][\w.:+,*?\[\]-]*", re.ASCII)
"""A group for ClusterShell, which pastes its name into a shell command if a source of groups is a program."""
_AFFIXES = re.compile(r"(?:(?P<user>[^@]+)@)?(?P<body>@?[^@]+?)(?::(?P<port>\d{1,9}))?")


class _Element(NamedTuple):
    """A part of a pattern: its operator, ``,``, ``&`` or ``!``, and the text after it."""

    operator: str
    text: str


class HostPatterns:
    """Finds the names of hosts that patterns mean.

    Args:
        inventory: The hosts and groups of a file.
        known_names: Other names that exist, even if the inventory does not have them.
        ssh_names: Returns the names that wildcards match without an inventory.
        port_of: Returns the port at which a host is reached, if it is known.
    """

    def __init__(
        self,
        inventory: Inventory | None,
        known_names: Sequence[str],
        ssh_names: Callable[[], Sequence[str]],
        port_of: Callable[[HostName], int | None],
    ) -> None:
        self._inventory = inventory
        self._known_names = frozenset(known_names)
        self._ssh_names = ssh_names
        self._port_of = port_of

    def choose(self, patterns: Sequence[str]) -> list[HostName]:
        """Return the hosts that all patterns together mean, each name once, in the order in which they are named.

        Raises:
            ConfigError: A part is not understood, matches nothing, or excludes nothing.
        """
        elements = [element for pattern in patterns for element in _split(pattern)]
        named = [element.text for element in elements if element.operator == ","]
        if not named and self._inventory is not None:
            named = ["*"]
        if not named:
            raise ConfigError("no hosts were given", hint="for example --hosts 'web[1-20],db1' or --inventory FILE")
        chosen: dict[str, HostName] = {}
        for text in named:
            chosen |= {name.text: name for name in self._names(text)}
        kept = list(chosen.values())
        for element in elements:
            if element.operator == "&":
                matches = self._matcher(element.text)
                kept = [name for name in kept if matches(name)]
        if not kept:
            raise ConfigError(f"{_shown(','.join(patterns))} leaves no host")
        left = self._exclude(kept, [element.text for element in elements if element.operator == "!"])
        if not left:
            raise ConfigError(f"{_shown(','.join(patterns))} leaves no host")
        return left

    def matches(self, pattern: str, name: str, others: Sequence[str] = (), *, any_case: bool = False) -> bool:
        """Return whether a pattern means a host, as far as its names say; a pattern of ``!`` alone means all others.

        Args:
            pattern: As for :meth:`choose`.
            name: The name of the host, the only one by which ``!`` excludes it.
            others: Its other names, such as its address.
            any_case: Names that differ in upper and lower case only are equal.

        Raises:
            ConfigError: A part is not understood, or a group is not known.
        """
        own, elements = parse_host_name(name), list(_split(pattern))
        hosts = [own, *map(parse_host_name, others)]

        def means(element: _Element) -> bool:
            matches = self._matcher(element.text, any_case=any_case)
            return any(map(matches, hosts[:1] if element.operator == "!" else hosts))

        named, unknown = [], None
        for element in elements:
            if element.operator == ",":
                try:
                    named.append(means(element))
                except ConfigError as error:  # it does not matter if another element names the host
                    unknown = error
        if not any(named):
            if unknown is not None:
                raise unknown
            if named:
                return False
        found = {sign: [means(element) for element in elements if element.operator == sign] for sign in "&!"}
        return all(found["&"]) and not any(found["!"])

    def _exclude(self, names: list[HostName], excluded: Sequence[str]) -> list[HostName]:
        left = names
        for text in excluded:
            matches = self._matcher(text)
            if not any(matches(name) for name in names):
                raise ConfigError(f"{_shown('!' + text)} excludes no host", hint=_exclusion_hint(text, names))
            left = [name for name in left if not matches(name)]
        return left

    def _matcher(self, text: str, *, any_case: bool = False) -> Callable[[HostName], bool]:
        """Return a predicate for hosts of an element: by their names, whatever the user; a port must be the same."""
        exact: dict[str, set[int | None]] = {}
        wildcards: list[tuple[str, int | None]] = []
        form = str.lower if any_case else str
        for part in _expand_ranges(text):
            if (match := _affixes(part)) and _WILDCARD.search(match["body"]) and not match["body"].startswith("@"):
                wildcards.append((form(match["body"]), int(match["port"]) if match["port"] else None))
                continue
            found = self._group(part) if part.startswith("@") else [parse_host_name(part)]
            for name in found:
                exact.setdefault(form(name.host), set()).add(name.port)

        def matches(name: HostName) -> bool:
            host = form(name.host)
            ports = exact.get(host, set()) | {port for body, port in wildcards if fnmatchcase(host, body)}
            return bool(ports) and (None in ports or self._port_of(name) in ports)

        return matches

    # -- one element

    def _names(self, text: str) -> Iterator[HostName]:
        """Yield the hosts that an element names.

        Raises:
            ConfigError: It names none.
        """
        if text.startswith("@") and self._inventory is None:
            yield from self._group(text)
            return
        for part in _expand_ranges(text):
            match = _affixes(part)
            if match is None or is_url(part):
                yield self._single(part)
            elif match["body"].startswith("@"):
                yield from (_with_affixes(name, match) for name in self._group(match["body"]))
            elif _WILDCARD.search(part):
                yield from (_with_affixes(name, match) for name in self._wildcard(match["body"]))
            else:
                yield self._single(part)

    def _single(self, text: str) -> HostName:
        if is_url(text) and _WILDCARD.search(text):
            raise ConfigError(f"{_shown(text)}: wildcards match names, not URLs")
        if ":" in text and not is_url(text) and re.search(r"\[\w*:\w+(?::\d+)?\]", text):
            raise ConfigError(
                f"{_shown(text)} is not a pattern of hosts", hint="write a range as [1-20]; [1:20] is for inventories"
            )
        name = parse_host_name(text)
        inventory = self._inventory
        if inventory is None or is_url(text) or name.host in self._known_names or inventory.find(name) is not None:
            return name
        raise ConfigError(
            f"{inventory.source} has no host {name.host!r}",
            hint=_zeros_hint(name.host, inventory.hosts) or f"a host that is not in the file is written ssh://{text}",
        )

    def _group(self, text: str) -> list[HostName]:
        inventory = self._inventory
        if inventory is None:
            found = _clustershell_group(text)
        else:
            groups = ["all", "ungrouped", *inventory.names_of_groups()]
            found = [host for group in groups if fnmatchcase(group, text[1:]) for host in inventory.members(group)]
        if not found:
            hint = self._known() if inventory is not None else GROUP_HINT
            raise ConfigError(f"no host matches {_shown(text)}", hint=hint)
        return [parse_host_name(name) for name in found]

    def _wildcard(self, text: str) -> list[HostName]:
        names = [parse_host_name(name) for name in (self._inventory.hosts if self._inventory else self._ssh_names())]
        found = [name for name in names if fnmatchcase(name.text, text) or fnmatchcase(name.host, text)]
        if not found:
            raise ConfigError(f"no host matches {_shown(text)}", hint=self._known())
        return found

    def _known(self) -> str:
        if self._inventory is None:
            return "'harness hosts' lists the hosts of the ssh configuration"
        groups = "".join(f", @{name}" for name in self._inventory.names_of_groups())
        return f"{self._inventory.source} has {len(self._inventory.hosts)} hosts in @all{groups}"


def check_pattern(pattern: str) -> None:
    """Check the form of a pattern, whatever hosts and groups there are.

    Raises:
        ConfigError: A part is not understood.
    """
    for element in _split(pattern):
        _expand_ranges(element.text)


def _split(pattern: str) -> Iterator[_Element]:
    """Yield the parts of a pattern.

    Raises:
        ConfigError: A part is empty, or has a space or an operator that harness does not have.
    """
    if not pattern.strip():  # an unset shell variable must not run the command anywhere
        raise ConfigError("the pattern of hosts is empty")
    for item in _COMMA.split(pattern):
        first, *rest = _OPERATOR.split(item)
        elements = [_Element(",", first.strip())] if first.strip() or not rest else []
        elements += [_Element(sign, text.strip()) for sign, text in zip(rest[::2], rest[1::2], strict=True)]
        for element in elements:
            if not element.text:
                raise ConfigError(f"{_shown(pattern)} has an empty part after {element.operator!r} or before ','")
            if re.search(r"\s", element.text):
                raise ConfigError(f"{_shown(element.text)} has a space", hint="separate hosts with ','")
            if "^" in element.text:
                raise ConfigError(
                    f"{_shown(element.text)}: the operator '^' is not supported", hint="use ',', '&', '!'"
                )
        yield from elements


def _affixes(text: str) -> re.Match[str] | None:
    """Return the user, the body and the port of a part that is not a URL."""
    return None if is_url(text) else _AFFIXES.fullmatch(text)


def _with_affixes(name: HostName, affixes: re.Match[str]) -> HostName:
    """Return the name of a host with the user and the port of a pattern.

    Raises:
        ConfigError: It is not a host behind SSH.
    """
    user, port = affixes["user"], affixes["port"]
    if user is None and port is None:
        return name
    if not name.is_ssh:
        raise ConfigError(f"{name.text} takes no user and no port from {_shown(affixes.string)}")
    host = f"[{name.host}]" if ":" in name.host else name.host
    return parse_host_name((f"{user}@" if user else "") + host + (f":{port}" if port else ""))


def _expand_ranges(text: str) -> list[str]:
    """Return the names of an element's ranges, in the order in which they are written: ``h[5,1-2]`` is h5, h1, h2.

    Raises:
        ConfigError: A range is wrong, or there are too many hosts.
    """
    if not re.search(r"[\[\]]", text):
        return [text]
    if re.search(r"[\[\]]", re.sub(r"\[[^\[\]]*\]", "", text)):
        raise ConfigError(f"{_shown(text)} is not a pattern of hosts: a bracket is missing")
    pieces = _RANGES.split(text)
    if len(pieces) == 1:  # the brackets of an IPv6 address
        return [text]
    _check_size(text, pieces[1::2])
    values = [[piece] if place % 2 == 0 else _range_values(piece, text) for place, piece in enumerate(pieces)]
    return ["".join(parts) for parts in product(*values)]


def _check_size(text: str, ranges: Sequence[str]) -> None:
    """Refuse ranges of more than :data:`MAX_HOSTS`, before they are expanded.

    Raises:
        ConfigError: The ranges of one element multiply to more.
    """
    size = 1
    for values in ranges:
        if _TOO_LONG.search(values):
            raise ConfigError(f"{_shown(text)} is not a pattern of hosts: a number has more than 18 digits")
        matches = [_NUMBERS.match(item) for item in values.split(",")]
        size *= sum(max(int(match[2]) - int(match[1]) + 1, 1) if match else 1 for match in matches)
        if size > MAX_HOSTS:
            raise ConfigError(f"{_shown(text)} means {size:,} or more hosts; a fleet has at most {MAX_HOSTS:,}")


def _range_values(values: str, text: str) -> list[str]:
    try:
        from ClusterShell.RangeSet import RangeSet, RangeSetException
    except ImportError as error:
        raise _missing_extra() from error
    try:
        return [value for item in values.split(",") for value in RangeSet(item).striter()]
    except RangeSetException as error:
        raise ConfigError(f"{_shown(text)} is not a pattern of hosts: {error}") from error


def _clustershell_group(text: str) -> list[str]:
    """Return the hosts of a group of ClusterShell's configuration.

    Raises:
        ConfigError: The group is not known or has another name than groups have, or ClusterShell is not installed.
    """
    if not _GROUP.fullmatch(text):
        raise ConfigError(f"{_shown(text)} is not the name of a group", hint="letters, digits, '_', '-', '.' and '+'")
    try:
        from ClusterShell.NodeSet import NodeSet, NodeSetException, std_group_resolver
        from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError
    except ImportError as error:
        raise _missing_extra() from error
    try:
        return [str(name) for name in NodeSet(text, resolver=std_group_resolver())]
    except GroupSourceError as error:  # its text is only the name of the source
        raise ConfigError(f"no host matches {_shown(text)}: ClusterShell has no such group", hint=GROUP_HINT) from error
    except (NodeSetException, GroupResolverError) as error:
        raise ConfigError(f"no host matches {_shown(text)}: {error}", hint=GROUP_HINT) from error


def _missing_extra() -> ConfigError:
    from ..extras import install_extra

    return ConfigError("patterns of hosts need the extra fleet", hint=install_extra("fleet"))


# -- messages


def _shown(text: str) -> str:
    return repr(mask_password(text))


def _exclusion_hint(text: str, names: Sequence[HostName]) -> str:
    for part in _expand_ranges(text):
        host = part.rpartition("@")[2].partition(":")[0]
        if hint := _zeros_hint(host, [name.host for name in names]):
            return hint
    shown = [name.text for name in names[:MAX_NAMES_SHOWN]]
    more = f" and {len(names) - len(shown):,} others" if len(names) > len(shown) else ""
    return f"remove it, or name one of the chosen hosts: {', '.join(shown)}{more}"


def _zeros_hint(host: str, names: Iterable[str]) -> str:
    """Return a hint about a name that differs in leading zeros only."""

    def plain(text: str) -> str:
        return re.sub(r"\d+", lambda match: match[0].lstrip("0") or "0", text)

    near = next((name for name in names if name != host and plain(name) == plain(host)), None)
    return f"{near} is another name than {host}: leading zeros count" if near else ""
