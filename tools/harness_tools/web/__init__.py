"""The web: pages and searches, by the machine that harness runs on unless asked otherwise."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Tool

__all__ = ["tools"]


def tools() -> list[Tool[Any]]:
    """One of each."""
    from .fetch import FetchUrl
    from .search import WebSearch

    return [FetchUrl(), WebSearch()]
