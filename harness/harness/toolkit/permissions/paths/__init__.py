"""Paths of the target as its kernel resolves them, and files that no answer opens."""

from __future__ import annotations

__all__: list[str] = []
