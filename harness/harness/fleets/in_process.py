"""The executor of this process: each host has its own context here."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from ..context import ExecutionContext, connect
from ..errors import (
    AuthenticationError,
    ConnectError,
    ConnectionLost,
    ContextClosed,
    HarnessError,
    HostKeyError,
    TargetGone,
)
from ..login import use_prompter
from .executor import ConnectOptions, HostWork
from .hosts import Host
from .outcomes import HostOutcome
from .starting import HostInterrupted, HostNotStarted, Starting, StartOptions

__all__ = ["InProcess", "UseContext"]

log = logging.getLogger(__name__)
T = TypeVar("T")
FIRST_PAUSE, MAX_PAUSE = 1.0, 30.0
"""Seconds before the second login to a host that was not reached, and before any later one."""
NOT_SENT = (ConnectError, ConnectionLost, HostNotStarted)
"""The errors of a command that was not sent."""


UseContext = Callable[[str, ExecutionContext], AbstractAsyncContextManager[None]]
"""Gets a host's name and its context; entered once it is connected, and left before it is closed."""


class InProcess:
    """Connects the hosts in this process.

    Args:
        use_context: What surrounds the use of each host's context, such as a recording of it.
    """

    def __init__(self, use_context: UseContext | None = None) -> None:
        self._use_context = use_context

    @asynccontextmanager
    async def open(
        self, hosts: Sequence[Host], options: ConnectOptions, tasks: TaskGroup
    ) -> AsyncIterator[_ConnectedHosts]:
        """As :meth:`FleetExecutor.open`."""
        closing = anyio.Event()
        connections = {host.name: _Connection(host, partial(self._connect, host, options), closing) for host in hosts}
        try:
            yield _ConnectedHosts(connections, closing, tasks)
        finally:
            closing.set()
            for connection in connections.values():
                connection.end_login()

    @asynccontextmanager
    async def _connect(self, host: Host, options: ConnectOptions) -> AsyncIterator[ExecutionContext]:
        tmux, pane, config, create = options.tmux, options.pane, options.config, options.create
        async with (
            connect(host.target, tmux=tmux, pane=pane, config=config, create=create) as context,
            nullcontext() if self._use_context is None else self._use_context(host.name, context),
        ):
            yield context


class _ConnectedHosts:
    """The hosts of one open fleet in this process."""

    def __init__(self, connections: Mapping[str, _Connection], closing: anyio.Event, tasks: TaskGroup) -> None:
        self._connections = connections
        self._closing = closing
        self._tasks = tasks

    def context(self, host: Host) -> ExecutionContext | None:
        return self._connections[host.name].context

    async def connected(self, host: Host) -> ExecutionContext:
        return await self._connections[host.name].get(self._tasks)

    def start_call(
        self, work: HostWork[T], options: StartOptions, starting: Starting
    ) -> Callable[[Host], Awaitable[HostOutcome[T]]]:
        if self._closing.is_set():
            raise ContextClosed("the fleet has been left")
        return _Call(work, options, starting, self.connected).outcome_of


@dataclass(slots=True)
class _Connection:
    """One host's context, opened on first use by a task of its own, which also closes it."""

    host: Host
    open: Callable[[], AbstractAsyncContextManager[ExecutionContext]]
    closing: anyio.Event
    context: ExecutionContext | None = None
    _error: HarnessError | None = None
    _settled: anyio.Event | None = None
    """Set when the login has ended; None before it starts: an idle host takes little memory."""
    _login: anyio.CancelScope | None = None

    async def get(self, tasks: TaskGroup) -> ExecutionContext:
        """Return the context; an earlier failure is tried again.

        Raises:
            HarnessError: The host cannot be reached.
        """
        if self.closing.is_set():
            raise ContextClosed("the fleet has been left", target=self.host.target)
        if self.context is not None:
            return self.context
        if self._settled is None:
            self._settled = anyio.Event()
            with use_prompter(None):  # a question must not stop the other hosts
                tasks.start_soon(self._keep, name=self.host.name)
        await self._settled.wait()
        if self.context is None:
            raise self._error or ContextClosed("the fleet has been left", target=self.host.target)
        return self.context

    def end_login(self) -> None:
        """Cancel the login if it is still going on: it could take as long as the timeout of connections."""
        if self._login is not None and self.context is None:
            self._login.cancel()

    async def _keep(self) -> None:
        try:
            with anyio.CancelScope() as self._login:
                async with self.open() as self.context:
                    self._settle()
                    await self.closing.wait()
        except HarnessError as error:
            self._error = error
        finally:
            self.context = None
            self._settle()

    def _settle(self) -> None:
        """Wake those who wait for the login, if it has not ended before."""
        settled, self._settled = self._settled, None
        if settled is not None:
            settled.set()


@dataclass(frozen=True, slots=True)
class _Call(Generic[T]):
    work: HostWork[T]
    options: StartOptions
    starting: Starting
    connected: Callable[[Host], Awaitable[ExecutionContext]]

    async def outcome_of(self, host: Host) -> HostOutcome[T]:
        reached = False
        try:
            context = await self._reach(host)
            if context is None:
                raise HostNotStarted(f"not started: {self.starting.refusal}")
            reached = True
            return HostOutcome(host.name, str(host.target), await self._work_on(host.name, context))
        except HarnessError as error:
            sent = reached and not (self.work.salvage is not None and isinstance(error, NOT_SENT))
            return HostOutcome(host.name, str(host.target), error=error, started=sent)

    async def _work_on(self, name: str, context: ExecutionContext) -> T:
        """Return what the work returns; if it is interrupted, its result so far.

        Raises:
            HarnessError: The work raised it, or was interrupted without a result.
        """
        with self.starting.run(name) as run:
            with run.scope:
                return await self.work.function(name, context)
            if self.work.salvage is None:
                raise HostInterrupted("interrupted")
            return await self.work.salvage(name, context, run.job_id)

    async def _reach(self, host: Host) -> ExecutionContext | None:
        """Return the context of a host; None if it may not start.

        Raises:
            HarnessError: The host cannot be reached.
        """
        if self.starting.refusal:
            return None
        if self.options.on_start is not None:
            self.options.on_start(host.name)
        context = failure = None
        with self.starting.login():
            for attempt in range(self.options.retries + 1):
                try:
                    context = await self.connected(host)
                    break
                except HarnessError as error:
                    failure = error
                    if attempt == self.options.retries or not _may_be_reached_later(error):
                        break
                await _pause(host.name, attempt, failure)
        if context is None and failure is not None:
            raise failure
        return None if self.starting.refusal else context


def _may_be_reached_later(error: HarnessError) -> bool:
    """Return whether another login may succeed; a refused one may not, and could lock the account."""
    refused = isinstance(error, AuthenticationError | HostKeyError | TargetGone)
    return isinstance(error, ConnectError | ConnectionLost) and not refused


async def _pause(name: str, attempt: int, error: HarnessError) -> None:
    """Wait before the next login: twice as long each time, and not the same for all hosts that failed together."""
    spread = random.uniform(0.75, 1.25)  # noqa: S311  # not a secret
    seconds = min(FIRST_PAUSE * 2 ** min(attempt, 10), MAX_PAUSE) * spread
    log.info("%s: not reached, next try in %.1f s: %s", name, seconds, error.message)
    await anyio.sleep(seconds)
