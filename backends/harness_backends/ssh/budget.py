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
        self._open: set[Ticket] = set()
        self._peak = 0
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

    def opened(self, ticket: Ticket) -> None:
        """Take note that the session of a ticket is open."""
        self._open.add(ticket)
        self._peak = max(self._peak, len(self._open))

    def give_back(self, ticket: Ticket) -> None:
        """Return a ticket; doing so again does nothing."""
        if ticket in self._out:
            self._out.remove(ticket)
            self._open.discard(ticket)
            self._limiter.release_on_behalf_of(ticket)

    def refused(self, ticket: Ticket) -> bool:
        """Take note that the server refused a session, and return its ticket.

        True when other sessions of ours are open or being opened, so that waiting for their end can help.
        """
        self.give_back(ticket)
        if self._open:  # the most that ever were open at once: at this moment some may be on their way in or out
            self.limit = min(self.limit, self._peak)
            self._limiter.total_tokens = self.limit
        return bool(self._out)
