"""A fleet: one call reaches many hosts, each through its own context; a host's failure is that host's outcome."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from ..config import Config
from ..context import ExecutionContext, connect
from ..errors import ContextClosed, HarnessError
from ..login import use_prompter
from ..results import ShellResult
from .hosts import Host, resolve_hosts
from .inventory import Inventory

__all__ = ["DEFAULT_FORKS", "Fleet", "HostOutcome", "fleet"]

T = TypeVar("T")
DEFAULT_FORKS = 64
"""The default maximum number of hosts that work at the same time."""


@dataclass(frozen=True, slots=True)
class HostOutcome(Generic[T]):
    """What one host answered: a result, or the error that prevented it."""

    host: str
    target: str
    result: T | None = None
    error: HarnessError | None = None
    started: bool = True
    """False if the host was left out, because too many hosts before it had failed."""

    @property
    def failed(self) -> bool:
        """Whether there is an error, or a command's result that is not a success."""
        return self.error is not None or (isinstance(self.result, ShellResult) and not self.result.ok)


class Fleet:
    """The hosts of :func:`fleet`; each is connected when it is first used."""

    def __init__(self, hosts: Sequence[Host], connections: Mapping[str, _Connection], tasks: TaskGroup) -> None:
        self.hosts = tuple(hosts)
        self._connections = connections
        self._tasks = tasks
        self._scopes: set[anyio.CancelScope] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hosts."""
        return tuple(host.name for host in self.hosts)

    def __len__(self) -> int:
        return len(self.hosts)

    def __getitem__(self, name: str) -> ExecutionContext:
        """Return the context of a host that is connected.

        Raises:
            KeyError: The fleet has no such host.
            ContextClosed: The host is not connected; :meth:`connected` connects it.
        """
        connection = self._connections[name]
        if connection.context is None:
            raise ContextClosed(
                f"{name} is not connected", target=connection.host.target, hint="await fleet.connected(name)"
            )
        return connection.context

    async def connected(self, name: str) -> ExecutionContext:
        """Return the context of a host; connect it first if that is needed.

        Raises:
            KeyError: The fleet has no such host.
            ConnectError: The host cannot be reached.
            ContextClosed: The fleet has been left.
        """
        return await self._connections[name].get(self._tasks)

    async def map(
        self,
        function: Callable[[ExecutionContext], Awaitable[T]],
        *,
        hosts: Sequence[str] | None = None,
        forks: int = DEFAULT_FORKS,
        max_fail: int | None = None,
        on_start: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[tuple[str, HostOutcome[T]], None]:
        """Call an async function with the context of each host and yield outcomes as they come.

        Leaving the loop early cancels what still runs.

        Args:
            function: A ``HarnessError`` of it is that host's outcome; any other exception ends the call and is raised.
            hosts: The names of the hosts; None is all.
            forks: The maximum number of hosts at the same time.
            max_fail: When this many hosts have failed, start no further one; None is no limit.
            on_start: Called with a host's name before it is connected.

        Raises:
            ValueError: A limit is less than 1.
            KeyError: The fleet has no such host.
        """

        async def work(name: str, context: ExecutionContext) -> T:
            return await function(context)

        async with aclosing(self._each(work, hosts, forks, max_fail, on_start)) as outcomes:
            async for outcome in outcomes:
                yield outcome.host, outcome

    async def run_shell(
        self,
        command: str,
        *,
        hosts: Sequence[str] | None = None,
        forks: int = DEFAULT_FORKS,
        max_fail: int | None = None,
        on_start: Callable[[str], None] | None = None,
        on_output: Callable[[str, bytes], None] | None = None,
        on_stderr: Callable[[str, bytes], None] | None = None,
        **options: Any,
    ) -> AsyncGenerator[tuple[str, HostOutcome[ShellResult]], None]:
        """Run a command on each host and yield ``(host, outcome)`` as they end.

        Args:
            command: Shell text.
            hosts: As for :meth:`map`, like ``forks``, ``max_fail`` and ``on_start``.
            on_output: Called with a host's name and each chunk of its output as it arrives.
            on_stderr: The same for standard error, where that is a separate stream.
            options: Further arguments of :meth:`ExecutionContext.run_shell`.
        """

        async def work(name: str, context: ExecutionContext) -> ShellResult:
            return await context.run_shell(
                command,
                on_output=on_output and partial(on_output, name),
                on_stderr=on_stderr and partial(on_stderr, name),
                **options,
            )

        async with aclosing(self._each(work, hosts, forks, max_fail, on_start)) as outcomes:
            async for outcome in outcomes:
                yield outcome.host, outcome

    async def gather(self, command: str, **options: Any) -> dict[str, HostOutcome[ShellResult]]:
        """Run a command on each host and return the outcomes by host, in the order of the hosts.

        Args:
            command: Shell text.
            options: Further arguments of :meth:`run_shell`.
        """
        found = {}
        async with aclosing(self.run_shell(command, **options)) as outcomes:
            async for name, outcome in outcomes:
                found[name] = outcome
        return {name: found[name] for name in self.names if name in found}

    def cancel(self) -> None:
        """Cancel every call that still runs, as if its loop had been left."""
        for scope in self._scopes:
            scope.cancel()

    async def _each(
        self,
        work: Callable[[str, ExecutionContext], Awaitable[T]],
        hosts: Sequence[str] | None,
        forks: int,
        max_fail: int | None,
        on_start: Callable[[str], None] | None,
    ) -> AsyncGenerator[HostOutcome[T], None]:
        if forks < 1 or (max_fail is not None and max_fail < 1):
            raise ValueError("forks and max_fail must be at least 1")
        chosen = [self._connections[name] for name in (self.names if hosts is None else hosts)]

        async def outcome_of(connection: _Connection) -> HostOutcome[T]:
            host = connection.host
            try:
                context = await connection.get(self._tasks)
                return HostOutcome(host.name, str(host.target), await work(host.name, context))
            except HarnessError as error:
                return HostOutcome(host.name, str(host.target), error=error)

        send, receive = anyio.create_memory_object_stream[HostOutcome[T]](forks)
        call = _Call(outcome_of, chosen, max_fail, on_start, send)
        self._scopes.add(call.scope)
        self._tasks.start_soon(call.run, forks)
        with receive:
            try:
                async for outcome in receive:
                    yield outcome
            finally:
                call.scope.cancel()
                with anyio.CancelScope(shield=True):
                    await call.over.wait()
                self._scopes.discard(call.scope)
        if call.failure is not None:
            raise call.failure


@dataclass
class _Connection:
    """One host's context, opened on first use by a task of its own, which also closes it."""

    host: Host
    open: Callable[[], AbstractAsyncContextManager[ExecutionContext]]
    closing: anyio.Event
    context: ExecutionContext | None = None
    _error: HarnessError | None = None
    _settled: anyio.Event | None = None

    async def get(self, tasks: TaskGroup) -> ExecutionContext:
        """Return the context; an earlier failure is tried again.

        Raises:
            HarnessError: The host cannot be reached.
        """
        if self.closing.is_set():
            raise ContextClosed("the fleet has been left", target=self.host.target)
        if self._settled is None or (self._settled.is_set() and self.context is None):
            self._settled = anyio.Event()
            tasks.start_soon(self._keep, self._settled)
        await self._settled.wait()
        if self.context is None:
            raise self._error or ContextClosed("the fleet has been left", target=self.host.target)
        return self.context

    async def _keep(self, settled: anyio.Event) -> None:
        try:
            with use_prompter(None):  # a question of one host must not stop the others
                async with self.open() as self.context:
                    settled.set()
                    await self.closing.wait()
        except HarnessError as error:
            self._error = error
        finally:
            self.context = None
            settled.set()


