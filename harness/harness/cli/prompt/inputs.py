"""What the operator does, in the order in which they did it, until somebody works on it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator

import anyio

from .surface import Input

__all__ = ["Inputs"]


class Inputs:
    """A queue with one reader. It keeps everything, also what is done before there is a reader."""

    def __init__(self) -> None:
        self._waiting: deque[Input] = deque()
        self._more = anyio.Event()

    def put(self, what: Input) -> None:
        """The operator has done that."""
        self._waiting.append(what)
        self._more.set()

    async def taken(self) -> AsyncIterator[Input]:
        """One after the other, without end."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            self._more = anyio.Event()
            await self._more.wait()
