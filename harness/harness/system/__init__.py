"""What is done on this machine, whatever the target is."""

from __future__ import annotations

__all__: list[str] = []
