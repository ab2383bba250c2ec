"""Files of a POSIX target over its persistent shell."""

from __future__ import annotations

__all__: list[str] = []
