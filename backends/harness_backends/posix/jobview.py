"""Showing a command's output to whoever looks on, at a pace at which it can be looked at: the newest of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from harness.command import LiveView

__all__ = ["VIEW_REST", "ViewedStream"]

WAITING = 1 << 20
"""Bytes that wait to be shown; of more than that the oldest are passed over."""
PIECE = 64 << 10
RATE = 2 << 20
"""Bytes a second that are shown."""
VIEW_REST = 128 << 10
"""Bytes at the end of a stream that are shown after the command has ended."""


class ViewedStream:
    """One stream of one command. ``delivered`` counts, at ``number``, what was shown or passed over."""

    def __init__(self, view: LiveView, delivered: list[int], number: int) -> None:
        self._view = view
        self._delivered = delivered
        self._number = number
        self._waiting = bytearray()
        self._passed = 0
        self._more = anyio.Event()

    async def read(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        """Take everything that comes."""
        while data := await receive():
            self._waiting += data
            if (over := len(self._waiting) - WAITING) > 0:
                del self._waiting[:over]
                self._passed += over
            self._more.set()

    async def show(self) -> None:
        """Show it, for ever: until that is cancelled.

        Raises:
            Exception: what the view raised.
        """
        while True:
            if not self._waiting:
                self._more = anyio.Event()
                await self._more.wait()
            passed, self._passed = self._passed, 0
            piece = bytes(self._waiting[:PIECE])
            del self._waiting[:PIECE]
            self._delivered[self._number] += passed + len(piece)
            if passed:
                self._view.skipped(passed)
            self._view(piece)
            await anyio.sleep(len(piece) / RATE)
