"""The tool framework: one interface for tools, and one pipeline, policy and audit log for their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .contract import HERE, Arguments, FunctionTool, MutatingArguments, OutputLimit, Tool, ToolContext, Traits, tool
    from .executor import Executor
    from .pipeline import Services
    from .registry import Registry
    from .values import (
        Block,
        CallOutcome,
        CallStatus,
        Category,
        Image,
        Json,
        JsonObject,
        Subject,
        Text,
        ToolCall,
        ToolResult,
    )

__all__ = [
    "HERE",
    "Arguments",
    "Block",
    "CallOutcome",
    "CallStatus",
    "Category",
    "Executor",
    "FunctionTool",
    "Image",
    "Json",
    "JsonObject",
    "MutatingArguments",
    "OutputLimit",
    "Registry",
    "Services",
    "Subject",
    "Text",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "Traits",
    "tool",
]

_NAMES = {
    "contract": (
        *("HERE", "Arguments", "FunctionTool", "MutatingArguments", "OutputLimit"),
        *("Tool", "ToolContext", "Traits", "tool"),
    ),
    "executor": ("Executor",),
    "pipeline": ("Services",),
    "registry": ("Registry",),
}
"""The modules that define the names; all other names are in ``values``."""

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Load a name on first use: the audit log and the rules work without the tool classes."""
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = next((module for module, names in _NAMES.items() if name in names), "values")
        value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
