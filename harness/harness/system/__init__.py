"""Files, databases, processes and tasks on this machine, independent of the target."""

from __future__ import annotations

__all__: list[str] = []
