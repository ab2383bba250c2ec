"""The way to one server while it lasts: two streams of messages, and its end with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from .client_log import ServerLog

__all__ = ["Link"]


@dataclass(slots=True)
class Link:
    """What a session of the protocol works on. The streams carry the library's type of a message."""

    read: Any
    """Where the session receives."""
    write: Any
    """Where the session sends."""
    close: Callable[[], object]
    """Lets the session see the end of what it receives."""
    log: ServerLog
    ended: anyio.Event = field(default_factory=anyio.Event)
    reason: str = ""

    def end(self, reason: str) -> None:
        """Say that it has ended; the first reason stays. Whoever waits for an answer learns of it."""
        if self.ended.is_set():
            return
        self.reason = reason
        self.ended.set()
        self.close()
