"""Which connections hold a pane that was taken over, and the release of the pane when the last one is closed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

__all__ = ["HOLDING_ACTIONS", "LEASE_GRACE", "Lease", "PaneLeases"]

LEASE_GRACE = 10.0
"""Seconds in which the operator may connect again; then the pane is released."""

HOLDING_ACTIONS = ("take_pane", "type")
"""The actions after which a connection holds a pane."""

Lease = tuple[str, str, str]
"""The session, the pane, and the name of the operator."""


class PaneLeases:
    """The connections that hold panes: each through which the operator took the pane, or typed."""

    def __init__(self) -> None:
        self._holders: dict[Lease, set[object]] = {}

    def note(self, lease: Lease, action: str, holder: object) -> None:
        """Note an action that has succeeded.

        Args:
            lease: What it was about.
            action: The action; others than those of panes are ignored.
            holder: The connection that asked for it.
        """
        if action in HOLDING_ACTIONS:
            self._holders.setdefault(lease, set()).add(holder)
        elif action == "release_pane":
            self._holders.pop(lease, None)

    def is_held_by(self, holder: object) -> bool:
        """Return whether a connection holds a pane."""
        return any(holder in holders for holders in self._holders.values())

    async def release_left(self, holder: object, release: Callable[[Lease], Awaitable[object]]) -> None:
        """Release what only a closed connection holds after it.

        Args:
            holder: The connection.
            release: Releases a pane; it does not raise.
        """
        await anyio.sleep(LEASE_GRACE)
        for lease, holders in list(self._holders.items()):
            holders.discard(holder)
            if not holders and self._holders.get(lease) is holders:
                del self._holders[lease]
                await release(lease)
