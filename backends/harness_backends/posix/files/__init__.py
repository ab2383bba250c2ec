"""Files of a POSIX target, over its shell."""

from __future__ import annotations

__all__: list[str] = []
