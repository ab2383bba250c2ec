"""Which connection holds a pane that was taken over, and the release of the pane when the connection is closed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

__all__ = ["LEASE_GRACE", "Lease", "PaneLeases"]

LEASE_GRACE = 10.0
"""Seconds in which the operator may connect again; then the pane is released."""

Lease = tuple[str, str, str]
"""The session, the pane, and the name of the operator."""


class PaneLeases:
    """The connections that hold panes: the last one through which the operator took the pane, or typed."""

    def __init__(self) -> None:
        self._holders: dict[Lease, object] = {}

    def note(self, lease: Lease, action: str, holder: object) -> None:
        """Note an action that has succeeded.

        Args:
            lease: What it was about.
            action: The action; others than those of panes are ignored.
            holder: The connection that asked for it.
        """
        if action in ("take_pane", "type"):
            self._holders[lease] = holder
        elif action == "release_pane":
            self._holders.pop(lease, None)

    def is_held_by(self, holder: object) -> bool:
        """Return whether a connection holds a pane."""
        return any(one is holder for one in self._holders.values())

    async def release_left(self, holder: object, release: Callable[[Lease], Awaitable[object]]) -> None:
        """Release what a closed connection holds after it, unless another one has taken its place by then.

        Args:
            holder: The connection.
            release: Releases a pane; it does not raise.
        """
        await anyio.sleep(LEASE_GRACE)
        for lease in [one for one, found in self._holders.items() if found is holder]:
            if self._holders.pop(lease, None) is not None:
                await release(lease)
