"""Tools with the argument ``hosts``: in a session on a fleet, a call names the hosts on which it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import ConfigError, ToolError
from ...fleets import Fleet
from ...fleets.hosts import fold_names
from ..contract import Tool, Traits
from ..registry import TMUX, Registry
from ..values import Category, Json, JsonObject, Subject, ToolResult

__all__ = ["HOSTS", "HostsArguments", "HostsTool", "count_of_hosts", "fleet_registry"]

HOSTS = "hosts"
"""The name of the argument."""
MAX_SHOWN = 500
"""Characters of the hosts' names in a tool's description."""
ON_TARGETS = frozenset({Category.FILE_READ, Category.FILE_WRITE, Category.SHELL})
ABOUT_HOSTS = "It runs on each of the hosts that `hosts` names; equal results are shown once, with their hosts."
PATTERN = (
    "the hosts on which it runs, of {hosts}. Names, ranges and groups, with ! for exceptions: web[1-3],!web2 or @db; "
    "* is all of them"
)


def count_of_hosts(count: int) -> str:
    """Return ``1 host`` or ``3 hosts``."""
    return f"{count} {'host' if count == 1 else 'hosts'}"


@dataclass(frozen=True, slots=True)
class HostsArguments:
    """The arguments of one call: the names of the hosts, and what the tool itself gets."""

    names: tuple[str, ...]
    own: Any


class HostsTool(Tool[Any]):
    """A tool as a session on a fleet offers it: with the required argument ``hosts``.

    Everything else about a call is the tool's own; the executor runs it once for each host.
    """

    def __init__(self, single: Tool[Any], fleet: Fleet) -> None:
        super().__init__(single.name, f"{single.description} {ABOUT_HOSTS}", single.arguments, single.traits)
        self.single = single
        self._fleet = fleet

    @property
    def schema(self) -> JsonObject:
        own = dict(self.single.schema)
        hosts: Json = {"type": "string", "description": PATTERN.format(hosts=_listed(self._fleet))}
        properties, required = own.get("properties"), own.get("required")
        own["properties"] = {HOSTS: hosts, **(properties if isinstance(properties, dict) else {})}
        own["required"] = [HOSTS, *(required if isinstance(required, list) else [])]
        return own

    def parse(self, raw: JsonObject) -> HostsArguments:
        values = {name: value for name, value in raw.items() if name != HOSTS}
        return HostsArguments(self._names(raw.get(HOSTS)), self.single.parse(values))

    def _names(self, value: Json) -> tuple[str, ...]:
        """Return the hosts of a call.

        Raises:
            ToolError: ``invalid_args``: none are given, or one is not of the fleet.
        """
        pattern = ",".join(map(str, value)) if isinstance(value, list) else value
        if not isinstance(pattern, str) or not pattern.strip():
            problem, hint = "hosts: name the hosts on which it runs", f"the hosts are {_listed(self._fleet)}"
            raise ToolError(f"{self.name}: {problem}", code="invalid_args", hint=hint)
        try:
            return self._fleet.choose(pattern)
        except ConfigError as error:
            raise ToolError(f"{self.name}: hosts: {error.message}", code="invalid_args", hint=error.hint) from error

    def traits_of(self, args: HostsArguments) -> Traits:
        return replace(self.single.traits_of(args.own), cacheable=False)

    def subjects(self, args: HostsArguments) -> tuple[Subject, ...]:
        return self.single.subjects(args.own)

    def covered_arguments(self) -> frozenset[str]:
        return self.single.covered_arguments()

    def private_arguments(self, args: HostsArguments) -> frozenset[str]:
        return self.single.private_arguments(args.own)

    def preview(self, args: HostsArguments) -> str | None:
        return self.single.preview(args.own)

    def execution_place(self, args: HostsArguments) -> str:
        return self.single.execution_place(args.own)

    def requires_approval(self, args: HostsArguments) -> bool:
        return self.single.requires_approval(args.own)

    async def run(self, args: HostsArguments, ctx: object) -> ToolResult:
        raise ToolError(f"{self.name} runs on the hosts of a fleet only through an executor")


def _listed(fleet: Fleet) -> str:
    names = fold_names(fleet.names)
    return names if len(names) <= MAX_SHOWN else f"{count_of_hosts(len(fleet))}: {names[:MAX_SHOWN]}\u2026"


def fleet_registry(registry: Registry, fleet: Fleet) -> Registry:
    """Return the tools that a session on a fleet offers.

    Tools for files and commands get the argument ``hosts``. Others stay if they touch no target. Tools that need a
    terminal are left out if the hosts have none, and those of sub-agents, which work on one target.

    Args:
        registry: The tools, under their own names.
        fleet: The hosts.

    Raises:
        ConfigError: The tools are those of a profile, whose arguments have no hosts.
    """
    found = Registry()
    for tool in registry.list():
        if tool.own is not tool:
            raise ConfigError(
                "tool profiles work on one target, not on many hosts",
                hint="use --tool-profile none, or remove tool_profile from the settings",
            )
        if tool.traits.category is Category.AGENT or (TMUX in tool.traits.requires and not fleet.has_terminal):
            continue
        found.register(_with_hosts(tool, fleet), registry.source_of(tool.name) or "")
    return found


def _with_hosts(tool: Tool[Any], fleet: Fleet) -> Tool[Any]:
    properties = tool.schema.get("properties")
    taken = isinstance(properties, Mapping) and HOSTS in properties
    return HostsTool(tool, fleet) if tool.traits.category in ON_TARGETS and not taken else tool
