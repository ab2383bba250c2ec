"""Agents that work for an agent, and finding tools."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

from .finding import ToolSearch
from .task import Task

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return [Task(), ToolSearch()]
