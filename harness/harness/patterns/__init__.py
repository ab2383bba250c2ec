"""Wildcard patterns and ignore files, matched without backtracking."""

from __future__ import annotations

__all__: list[str] = []
