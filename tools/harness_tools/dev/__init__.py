"""Tools for source code, text files and program output."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

from .clean_diff import CleanDiff
from .conflicts import Conflicts
from .delete import Delete
from .errors import Errs
from .imports import Imports
from .lines import NoTab, Splice, Split, TabCount
from .recode import Utf8
from .replace import RepFor
from .signatures import Sig
from .transform import Transform

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """Return one of each tool."""
    return [
        *(RepFor(), Splice(), Split(), TabCount(), NoTab(), Utf8(), Delete()),
        *(Sig(), Imports()),
        *(Errs(), Conflicts(), CleanDiff(), Transform()),
    ]
