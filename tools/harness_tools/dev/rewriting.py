"""Exact changes of text files: replace, join, split, tabs, encodings, and a way back from deleting."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

from .delete import Delete
from .notab import NoTab
from .repfor import RepFor
from .splice import Splice
from .split import Split
from .tabcount import TabCount
from .utf8 import Utf8

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return [RepFor(), Splice(), Split(), TabCount(), NoTab(), Utf8(), Delete()]
