"""The limit of open sessions on one connection: sshd's MaxSessions, 10 by default, 1 at some sites.

The limit is learned from the server's refusals: it is the largest number of sessions that were certainly open at once.
Other harness processes share the connection, so the limit may fall below that, and is raised again after a while.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

__all__ = ["GROW_AFTER", "ChannelLease", "ChannelLimiter"]

GROW_AFTER = 5.0
"""Seconds without a refusal after which one more session is tried, if a caller waits for one."""


class ChannelLease:
    """The right to one session."""

    def __init__(self, ends: int) -> None:
        self.ends = ends
        """How many sessions had ended when this lease was issued."""
        self.is_over: Callable[[], bool] | None = None
        """Returns whether the session has ended; None until it is open."""
        self.is_refused = False
        """True while its session was refused and will be retried."""

    @property
    def is_open(self) -> bool:
        """True if the session is certainly open."""
        return self.is_over is not None and not self.is_over()

    @property
    def may_be_open(self) -> bool:
        """True if the session is open, or is being opened."""
        return self.is_open or (self.is_over is None and not self.is_refused)


class ChannelLimiter:
    """A limiter that issues leases for sessions, first come, first served."""

    def __init__(self, limit: int) -> None:
        self._limiter = anyio.CapacityLimiter(limit)
        self._most = limit
        self._out: set[ChannelLease] = set()
        self._peak = 0
        self._ends = 0
        self._quiet_since: float | None = None

    @property
    def limit(self) -> int:
        """The current number of leases."""
        return int(self._limiter.total_tokens)

    async def take(self, timeout: float) -> ChannelLease:
        """Wait for a lease.

        Raises:
            TimeoutError: no lease was returned within ``timeout`` seconds.
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
        """Raise the limit by one at intervals while a caller waits."""
        while self._quiet_since is not None and self.limit < self._most:
            due = self._quiet_since + GROW_AFTER
            if anyio.current_time() >= due:
                self._quiet_since = anyio.current_time()
                self._limiter.total_tokens = self.limit + 1
            else:
                await anyio.sleep_until(due)

    def opened(self, ticket: ChannelLease, is_over: Callable[[], bool]) -> None:
        """Record that the session of a lease is open, until ``is_over``."""
        ticket.is_over, ticket.is_refused = is_over, False
        self._peak = max(self._peak, sum(other.is_open for other in self._out))
        if self._quiet_since is not None and self.limit < self._peak:
            self._limiter.total_tokens = min(self._peak, self._most)

    def give_back(self, ticket: ChannelLease) -> None:
        """Return a lease; returning it again has no effect."""
        if ticket in self._out:
            self._out.remove(ticket)
            self._ends += ticket.is_over is not None
            self._limiter.release_on_behalf_of(ticket)

    def note_transient_refusal(self, ticket: ChannelLease) -> None:
        """Record that the server refused a session; its lease is kept for a retry."""
        ticket.is_refused = True
        self._learn(certain=False)  # it may count a session that has just ended

    def refused(self, ticket: ChannelLease) -> bool:
        """Record that the server keeps refusing a session, and return its lease.

        Returns:
            True if a retry can help: other sessions of this process are open or being opened, or have ended meanwhile.
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
