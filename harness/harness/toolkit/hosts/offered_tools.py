"""The tools that a session on a fleet offers; those of a profile keep its names and arguments, and get ``hosts``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError, ToolError
from ...fleets import Fleet
from ..contract import Tool
from ..registry import PANES, TMUX, Registry, is_builtin
from ..tool_profiles import AdaptedTool, RenderedResult
from ..values import Category, Json, JsonObject, ToolResult
from .tools import ABOUT_HOSTS, HOSTS, HostsTool, has_hosts_property, with_hosts_property

__all__ = ["fleet_registry"]

ON_TARGETS = frozenset({Category.FILE_READ, Category.FILE_WRITE, Category.SHELL})


def fleet_registry(registry: Registry, fleet: Fleet) -> Registry:
    """Return the tools that a session on a fleet offers.

    Tools for files and commands get the argument ``hosts``, under the names of a profile, too. Others stay if they
    touch no target; so do those of sub-agents, which work on the same hosts. Tools that need a terminal are left out if
    the hosts have none.

    Args:
        registry: The tools.
        fleet: The hosts.

    Raises:
        ConfigError: A tool for files or commands has another argument ``hosts``.
    """
    found = Registry()
    for tool in registry.list():
        if not {TMUX, PANES}.isdisjoint(tool.traits.requires) and not fleet.has_terminal:
            continue
        source = registry.source_of(tool.name) or ""
        found.register(_with_hosts(tool, fleet, source), source)
    return found


def _with_hosts(tool: Tool[Any], fleet: Fleet, source: str) -> Tool[Any]:
    if tool.traits.category not in ON_TARGETS:
        return tool
    if has_hosts_property(tool.schema):
        raise ConfigError(
            f"the tool {tool.name!r}{'' if is_builtin(source) else f' of {source}'} does not work on many hosts:"
            f" it has an argument {HOSTS!r} of its own",
            hint=f"exclude it ([tools] exclude = [{tool.name!r}]), or rename the argument",
        )
    if isinstance(tool, AdaptedTool):
        return _AdaptedHostsTool(tool, HostsTool(tool.own, fleet))
    return HostsTool(tool, fleet)


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The hosts as the model named them, and the profile's arguments."""

    hosts: Json
    own: Any


class _AdaptedHostsTool(AdaptedTool[Any]):
    """A tool as a profile presents it, with the required argument ``hosts``; results have the merged form of hosts."""

    def __init__(self, adapted: AdaptedTool[Any], own: HostsTool) -> None:
        super().__init__(own, adapted.face, adapted.failed, adapted.tools)
        self.description = f"{adapted.description} {ABOUT_HOSTS}"
        self._adapted = adapted
        self._hosts_tool = own

    @property
    def schema(self) -> JsonObject:
        return with_hosts_property(self._adapted.schema, self._hosts_tool.fleet)

    def parse(self, raw: JsonObject) -> _Arguments:
        values = {name: value for name, value in raw.items() if name != HOSTS}
        return _Arguments(raw.get(HOSTS), self._adapted.parse(values))

    def translated(self, args: _Arguments) -> tuple[JsonObject, Any]:
        values, _ = self._adapted.translated(args.own)  # its errors have the profile's names
        found = {HOSTS: args.hosts, **values}
        try:
            return found, self._hosts_tool.parse(found)
        except ToolError as error:
            message = error.message.removeprefix(f"{self._hosts_tool.name}: ")
            raise ToolError(f"{self.name}: {message}", code=error.code, hint=error.hint) from error

    def _rendered(self, args: Any, result: ToolResult) -> RenderedResult | None:
        return None
