"""Finding files and text on the target: names, contents, what is in a directory."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

from .check_for import Checkfor
from .grep import Grep
from .listing import Glob, Ls, Stump

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return [Glob(), Grep(), Checkfor(), Stump(), Ls()]
