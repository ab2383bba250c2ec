"""What an agent has with its user: questions, a list of things to do, memories, skills."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return []
