"""The hosts of a conversation: stored with it, and found again when it is resumed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....errors import ConfigError, HarnessError
from ...conversation import HOSTS, WHERE, stored_choices
from ...runtime import CliSession
from .session import SessionTarget

if TYPE_CHECKING:
    from ....agent.storage import ConversationSummary
    from ....fleets import Host
    from ....toolkit.values import JsonObject

__all__ = ["options_to_store", "stored_target"]

MAX_NAMED = 5
"""Hosts that an error names."""


def options_to_store(where: SessionTarget) -> JsonObject:
    """Return the options stored with a conversation, which reach its target or its hosts again from any directory.

    Args:
        where: The target or the hosts of the conversation.
    """
    options = stored_choices(where.session.invocation.choices)
    if not where.hosts:
        return options
    choices = {name: value for name, value in options.items() if name not in WHERE}
    inventory = where.options.inventory
    return choices | {
        HOSTS: {
            "patterns": list(where.options.patterns),
            "inventory": os.path.abspath(os.path.expanduser(inventory)) if inventory else "",
            "targets": {host.name: str(host.target) for host in where.hosts},
        }
    }


def stored_target(session: CliSession, summary: ConversationSummary) -> SessionTarget:
    """Return the hosts of a conversation, as its patterns and its inventory mean them now.

    Args:
        session: The program's settings, with those of the conversation.
        summary: The conversation.

    Raises:
        ConfigError: The inventory, a group or a host does not exist any more, or a host has another address; or the
            conversation was stored without its hosts.
    """
    stored = _StoredHosts.from_options(summary)
    try:
        return stored.resolved(session)
    except HarnessError as error:
        hint = "; ".join(filter(None, (error.hint, "give other hosts and --allow-other-target to resume it there")))
        problem = f"conversation {summary.session_id} works on {summary.target}: {error.message}"
        raise ConfigError(problem, hint=hint) from error


@dataclass(frozen=True, slots=True)
class _StoredHosts:
    """How the hosts of a conversation were named, and the URL of each."""

    patterns: tuple[str, ...]
    inventory: str
    targets: Mapping[str, str]

    @classmethod
    def from_options(cls, summary: ConversationSummary) -> _StoredHosts:
        """Read the stored options of a conversation.

        Raises:
            ConfigError: It was stored without its hosts.
        """
        stored: Any = summary.options.get(HOSTS)
        try:
            targets = {str(name): str(url) for name, url in stored["targets"].items()}
            found = cls(tuple(map(str, stored["patterns"])), str(stored["inventory"]), targets)
        except (AttributeError, KeyError, TypeError):
            found = cls((), "", {})
        if not found.targets:
            raise ConfigError(
                f"conversation {summary.session_id} works on many hosts, but does not say which: {summary.target}",
                hint=f"give its hosts: harness resume {summary.session_id} --hosts PATTERN",
            )
        return found

    def resolved(self, session: CliSession) -> SessionTarget:
        """Return the hosts as they are now; hosts that a group has got meanwhile are not among them.

        Raises:
            HarnessError: The inventory, a group or a host does not exist any more, or a host has another address.
        """
        from ....fleets import Host, read_inventory
        from ....target import Target
        from .calls import hosts_of_patterns
        from .options import FleetOptions

        inventory = read_inventory(self.inventory) if self.inventory else None
        options = FleetOptions(self.patterns, self.inventory or None)
        if not options.given:  # several --ssh
            hosts = tuple(Host(name, Target.parse(url)) for name, url in self.targets.items())
            return SessionTarget(session, hosts, options=options)
        now = {host.name: host for host in hosts_of_patterns(session, self.patterns, inventory)}
        self._check(now)
        return SessionTarget(session, tuple(now[name] for name in self.targets), inventory, options)

    def _check(self, now: Mapping[str, Host]) -> None:
        source = self.inventory or ",".join(self.patterns)
        if missing := [name for name in self.targets if name not in now]:
            raise ConfigError(f"{source} does not have {_listed(missing)} any more")
        changed = [name for name, url in self.targets.items() if str(now[name].target) != url]
        if changed:
            one = changed[0]
            more = f" (and {len(changed) - 1} more)" if changed[1:] else ""
            raise ConfigError(f"{one} was {self.targets[one]}, and now is {now[one].target}{more}")


def _listed(names: Sequence[str]) -> str:
    from ....fleets.host_names import fold_names

    more = f" and {len(names) - MAX_NAMED} more hosts" if len(names) > MAX_NAMED else ""
    return f"{fold_names(names[:MAX_NAMED])}{more}"
