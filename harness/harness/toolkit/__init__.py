"""The tool framework: one interface for tools, and one pipeline, policy and audit log for their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .assembly import Toolkit, ToolkitSettings, load_toolkit_settings, open_executor, open_toolkit
    from .audit import open_audit_log
    from .contract import (
        HERE,
        Arguments,
        FunctionTool,
        MutatingArguments,
        OutputLimit,
        Services,
        Tool,
        ToolContext,
        Traits,
        tool,
    )
    from .executor import Executor
    from .hooks.dispatch import HookInvocation, HookResult, Hooks, Matcher
    from .permissions.approver import Approver, EventApprover
    from .permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
    from .permissions.rules.settings import Mode, PermissionSettings
    from .permissions.shell.classification import classify_command
    from .providers import provider
    from .registry import Registry
    from .session.file_versions import WriteOutcome, guarded_edit
    from .session.notebook import Memory, MemoryLocation, MemoryStore, Todo, TodoStore
    from .tool_profiles import RenderedResult, ToolAdapter, ToolProfile
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
    "ApprovalDecision",
    "ApprovalRequest",
    "ApprovalScope",
    "Approver",
    "Arguments",
    "Block",
    "CallOutcome",
    "CallStatus",
    "Category",
    "EventApprover",
    "Executor",
    "FunctionTool",
    "HookInvocation",
    "HookResult",
    "Hooks",
    "Image",
    "Json",
    "JsonObject",
    "Matcher",
    "Memory",
    "MemoryLocation",
    "MemoryStore",
    "Mode",
    "MutatingArguments",
    "OutputLimit",
    "PermissionSettings",
    "Registry",
    "RenderedResult",
    "Services",
    "Subject",
    "Text",
    "Todo",
    "TodoStore",
    "Tool",
    "ToolAdapter",
    "ToolCall",
    "ToolContext",
    "ToolProfile",
    "ToolResult",
    "Toolkit",
    "ToolkitSettings",
    "Traits",
    "WriteOutcome",
    "classify_command",
    "guarded_edit",
    "load_toolkit_settings",
    "open_audit_log",
    "open_executor",
    "open_toolkit",
    "provider",
    "tool",
]

_NAMES: dict[str, tuple[str, ...]] = {
    "values": (
        "Block",
        "CallOutcome",
        "CallStatus",
        "Category",
        "Image",
        "Json",
        "JsonObject",
        "Subject",
        "Text",
        "ToolCall",
        "ToolResult",
    ),
    "assembly": ("Toolkit", "ToolkitSettings", "load_toolkit_settings", "open_executor", "open_toolkit"),
    "audit": ("open_audit_log",),
    "hooks.dispatch": ("HookInvocation", "HookResult", "Hooks", "Matcher"),
    "permissions.approver": ("Approver", "EventApprover"),
    "permissions.questions": ("ApprovalDecision", "ApprovalRequest", "ApprovalScope"),
    "permissions.rules.settings": ("Mode", "PermissionSettings"),
    "permissions.shell.classification": ("classify_command",),
    "providers": ("provider",),
    "session.file_versions": ("WriteOutcome", "guarded_edit"),
    "session.notebook": ("Memory", "MemoryLocation", "MemoryStore", "Todo", "TodoStore"),
    "tool_profiles": ("RenderedResult", "ToolAdapter", "ToolProfile"),
    "contract": (
        *("HERE", "Arguments", "FunctionTool", "MutatingArguments", "OutputLimit"),
        *("Services", "Tool", "ToolContext", "Traits", "tool"),
    ),
    "executor": ("Executor",),
    "registry": ("Registry",),
}
"""The modules that define the names."""

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)