@dataclass
class _Call(Generic[T]):
    """One call on many hosts: a bounded number of workers, which take one host after the other."""

    outcome_of: Callable[[_Connection], Awaitable[HostOutcome[T]]]
    hosts: Sequence[_Connection]
    max_fail: int | None
    on_start: Callable[[str], None] | None
    send: MemoryObjectSendStream[HostOutcome[T]]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    over: anyio.Event = field(default_factory=anyio.Event)
    failures: int = 0
    failure: Exception | None = None
    """The exception that ended the call."""

    async def run(self, forks: int) -> None:
        """Work until every host has an outcome, or the scope is cancelled."""
        waiting = iter(self.hosts)
        try:
            with self.scope, self.send:
                async with anyio.create_task_group() as workers:
                    for _ in range(min(forks, len(self.hosts))):
                        workers.start_soon(self._work, waiting)
        finally:
            self.over.set()

    async def _work(self, waiting: Any) -> None:
        for connection in waiting:
            if self.max_fail is not None and self.failures >= self.max_fail:
                outcome = _left_out(connection, self.max_fail)
            else:
                if self.on_start is not None:
                    self.on_start(connection.host.name)
                try:
                    outcome = await self.outcome_of(connection)
                except Exception as error:  # raised again in the loop of the caller, outside of the task group
                    self.failure = self.failure or error
                    self.scope.cancel()
                    return
                self.failures += outcome.failed
            await self.send.send(outcome)


def _left_out(connection: _Connection, max_fail: int) -> HostOutcome[Any]:
    host = connection.host
    error = HarnessError(f"not started: {max_fail} {'host' if max_fail == 1 else 'hosts'} had failed")
    return HostOutcome(host.name, str(host.target), error=error, started=False)


@asynccontextmanager
async def fleet(
    hosts: str | Sequence[str] | Sequence[Host],
    *,
    tmux: bool | str = False,
    pane: str | None = None,
    config: Config | None = None,
    inventory: Inventory | None = None,
) -> AsyncIterator[Fleet]:
    """Open a fleet; each host is connected when it is first used, and logins ask nothing.

    Args:
        hosts: Patterns as :func:`resolve_hosts` reads them, or hosts.
        tmux: As for :func:`harness.connect`, like ``pane``.
        config: The settings; the defaults if None.
        inventory: The hosts, groups and addresses of a file.

    Raises:
        ConfigError: A pattern is wrong or matches no host.
    """
    settings = config or Config()
    given = [hosts] if isinstance(hosts, str) else list(hosts)
    known = tuple(host for host in given if isinstance(host, Host))
    if len(known) < len(given):
        patterns = [text for text in given if isinstance(text, str)]
        known += resolve_hosts(patterns, inventory, ssh_config=settings.ssh_config or None)
    closing = anyio.Event()
    connections = {
        host.name: _Connection(host, partial(connect, host.target, tmux=tmux, pane=pane, config=settings), closing)
        for host in known
    }
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        opened = Fleet(known, connections, tasks)
        try:
            yield opened
        except Exception as error:  # carried out of the task group, which would wrap it, and raised below
            failure = error
        opened.cancel()
        closing.set()
    if failure is not None:
        raise failure
