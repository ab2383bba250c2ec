"""Client of MCP servers: offers their tools to agents."""

from __future__ import annotations

__all__: list[str] = []
