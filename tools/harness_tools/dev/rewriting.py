"""Exact changes of text files: replace, join, split, tabs, encodings, and a way back from deleting."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return []
