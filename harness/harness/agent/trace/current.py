"""Which request of which turn a task makes: set by what it publishes, read when the model is asked."""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["CURRENT"]

CURRENT: ContextVar[tuple[str, int]] = ContextVar("harness_current_request", default=("", 0))
"""The turn's id, and the number of the request in it."""
