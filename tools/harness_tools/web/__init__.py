"""Web tools: fetch pages and search, by default from harness's machine."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """Return one of each tool."""
    from .fetch import FetchUrl
    from .search import WebSearch

    return [FetchUrl(), WebSearch()]
