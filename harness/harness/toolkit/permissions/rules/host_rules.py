"""The rules of the operator as they apply to one host: those with ``hosts`` only on hosts that their pattern means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....errors import ConfigError
from ....fleets.host_names import is_url, parse_host_name
from ....fleets.hosts import SSH_PORT, address_of, names_by_address
from ....fleets.inventories.inventory import Inventory
from ....fleets.patterns import HostPatterns
from ....target import EXEC_SCHEME, Hop, Target
from .rule import Action, Rule, RuleIndex

__all__ = ["AppliedRules", "HostRules"]


@dataclass(frozen=True, slots=True)
class AppliedRules:
    """The rules that apply to a host, and those that deny or ask and of which that cannot be told."""

    rules: RuleIndex = field(default_factory=RuleIndex)
    undecided: RuleIndex = field(default_factory=RuleIndex)


class HostRules:
    """Chooses the rules of each host.

    A rule that allows applies if the pattern means the host by its name. One that denies or asks also applies if it
    means the host by another name, whatever its case: its address, the name of a host of the inventory with the same
    address, or that of a host behind which the target is, such as the host of a container; ``stage`` also means the
    target ``exec://stage``, and a pod any of its containers and the pod of that name in any context. ``!`` excludes a
    host by its own name only.

    Args:
        rules: The rules, in order.
        inventory: The groups of a file; without one, groups are those of ClusterShell's configuration.
        names: Tools by their other names.
    """

    def __init__(
        self, rules: Sequence[Rule], inventory: Inventory | None = None, names: Mapping[str, str] | None = None
    ) -> None:
        self._rules = tuple(rules)
        self._names = names or {}
        self._every = None if any(rule.hosts is not None for rule in rules) else AppliedRules(RuleIndex(rules, names))
        self._patterns = HostPatterns(inventory, (), tuple, lambda name: name.port)
        self._inventory = inventory
        self._names_by_address: dict[tuple[str, int], list[str]] | None = None
        self._known: dict[tuple[str, str], AppliedRules] = {}

    @property
    def tools(self) -> frozenset[str]:
        """The tool names and patterns in the rules."""
        return frozenset(rule.tool for rule in self._rules)

    def on(self, host: str, target: Target) -> AppliedRules:
        """Return the rules for a host.

        Args:
            host: Its name in the fleet; empty in a session on one target.
            target: Its target.
        """
        if self._every is not None:
            return self._every
        key = (host, str(target))
        if key not in self._known:
            self._known[key] = self._applied(host, target)
        return self._known[key]

    def _applied(self, host: str, target: Target) -> AppliedRules:
        applied, undecided = [], []
        for rule in self._rules:
            try:
                if rule.hosts is None or self._means(rule, host, target):
                    applied.append(rule)
            except ConfigError:
                if rule.action is not Action.ALLOW:
                    undecided.append(rule)
        return AppliedRules(RuleIndex(applied, self._names), RuleIndex(undecided, self._names))

    def _means(self, rule: Rule, host: str, target: Target) -> bool:
        """Return whether a rule's pattern means a host.

        Raises:
            ConfigError: A group is not known.
        """
        assert rule.hosts is not None
        own = _own_name(host, target)
        if rule.action is Action.ALLOW:
            return self._patterns.matches(rule.hosts, own)
        return self._patterns.matches(rule.hosts, own, self._other_names(own, target), any_case=True)

    def _other_names(self, own: str, target: Target) -> list[str]:
        """Return the names of a host and of those behind which it is, in which a rule may restrict it."""
        hops = [hop for hop in reversed(target.hops) if hop.scheme == "ssh"]
        found = [name for hop in hops for host in (hop.host, *self._names_at(hop)) for name in _forms(host, hop.port)]
        found += [hop.host for hop in target.hops if hop.scheme == EXEC_SCHEME]
        found += _wider_urls(target)
        if target.last.scheme == "ssh" and (name := parse_host_name(own)).is_ssh:
            return [*found, *_forms(name.host, name.port)]
        return [*found, "localhost" if target.last.scheme == "local" else str(target)]

    def _names_at(self, hop: Hop) -> list[str]:
        if self._names_by_address is None:
            self._names_by_address = names_by_address(self._inventory) if self._inventory is not None else {}
        return [parse_host_name(name).host for name in self._names_by_address.get(address_of(hop), [])]


def _own_name(host: str, target: Target) -> str:
    """Return the name of a host: that of the fleet, otherwise the host or the URL of the target."""
    last = target.last
    if host and not is_url(host):
        name = parse_host_name(host)
        return _written(name.host, name.port or last.port) if last.scheme == "ssh" else host
    if last.scheme == "local":
        return "localhost"
    return _written(last.host, last.port) if last.scheme == "ssh" else str(target)


def _wider_urls(target: Target) -> list[str]:
    """Return the URLs of a target and of those behind which it is, also with the parts left out that are optional."""
    return [
        str(Target((*target.hops[:index], replace(hop, host=path))))
        for index, hop in enumerate(target.hops)
        if hop.scheme not in ("local", "ssh")
        for path in (_pods(hop.host) if hop.scheme == "k8s" else [hop.host])
    ]


def _pods(path: str) -> list[str]:
    """Return a pod's path with and without its context and its container."""
    parts = path.split("/")
    if len(parts) < 3:
        return [path]
    *context, namespace, pod, container = parts
    pods = [f"{namespace}/{pod}", *([f"{namespace}/{pod}/{container}"] if container else [])]
    return [path, *pods, *(f"{name}/{namespace}/{pod}/" for name in context)]


def _forms(host: str, port: int | None) -> list[str]:
    """Return the texts of a name; without a port, also with that of SSH."""
    return [_written(host, port)] if port else [_written(host, None), _written(host, SSH_PORT)]


def _written(host: str, port: int | None) -> str:
    return (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
