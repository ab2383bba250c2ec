"""Search tools: find files and text on the target."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

from .check_for import Checkfor
from .grep import Grep
from .listing import Glob, Ls, Stump

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """Return one of each tool."""
    return [Glob(), Grep(), Checkfor(), Stump(), Ls()]
