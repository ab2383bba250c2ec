"""The tools that a session on a fleet offers."""

from __future__ import annotations

from typing import Any

from ...errors import ConfigError
from ...fleets import Fleet
from ..contract import Tool
from ..registry import TMUX, Registry, is_builtin
from ..tool_profiles import AdaptedTool
from ..values import Category
from .adapted_tools import AdaptedHostsTool
from .tools import HOSTS, HostsTool, has_hosts_property

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
        if TMUX in tool.traits.requires and not fleet.has_terminal:
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
        return AdaptedHostsTool(tool, HostsTool(tool.own, fleet))
    return HostsTool(tool, fleet)
