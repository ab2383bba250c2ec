"""Paths as the kernel of the target resolves them, and hard denials of files."""

from __future__ import annotations

__all__: list[str] = []
