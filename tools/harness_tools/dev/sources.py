"""What is in source files: signatures and imports."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

from .imports import Imports
from .sig import Sig

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return [Sig(), Imports()]
