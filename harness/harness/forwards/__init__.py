"""Forwards: TCP ports and Unix sockets through a target's SSH connection, in both directions, kept over reconnects."""

from __future__ import annotations

__all__: list[str] = []
