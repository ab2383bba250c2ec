"""One command in a pane: wrapped and typed, followed to its end, or killed."""

from __future__ import annotations
