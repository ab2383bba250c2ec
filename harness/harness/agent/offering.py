"""Which tools an agent is offered beside the usual ones: those that only an agent has a use for."""

from __future__ import annotations

from dataclasses import replace

from ..toolkit.assembly import ToolkitSettings

__all__ = ["AGENTS", "for_agents"]

AGENTS = "agents"
"""The pack of ``task`` and ``tool_search``."""


def for_agents(settings: ToolkitSettings) -> ToolkitSettings:
    """The settings with that pack, where the operator has not chosen the tools. Pure."""
    tools = settings.tools
    if tools.packs or tools.include or AGENTS in tools.extra_packs:
        return settings
    return replace(settings, tools=replace(tools, extra_packs=(*tools.extra_packs, AGENTS)))
