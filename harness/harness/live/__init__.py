"""Running harness processes: how they announce themselves, and how dashboards see them and act through them."""

from __future__ import annotations

__all__: list[str] = []
