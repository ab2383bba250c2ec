"""Jobs on a POSIX target over its persistent shell: start, follow, store and terminate."""

from __future__ import annotations

__all__: list[str] = []
