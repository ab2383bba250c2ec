"""How many sessions may be open on one connection at once: sshd's MaxSessions, 10 by default, 1 at some sites.

The number is learnt from the server's refusals. What is known is the most that were certainly open at once, so a limit
is never too high for longer than it takes to be refused; other harnesses share the connection, so it may fall below
that, and is tried upwards again after a while.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

__all__ = ["GROW_AFTER", "ChannelLease", "ChannelLimiter"]

GROW_AFTER = 5.0
"""Seconds without a refusal after which one session more is tried, if somebody waits for one."""


class ChannelLease:
    """The right to one session."""

    def __init__(self, ends: int) -> None:
        self.ends = ends
        """How many sessions had ended when this was given out."""
        self.is_over: Callable[[], bool] | None = None
        """Tells whether the session has ended, once it is open."""
        self.is_refused = False
        """True while its session was refused and is to be asked for again."""

    @property
    def is_open(self) -> bool:
        """True for a session that is certainly open."""
        return self.is_over is not None and not self.is_over()

    @property
    def may_be_open(self) -> bool:
        """True for one that is open, or may be without our having heard of it."""
        return self.is_open or (self.is_over is None and not self.is_refused)


class ChannelLimiter:
    """Tickets for sessions, given out in the order of asking."""

    def __init__(self, limit: int) -> None:
        self._limiter = anyio.CapacityLimiter(limit)
        self._most = limit
        self._out: set[ChannelLease] = set()
        self._peak = 0
        self._ends = 0
        self._quiet_since: float | None = None

    @property
    def limit(self) -> int:
        """How many tickets there are."""
        return int(self._limiter.total_tokens)

    async def take(self, timeout: float) -> ChannelLease:
        """Wait for a ticket.

        Raises:
            TimeoutError: none came back for ``timeout`` seconds.
        """
        ticket = ChannelLease(self._ends)
        with anyio.fail_after(timeout):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._grow_in_time)
                await self._limiter.acquire_on_behalf_of(ticket)
                tasks.cancel_scope.cancel()
        ticket.ends = self._ends
        self._out.add(ticket)
        return ticket

    async def _grow_in_time(self) -> None:
        """Try one ticket more now and then, while somebody waits."""
        while self._quiet_since is not None and self.limit < self._most:
            due = self._quiet_since + GROW_AFTER
            if anyio.current_time() >= due:
                self._quiet_since = anyio.current_time()
                self._limiter.total_tokens = self.limit + 1
            else:
                await anyio.sleep_until(due)

    def opened(self, ticket: ChannelLease, is_over: Callable[[], bool]) -> None:
        """Take note that the session of a ticket is open, until ``is_over``."""
        ticket.is_over, ticket.is_refused = is_over, False
        self._peak = max(self._peak, sum(other.is_open for other in self._out))
        if self._quiet_since is not None and self.limit < self._peak:
            self._limiter.total_tokens = min(self._peak, self._most)

    def give_back(self, ticket: ChannelLease) -> None:
        """Return a ticket; doing so again does nothing."""
        if ticket in self._out:
            self._out.remove(ticket)
            self._ends += ticket.is_over is not None
            self._limiter.release_on_behalf_of(ticket)

    def note_transient_refusal(self, ticket: ChannelLease) -> None:
        """Take note that the server refused a session; its ticket is kept, to ask again in a moment."""
        ticket.is_refused = True
        self._learn(certain=False)  # it may count a session that has just ended

    def refused(self, ticket: ChannelLease) -> bool:
        """Take note that the server goes on refusing a session, and return its ticket.

        True when asking again can help: other sessions of ours are open or being opened, or have ended meanwhile.
        """
        self.give_back(ticket)
        unchanged = ticket.ends == self._ends
        self._learn(certain=unchanged)
        return bool(self._out) or not unchanged

    def _learn(self, *, certain: bool) -> None:
        now = sum(other.may_be_open for other in self._out)
        if not now:
            return
        if certain:
            self._peak = min(self._peak, now)
        self._quiet_since = anyio.current_time()
        self._limiter.total_tokens = min(self.limit, max(now, self._peak))
