"""Tools with the argument ``hosts``: in a session on a fleet, a call names the hosts on which it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import ConfigError, ToolError
from ...fleets import Fleet
from ...fleets.host_names import fold_names
from ...wording import counted
from ..contract import Tool, Traits
from ..values import Json, JsonObject, Subject, ToolResult

__all__ = [
    "ABOUT_HOSTS",
    "HOSTS",
    "HostsArguments",
    "HostsTool",
    "has_hosts_property",
    "with_hosts_property",
]

HOSTS = "hosts"
"""The name of the argument."""
MAX_SHOWN = 500
"""Characters of the hosts' names in a tool's description."""
ABOUT_HOSTS = "It runs on each of the hosts that `hosts` names; equal results are shown once, with their hosts."
PATTERN = (
    "the hosts on which it runs, of {hosts}. Names, ranges and groups, with ! for exceptions: web[1-3],!web2 or @db; "
    "* is all of them"
)


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
        self.fleet = fleet

    @property
    def schema(self) -> JsonObject:
        return with_hosts_property(self.single.schema, self.fleet)

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
            problem, hint = "hosts: name the hosts on which it runs", f"the hosts are {_listed(self.fleet)}"
            raise ToolError(f"{self.name}: {problem}", code="invalid_args", hint=hint)
        try:
            return self.fleet.choose(pattern)
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


def with_hosts_property(schema: JsonObject, fleet: Fleet) -> JsonObject:
    """Return the schema of a tool with the required property ``hosts``."""
    found = dict(schema)
    hosts: Json = {"type": "string", "description": PATTERN.format(hosts=_listed(fleet))}
    properties, required = found.get("properties"), found.get("required")
    found["properties"] = {HOSTS: hosts, **(properties if isinstance(properties, dict) else {})}
    found["required"] = [HOSTS, *(required if isinstance(required, list) else [])]
    return found


def has_hosts_property(schema: JsonObject) -> bool:
    """Return whether a tool has an argument ``hosts`` of its own."""
    properties = schema.get("properties")
    return isinstance(properties, Mapping) and HOSTS in properties


def _listed(fleet: Fleet) -> str:
    names = fold_names(fleet.names)
    return names if len(names) <= MAX_SHOWN else f"{counted(len(fleet), 'host')}: {names[:MAX_SHOWN]}\u2026"
