"""Tool profiles: the tools as five other products present them, one module each, loaded by the toolkit on demand."""

from __future__ import annotations

__all__: list[str] = []
