"""Forwarding over an SSH connection, by the engine that the host's connection uses."""

from __future__ import annotations

__all__: list[str] = []
