"""Names of hosts: how one is written in a pattern or an inventory, and many of them in short.

A name is ``h01``, ``root@h01:22``, ``::1`` or a target URL; many are ``h[01-40]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import IPv6Address

from ..errors import ConfigError, TargetNotFound
from ..target import Target, mask_password

__all__ = ["HostName", "fold_names", "is_ipv6", "is_url", "parse_host_name"]

_NAME = re.compile(r"(?!-)[^\s\[\]{}(),;!&^*?@:/+='\"`$\\|<>#]+")
_PARTS = re.compile(r"(?:(?P<user>[^@]*)@)?(?:\[(?P<address>[^\]]*)\]|(?P<host>[^@:]*))(?::(?P<port>\d+))?")
MAX_FOLDED_TOGETHER = 200
"""Names beyond which only equal texts around the last number are folded together."""
_LAST_NUMBER = re.compile(r"\d+(?=\D*$)")


@dataclass(frozen=True, slots=True)
class HostName:
    """A host's name in its parts."""

    text: str
    """As it was written."""
    host: str
    """The host's name alone, by which patterns exclude; the URL of a container without its user."""
    target: Target

    @property
    def user(self) -> str | None:
        """The user that was written."""
        return self.target.last.user

    @property
    def port(self) -> int | None:
        """The port that was written."""
        return self.target.last.port

    @property
    def is_ssh(self) -> bool:
        """Whether it is a host behind SSH, not a container or this machine."""
        return self.target.base is None and self.target.last.scheme == "ssh"


def parse_host_name(text: str) -> HostName:
    """Read a host's name.

    Raises:
        ConfigError: It is neither a name nor a target URL.
    """
    try:
        target = Target.parse(text if is_url(text) else _ssh_url(text))
    except TargetNotFound as error:
        raise ConfigError(error.message, hint=error.hint) from None
    last = target.last
    if target.base is None and last.scheme == "ssh":
        return HostName(text, last.host, target)
    return HostName(text, str(Target((*target.hops[:-1], replace(last, user=None)))), target)


def is_url(text: str) -> bool:
    """Return whether a name is a target URL."""
    return "://" in text or text == "local:"


def is_ipv6(text: str) -> bool:
    """Return whether a text is an IPv6 address without brackets."""
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _ssh_url(text: str) -> str:
    """Return the URL of a name that is not a URL.

    Raises:
        TargetNotFound: It is not a name of a host.
    """
    user, at, rest = text.rpartition("@")
    if is_ipv6(rest):
        return f"ssh://{user}{at}[{rest}]"
    match = _PARTS.fullmatch(text)
    valid = is_ipv6(match["address"] or "") or bool(_NAME.fullmatch(match["host"] or "")) if match else False
    if valid and text.isprintable():
        return f"ssh://{text}"
    shown = mask_password(text)
    if rest.startswith("-") or not rest:
        raise TargetNotFound(f"{shown!r} names no host")
    if re.search(r"\s", text):
        raise TargetNotFound(f"{shown!r} is not a host name: it has a space", hint="separate hosts with ','")
    Target.parse(f"ssh://{text}")  # for its own message, about a password or a port
    raise TargetNotFound(f"{shown!r} is not a host name", hint="write NAME, [USER@]NAME[:PORT] or a target URL")


def fold_names(names: Iterable[str]) -> str:
    """Return names in short: ``web[1-3,5],db1``; of many names, only the last number in each is folded."""
    known = tuple(names)
    try:
        from ClusterShell.NodeSet import NodeSetException
    except ImportError:  # without the extra, several --ssh work
        return ",".join(known)
    try:
        return _folded(known)
    except NodeSetException:  # names that are not patterns, such as IPv6 addresses
        return ",".join(known)


@lru_cache(maxsize=16)  # the tools of a session show the same hosts with every request
def _folded(names: tuple[str, ...]) -> str:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return ",".join(str(NodeSet(",".join(part), resolver=RESOLVER_NOGROUP)) for part in _parts_to_fold(names))


def _parts_to_fold(names: tuple[str, ...]) -> list[list[str]]:
    """Return names in parts that ClusterShell folds fast: with several numbers in a name, its time is quadratic."""
    if len(names) <= MAX_FOLDED_TOGETHER:
        return [list(names)]
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(_LAST_NUMBER.sub("", name), []).append(name)
    return [parts[key] for key in sorted(parts)]
