"""What is in source files: signatures and imports."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return []
