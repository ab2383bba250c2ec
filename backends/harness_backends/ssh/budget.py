"""How many sessions may be open on one connection at once: sshd's MaxSessions, 10 by default, 1 at some sites."""

from __future__ import annotations

import anyio

__all__ = ["SessionBudget", "Ticket"]


class Ticket:
    """The right to one session."""


class SessionBudget:
    """Tickets for sessions, given out in the order of asking."""

    def __init__(self, limit: int) -> None:
        self._limiter = anyio.CapacityLimiter(limit)
        self._out: set[Ticket] = set()
        self.limit = limit
        """How many tickets there are."""

    async def take(self, timeout: float) -> Ticket:
        """Wait for a ticket.

        Raises:
            TimeoutError: none came back for ``timeout`` seconds.
        """
        ticket = Ticket()
        with anyio.fail_after(timeout):
            await self._limiter.acquire_on_behalf_of(ticket)
        self._out.add(ticket)
        return ticket

    def give_back(self, ticket: Ticket) -> None:
        """Return a ticket; doing so again does nothing."""
        if ticket in self._out:
            self._out.remove(ticket)
            self._limiter.release_on_behalf_of(ticket)

    def refused(self, ticket: Ticket) -> bool:
        """Take note that the server refused a session, and return its ticket.

        True when sessions of ours are open, so that waiting for the end of one can help.
        """
        self.give_back(ticket)
        if not self._out:
            return False
        self.limit = min(self.limit, len(self._out))
        self._limiter.total_tokens = self.limit
        return True
