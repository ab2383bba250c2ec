"""Profiles: the same tools as five other products show them. Each module is one; the toolkit imports what is named."""

from __future__ import annotations

__all__: list[str] = []
