"""Our tools as a server of the Model Context Protocol."""

from __future__ import annotations

__all__: list[str] = []
