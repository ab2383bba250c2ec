"""Permission rules, their settings and their file."""

from __future__ import annotations

from ....deprecated_names import moved_names

__all__: list[str] = []

__getattr__ = moved_names(__name__, ".rule")
