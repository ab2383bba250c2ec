"""What shell text would do, read before it runs."""

from __future__ import annotations

__all__: list[str] = []
