"""What the tools for sources know of each language: how its declarations and its imports look."""

from __future__ import annotations

__all__: list[str] = []
