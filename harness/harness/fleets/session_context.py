"""The context of a session that works on a fleet: it has no target of its own, so each operation names its hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..backend import Capabilities
from ..config import Config
from ..context import ExecutionContext, _Use
from ..errors import UnsupportedOperation
from ..results import Job
from ..target import FLEET_SCHEME, Hop, Target
from ..terminal import Terminal
from ..wording import counted
from .fleet_calls import Fleet
from .host_names import fold_names

__all__ = ["FleetContext", "fleet_target"]


def fleet_target(names: Iterable[str]) -> Target:
    """Return the target of a session on many hosts: ``fleet://web[1-3]``; it cannot be connected to."""
    return Target((Hop(FLEET_SCHEME, fold_names(names)),))


class _NoTarget(_Use):
    """The use of a context without a target: every operation is refused."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def check(self) -> None:
        raise UnsupportedOperation("this session works on many hosts", target=self._target, hint="name the hosts")

    @contextmanager
    def during(self) -> Iterator[None]:
        self.check()
        yield

    async def close(self) -> None:
        """Do nothing: the fleet closes the connections."""


class FleetContext(ExecutionContext):
    """A fleet in the place of one target, for executors, agents and servers.

    Tools of the session run on the hosts that each call names. The operations of the context itself raise
    :class:`UnsupportedOperation`: nothing runs on this machine in place of a host.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._config = Config()
        self._pane = None
        self._target = fleet_target(fleet.names)
        self._use = _NoTarget(self._target)

    @property
    def _terminal(self) -> Terminal | None:
        return None

    @property
    def target(self) -> Target:
        """The folded hosts, as ``fleet://web[1-3]``; it cannot be connected to."""
        return self._target

    @property
    def identity(self) -> str:
        """As :attr:`target`."""
        return str(self._target)

    @property
    def has_terminal(self) -> bool:
        """False: each host has its own terminal."""
        return False

    @property
    def has_panes(self) -> bool:
        """False, as for :attr:`has_terminal`."""
        return False

    @property
    def capabilities(self) -> Capabilities:
        """Nothing: hosts differ."""
        return Capabilities()

    async def jobs(self) -> list[Job]:
        """Return no jobs: each host has its own."""
        return []

    def describe(self) -> str:
        """Return the number of hosts and their names."""
        count = len(self.fleet)
        return f"{counted(count, 'host')}: {self._target.last.host}"
