"""The tool framework: one contract for tools, one pipeline for calls, one policy and one audit for all."""

from __future__ import annotations

from .context import ToolContext
from .executor import Executor
from .registry import Registry
from .services import Services
from .tool import Arguments, FunctionTool, MutatingArguments, OutputLimit, Tool, Traits, tool
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
