"""The sessions and panes of the target's terminal."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return []
