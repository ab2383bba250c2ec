"""The rules of the settings as they apply to one host: those with ``hosts`` only on hosts that their pattern means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....errors import ConfigError
from ....fleets.host_names import is_url
from ....fleets.inventories.inventory import Inventory
from ....fleets.patterns import HostPatterns
from ....target import Target
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
    means a host behind which the target is, such as the host of a container.

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
        self._known: dict[tuple[str, str], AppliedRules] = {}

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
        names = _names_of(host, target)
        if rule.action is Action.ALLOW:
            names = names[:1]
        return any(self._patterns.matches(rule.hosts, name) for name in names)


def _names_of(host: str, target: Target) -> list[str]:
    """Return the names of a host, its own first: that of the fleet, or the ones on the way to the target."""
    if host and not is_url(host):
        return [host]
    hops = [hop.host for hop in reversed(target.hops) if hop.scheme == "ssh"]
    if target.last.scheme == "local":
        return ["localhost"]
    return hops if target.last.scheme == "ssh" else [str(target), *hops]
