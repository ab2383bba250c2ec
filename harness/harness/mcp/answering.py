"""The requests of one client that are still being answered: no two at once have the same id.

Nobody could tell the answers of two such requests apart: one of them would get the output of another command.
"""

from __future__ import annotations

__all__ = ["TAKEN", "Answering"]

TAKEN = "a request with this id is still being answered; nothing was run"


class Answering:
    """The ids of its requests that have no answer yet."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def begin(self, request_id: str) -> bool:
        """Take an id; False when a request with it is still being answered."""
        if request_id in self._ids:
            return False
        self._ids.add(request_id)
        return True

    def end(self, request_id: str) -> None:
        """It was answered, or refused before it was begun."""
        self._ids.discard(request_id)
