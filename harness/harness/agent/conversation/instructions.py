"""What the model is told once: where it works, by which rules, and how to behave on a host that people depend on."""

from __future__ import annotations

from ...context import ExecutionContext
from ...toolkit.permissions.settings import Mode
from ...toolkit.registry import Registry

__all__ = ["instructions"]


def instructions(execution: ExecutionContext, registry: Registry, mode: Mode, extra: str = "") -> str:
    """The system prompt. It stays the same for a session, so that providers can keep it.

    Args:
        registry: the tools that are offered.
        mode: what happens to what no rule decides.
        extra: the operator's own instructions, from the settings.
    """
    return "\n\n".join(part for part in (execution.describe(), extra) if part)
