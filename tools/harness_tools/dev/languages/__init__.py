"""Language support of ``sig`` and ``imports``: what declarations and imports look like."""

from __future__ import annotations

__all__: list[str] = []
