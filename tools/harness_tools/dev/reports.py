"""What tools of programmers report: errors, merge conflicts, differences, JSON."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

from .cleandiff import CleanDiff
from .conflicts import Conflicts
from .errs import Errs
from .transform import Transform

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return [Errs(), Conflicts(), CleanDiff(), Transform()]
