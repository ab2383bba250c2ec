"""Classification of shell commands before they run."""

from __future__ import annotations

__all__: list[str] = []
