"""Commands on a POSIX target, over its shell: started, followed, kept and ended."""

from __future__ import annotations

__all__: list[str] = []
