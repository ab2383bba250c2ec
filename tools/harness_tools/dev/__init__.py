"""Tools for working on source code."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

from . import reports, rewriting, sources

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    return [*rewriting.tools(), *sources.tools(), *reports.tools()]
