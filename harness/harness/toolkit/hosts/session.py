"""The hosts of a session on a fleet: connected when they are first used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import copy

import anyio

from ...context import ExecutionContext
from ...errors import ContextClosed
from ...fleets import Fleet
from ...fleets.fleet_calls import DEFAULT_FORKS
from ..interfaces import ReadVersions

__all__ = ["FleetSession"]


class FleetSession:
    """The hosts that the calls of one session may name.

    Args:
        fleet: The hosts.
        reads: Returns the file versions that the session has read on a host.
        settle: Called with each host when it is first connected; determines the outcomes of calls from earlier
            processes.
    """

    def __init__(
        self,
        fleet: Fleet,
        reads: Callable[[ExecutionContext], ReadVersions],
        settle: Callable[[ExecutionContext], Awaitable[None]],
    ) -> None:
        self.fleet = fleet
        self.reads = reads
        self.running = anyio.CapacityLimiter(DEFAULT_FORKS)
        """Limits the hosts that work at the same time."""
        self._connecting = anyio.CapacityLimiter(DEFAULT_FORKS)
        self._settle = settle
        self._settled: set[str] = set()

    def with_reads(self, reads: Callable[[ExecutionContext], ReadVersions]) -> FleetSession:
        """Return the hosts for a sub-agent, which has read other file versions; the limits hold for both."""
        session = copy(self)
        session.reads = reads
        return session

    def target(self, name: str) -> str:
        """Return the URL of a host."""
        return next(str(host.target) for host in self.fleet.hosts if host.name == name)

    def identity(self, name: str) -> str:
        """Return the identity of a host, by which results are cached; its URL before it is connected."""
        try:
            return self.fleet[name].identity
        except (KeyError, ContextClosed):
            return self.target(name)

    async def connected(self, name: str) -> ExecutionContext:
        """Return the context of a host.

        Raises:
            HarnessError: The host cannot be reached.
        """
        async with self._connecting:
            context = await self.fleet.connected(name)
            if name not in self._settled:
                self._settled.add(name)
                await self._settle(context)
            return context
