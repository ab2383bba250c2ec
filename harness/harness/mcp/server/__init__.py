"""The MCP server, which offers harness's tools."""

from __future__ import annotations

from ...deprecated_names import moved_names

__all__: list[str] = []

__getattr__ = moved_names(__name__, ".server")
