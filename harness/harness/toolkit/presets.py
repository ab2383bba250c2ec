"""Which tools are offered: rules about one tool, derived from what it says of itself and never from a list of names."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from .contract import Tool
from .values import Category

__all__ = ["ALWAYS", "OPT_IN", "harmless", "in_packs", "missing_libraries", "only_reads", "opt_in", "schema_gaps"]

ALWAYS = frozenset({"tool_search"})
"""Tools that a choice of packs leaves in: with them a model finds the others."""
OPT_IN = frozenset({"dev", "web", "agents"})
"""Packs that are offered when they are asked for: forty schemas in every request are expensive."""
INSIDE = frozenset({Category.NONE})
"""What touches nothing outside the conversation."""


def only_reads(tool: Tool[Any]) -> bool:
    """It changes nothing, whatever its arguments are. ``Tool.traits`` states the worst of its calls."""
    return not tool.traits.mutating


def harmless(tool: Tool[Any]) -> bool:
    """It changes nothing outside the conversation."""
    return only_reads(tool) or tool.traits.category in INSIDE


def in_packs(tool: Tool[Any], packs: frozenset[str]) -> bool:
    """It belongs to one of the packs, or to every choice of packs."""
    return tool.name in ALWAYS or not packs.isdisjoint(tool.traits.packs)


def opt_in(tool: Tool[Any]) -> bool:
    """It belongs to nothing but packs that have to be asked for."""
    return bool(tool.traits.packs) and OPT_IN.issuperset(tool.traits.packs)


def missing_libraries(tool: Tool[Any]) -> tuple[str, ...]:
    """The modules that it needs here and that are not installed; none of them is imported."""
    return tuple(name for name in tool.traits.libraries if find_spec(name) is None)


def schema_gaps(tool: Tool[Any]) -> tuple[str, ...]:
    """The required arguments that the schema does not describe: a model could not give them."""
    schema = tool.schema
    properties, required = schema.get("properties"), schema.get("required")
    described = properties if isinstance(properties, dict) else {}
    wanted = required if isinstance(required, list) else []
    return tuple(str(name) for name in wanted if name not in described)
