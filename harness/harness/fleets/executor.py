"""Where the calls of a fleet run: the interface of executors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from anyio.abc import TaskGroup

from ..config import Config
from ..context import ExecutionContext
from .hosts import Host
from .outcomes import HostOutcome
from .starting import Starting, StartOptions

__all__ = ["ConnectOptions", "FleetExecutor", "HostRunner", "HostWork"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """How the hosts of a fleet are connected; the fields are arguments of :func:`harness.connect`."""

    config: Config
    tmux: bool | str = False
    pane: str | None = None
    create: bool = True


@dataclass(frozen=True, slots=True)
class HostWork(Generic[T]):
    """What a call does on each host.

    ``function`` gets the host's name and its context. ``salvage`` returns the result so far of a host that was
    interrupted, from its name, its context and the job ID of its newest command (None: none was sent).
    """

    function: Callable[[str, ExecutionContext], Awaitable[T]]
    salvage: Callable[[str, ExecutionContext, str | None], Awaitable[T]] | None = None


class HostRunner(Protocol):
    """Connects the hosts of one open fleet and runs calls on them."""

    def context(self, host: Host) -> ExecutionContext | None:
        """Return the context of a host if it is connected in this process."""
        ...

    async def connected(self, host: Host) -> ExecutionContext:
        """Return the context of a host; connect it first if that is needed.

        Raises:
            ConnectError: The host cannot be reached.
            ContextClosed: The fleet has been left.
            UnsupportedOperation: Hosts are not connected in this process.
        """
        ...

    def start_call(
        self, work: HostWork[T], options: StartOptions, starting: Starting
    ) -> Callable[[Host], Awaitable[HostOutcome[T]]]:
        """Return the function that does the work of a call on one host.

        It raises only what ends the whole call; the errors of a host are its outcome.

        Raises:
            ContextClosed: The fleet has been left.
            UnsupportedOperation: The work can only be done in this process.
        """
        ...


class FleetExecutor(Protocol):
    """Where the calls of a fleet run; None in :func:`harness.fleet` is this process."""

    def open(
        self, hosts: Sequence[Host], options: ConnectOptions, tasks: TaskGroup
    ) -> AbstractAsyncContextManager[HostRunner]:
        """Open the hosts of a fleet.

        Args:
            hosts: The hosts.
            options: How they are connected.
            tasks: Runs tasks until the fleet is left.

        Raises:
            HarnessError: The hosts cannot be used there.
        """
        ...
