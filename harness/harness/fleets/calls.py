"""A fleet: one call reaches many hosts, each through its own context; a host's failure is that host's outcome."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from ..command import DEFAULT_MAX_OUTPUT
from ..config import Config
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
from ..results import ShellResult, Status
from .hosts import Host, resolve_hosts
from .interrupted import result_of_interrupted
from .inventory import Inventory
from .starting import Count, HostInterrupted, HostNotStarted, Starting, resolve_count, split_into_waves

__all__ = ["DEFAULT_FORKS", "Fleet", "HostOutcome", "fleet", "run_named"]

log = logging.getLogger(__name__)
T = TypeVar("T")
FIRST_PAUSE, MAX_PAUSE = 1.0, 30.0
"""Seconds before the second login to a host that was not reached, and before any later one."""
NOT_SENT = (ConnectError, ConnectionLost, HostNotStarted)
"""The errors of a command that was not sent."""
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
    """Whether the command was sent, or may have been; for :meth:`Fleet.map`, whether the function was called."""

    @property
    def failed(self) -> bool:
        """Whether there is an error, or a command's result that is not a success."""
        return self.error is not None or (isinstance(self.result, ShellResult) and not self.result.ok)

    @property
    def left_out(self) -> bool:
        """Whether the host was not even tried: the limit of failed hosts, or :meth:`Fleet.stop_starting`."""
        return isinstance(self.error, HostNotStarted)

    @property
    def interrupted(self) -> bool:
        """Whether :meth:`Fleet.interrupt` ended what ran; of a command, whether any interrupt ended it."""
        if isinstance(self.result, ShellResult):
            return self.result.status is Status.INTERRUPTED
        return isinstance(self.error, HostInterrupted)


class Fleet:
    """The hosts of :func:`fleet`; each is connected when it is first used."""

    def __init__(self, hosts: Sequence[Host], connections: Mapping[str, _Connection], tasks: TaskGroup) -> None:
        self.hosts = tuple(hosts)
        self._connections = connections
        self._tasks = tasks
        self._calls: set[_Call[Any]] = set()

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

    def map(
        self,
        function: Callable[[ExecutionContext], Awaitable[T]],
        *,
        hosts: Sequence[str] | None = None,
        forks: int = DEFAULT_FORKS,
        max_fail: Count | None = None,
        rolling: Count | Sequence[Count] | None = None,
        retry_unreachable: int = 0,
        on_start: Callable[[str], None] | None = None,
        on_wave: Callable[[Sequence[str]], Awaitable[None]] | None = None,
    ) -> AsyncGenerator[tuple[str, HostOutcome[T]], None]:
        """Call an async function with the context of each host and yield outcomes as they come.

        Leaving the loop early cancels what still runs.

        Args:
            function: A ``HarnessError`` of it is that host's outcome; any other exception ends the call and is raised.
            hosts: The names of the hosts; None is all.
            forks: The maximum number of hosts at the same time.
            max_fail: When this many hosts (or ``"10%"`` of them) have failed, start no further one; None is no limit,
                or 1 with ``rolling``.
            rolling: The size of a wave, or of each wave (the last one repeats), as a number or a percentage of the
                hosts. A wave starts when the loop has got the outcomes of all hosts of the one before.
            retry_unreachable: How often to try again to reach a host, with growing pauses. The function is called
                once at most; a refused login is not tried again.
            on_start: Called with a host's name before it is connected.
            on_wave: Awaited before each wave but the first with the names of its hosts; it may call
                :meth:`stop_starting`.

        Raises:
            ValueError: A limit is less than 1, or not a percentage.
            KeyError: The fleet has no such host.
        """

        async def work(name: str, context: ExecutionContext) -> T:
            return await function(context)

        return self.map_named(
            work,
            hosts=hosts,
            forks=forks,
            max_fail=max_fail,
            rolling=rolling,
            retry_unreachable=retry_unreachable,
            on_start=on_start,
            on_wave=on_wave,
        )

    async def map_named(
        self,
        function: Callable[[str, ExecutionContext], Awaitable[T]],
        *,
        hosts: Sequence[str] | None = None,
        forks: int = DEFAULT_FORKS,
        max_fail: Count | None = None,
        rolling: Count | Sequence[Count] | None = None,
        retry_unreachable: int = 0,
        on_start: Callable[[str], None] | None = None,
        on_wave: Callable[[Sequence[str]], Awaitable[None]] | None = None,
        salvage: Callable[[ExecutionContext, str | None], Awaitable[T]] | None = None,
    ) -> AsyncGenerator[tuple[str, HostOutcome[T]], None]:
        """Call an async function with the name and the context of each host, as :meth:`map`.

        Args:
            function: As for :meth:`map`, but called with the host's name first.
            hosts: As for :meth:`map`, like all arguments up to ``on_wave``.
            salvage: Returns the result so far of a host that :meth:`interrupt` has ended, from its context and the job
                ID of its newest command (None: none was sent). Only for functions that run one command.
        """
        start = _Start(forks, max_fail, rolling, retry_unreachable, on_start, on_wave)
        chosen = [self._connections[name] for name in (self.names if hosts is None else hosts)]
        if any(connection.closing.is_set() for connection in chosen):
            raise ContextClosed("the fleet has been left")
        call = _Call(function, start, Starting(start.failure_limit(len(chosen))), self._tasks, salvage)
        self._calls.add(call)
        try:
            async with aclosing(call.run(split_into_waves(chosen, start.rolling))) as outcomes:
                async for outcome in outcomes:
                    yield outcome.host, outcome
        finally:
            self._calls.discard(call)

    def run_shell(
        self,
        command: str,
        *,
        hosts: Sequence[str] | None = None,
        forks: int = DEFAULT_FORKS,
        max_fail: Count | None = None,
        rolling: Count | Sequence[Count] | None = None,
        retry_unreachable: int = 0,
        on_start: Callable[[str], None] | None = None,
        on_wave: Callable[[Sequence[str]], Awaitable[None]] | None = None,
        on_output: Callable[[str, bytes], None] | None = None,
        on_stderr: Callable[[str, bytes], None] | None = None,
        **options: Any,
    ) -> AsyncGenerator[tuple[str, HostOutcome[ShellResult]], None]:
        """Run a command on each host and yield ``(host, outcome)`` as they end.

        Args:
            command: Shell text.
            hosts: As for :meth:`map`, like all arguments up to ``on_wave``.
            on_output: Called with a host's name and each chunk of its output as it arrives.
            on_stderr: The same for standard error, where that is a separate stream.
            options: Further arguments of :meth:`ExecutionContext.run_shell`; ``receive_early`` is True unless given.
        """
        options.setdefault("receive_early", True)

        work = partial(run_named, command=command, on_output=on_output, on_stderr=on_stderr, **options)
        max_output = options.get("max_output", DEFAULT_MAX_OUTPUT)
        salvage = partial(result_of_interrupted, command=command, max_output=max_output)
        return self.map_named(
            work,
            hosts=hosts,
            forks=forks,
            max_fail=max_fail,
            rolling=rolling,
            retry_unreachable=retry_unreachable,
            on_start=on_start,
            on_wave=on_wave,
            salvage=salvage,
        )

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

    def stop_starting(self, reason: str = "stop_starting() was called") -> int:
        """Let the calls that run start no further host, and wait for no login; what runs keeps running.

        Args:
            reason: Why, for the outcomes of the hosts that do not start.

        Returns:
            The number of hosts that still run.
        """
        for call in self._calls:
            call.starting.stop(reason)
        return len(self.running)

    @property
    def running(self) -> dict[str, str | None]:
        """The hosts on which calls run, each with the job ID of its command; None before the command is sent."""
        return {name: run.job_id for call in self._calls for name, run in call.starting.running.items()}

    def interrupt(self, reason: str = "interrupted") -> None:
        """Start no further host and interrupt what runs; the loops still get an outcome of every host.

        A command's outcome is then its result so far: ``interrupted``, or ``unknown`` where its end is not confirmed.

        Args:
            reason: Why, for the outcomes of the hosts that do not start.
        """
        for call in self._calls:
            call.starting.interrupt(reason)

    def cancel(self) -> None:
        """Cancel every call that still runs, as if its loop had been left."""
        for call in self._calls:
            call.cancel()


async def run_named(
    name: str,
    context: ExecutionContext,
    *,
    command: str,
    on_output: Callable[[str, bytes], None] | None,
    on_stderr: Callable[[str, bytes], None] | None,
    **options: Any,
) -> ShellResult:
    """Run a command on one host of a fleet.

    Args:
        name: The host's name, which ``on_output`` and ``on_stderr`` get in addition to each chunk.
        context: The host.
        command: Shell text.
        on_output: As for :meth:`Fleet.run_shell`, like ``on_stderr``.
        options: Further arguments of :meth:`ExecutionContext.run_shell`.
    """
    return await context.run_shell(
        command,
        on_output=on_output and partial(on_output, name),
        on_stderr=on_stderr and partial(on_stderr, name),
        **options,
    )


@dataclass
class _Connection:
    """One host's context, opened on first use by a task of its own, which also closes it."""

    host: Host
    open: Callable[[], AbstractAsyncContextManager[ExecutionContext]]
    closing: anyio.Event
    context: ExecutionContext | None = None
    _error: HarnessError | None = None
    _settled: anyio.Event | None = None
    _login: anyio.CancelScope | None = None

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

    def end_login(self) -> None:
        """Cancel the login if it is still going on: it could take as long as the timeout of connections."""
        if self._login is not None and self.context is None:
            self._login.cancel()

    async def _keep(self, settled: anyio.Event) -> None:
        try:
            with use_prompter(None), anyio.CancelScope() as self._login:  # a question must not stop the other hosts
                async with self.open() as self.context:
                    settled.set()
                    await self.closing.wait()
        except HarnessError as error:
            self._error = error
        finally:
            self.context = None
            settled.set()


@dataclass(frozen=True, slots=True)
class _Start:
    """How a call starts its hosts; see :meth:`Fleet.map`."""

    forks: int
    max_fail: Count | None
    rolling: Count | Sequence[Count] | None
    retries: int
    on_start: Callable[[str], None] | None
    on_wave: Callable[[Sequence[str]], Awaitable[None]] | None

    def __post_init__(self) -> None:
        if self.forks < 1 or self.retries < 0:
            raise ValueError("forks must be at least 1, and retry_unreachable at least 0")

    def failure_limit(self, total: int) -> int | None:
        """Return the number of failed hosts after which nothing more starts; None is no limit."""
        if self.max_fail is not None:
            return resolve_count(self.max_fail, total)
        return None if self.rolling is None else 1


@dataclass(eq=False)
class _Call(Generic[T]):
    """One call on many hosts: wave after wave, with a bounded number of workers that take one host after the other."""

    work: Callable[[str, ExecutionContext], Awaitable[T]]
    start: _Start
    starting: Starting
    tasks: TaskGroup
    salvage: Callable[[ExecutionContext, str | None], Awaitable[T]] | None
    """Returns the result of a host that was interrupted, from its context and job ID."""
    failure: Exception | None = None
    """The exception that ended the call."""
    _cancelled: bool = False
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """The scope of the current wave."""

    def cancel(self) -> None:
        """Cancel what runs; the call yields nothing more."""
        self._cancelled = True
        self._scope.cancel()

    async def run(self, waves: Sequence[Sequence[_Connection]]) -> AsyncGenerator[HostOutcome[T], None]:
        """Yield the outcome of every host, unless the call is cancelled."""
        for number, wave in enumerate(waves):
            if number and self.start.on_wave is not None and not self.starting.refusal:
                await self.start.on_wave([connection.host.name for connection in wave])
            if self._cancelled:
                return
            self._scope, over = anyio.CancelScope(), anyio.Event()
            send, receive = anyio.create_memory_object_stream[HostOutcome[T]](self.start.forks)
            self.tasks.start_soon(self._run_wave, wave, send, over)
            with receive:
                try:
                    async for outcome in receive:
                        yield outcome
                finally:
                    self._scope.cancel()
                    with anyio.CancelScope(shield=True):
                        await over.wait()
            if self.failure is not None:
                raise self.failure

    async def _run_wave(
        self, wave: Sequence[_Connection], send: MemoryObjectSendStream[HostOutcome[T]], over: anyio.Event
    ) -> None:
        waiting = iter(wave)
        try:
            with self._scope, send:
                async with anyio.create_task_group() as workers:
                    for _ in range(min(self.start.forks, len(wave))):
                        workers.start_soon(self._work, waiting, send)
        finally:
            over.set()

    async def _work(self, waiting: Iterator[_Connection], send: MemoryObjectSendStream[HostOutcome[T]]) -> None:
        for connection in waiting:
            try:
                outcome = await self._outcome_of(connection)
            except Exception as error:  # raised again in the loop of the caller, outside of the task group
                self.failure = self.failure or error
                self._scope.cancel()
                return
            if outcome.failed and not outcome.left_out:
                self.starting.record_failure()
            await send.send(outcome)

    async def _outcome_of(self, connection: _Connection) -> HostOutcome[T]:
        host, reached = connection.host, False
        try:
            context = await self._reach(connection)
            if context is None:
                raise HostNotStarted(f"not started: {self.starting.refusal}")
            reached = True
            return HostOutcome(host.name, str(host.target), await self._work_on(host.name, context))
        except HarnessError as error:
            sent = reached and not (self.salvage is not None and isinstance(error, NOT_SENT))
            return HostOutcome(host.name, str(host.target), error=error, started=sent)

    async def _work_on(self, name: str, context: ExecutionContext) -> T:
        """Return what the work returns; if it is interrupted, its result so far.

        Raises:
            HarnessError: The work raised it, or was interrupted without a result.
        """
        with self.starting.run(name) as run:
            with run.scope:
                return await self.work(name, context)
            if self.salvage is None:
                raise HostInterrupted("interrupted")
            return await self.salvage(context, run.job_id)

    async def _reach(self, connection: _Connection) -> ExecutionContext | None:
        """Return the context of a host; None if it may not start.

        Raises:
            HarnessError: The host cannot be reached.
        """
        if self.starting.refusal:
            return None
        if self.start.on_start is not None:
            self.start.on_start(connection.host.name)
        context = failure = None
        with self.starting.login():
            for attempt in range(self.start.retries + 1):
                try:
                    context = await connection.get(self.tasks)
                    break
                except HarnessError as error:
                    failure = error
                    if attempt == self.start.retries or not _may_be_reached_later(error):
                        break
                await _pause(connection.host.name, attempt, failure)
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


@asynccontextmanager
async def fleet(
    hosts: str | Sequence[str] | Sequence[Host],
    *,
    tmux: bool | str = False,
    pane: str | None = None,
    config: Config | None = None,
    inventory: Inventory | None = None,
    create: bool = True,
) -> AsyncIterator[Fleet]:
    """Open a fleet; each host is connected when it is first used, and logins ask nothing.

    Args:
        hosts: Patterns as :func:`resolve_hosts` reads them, or hosts.
        tmux: As for :func:`harness.connect`, like ``pane``.
        config: The settings; the defaults if None.
        inventory: The hosts, groups and addresses of a file.
        create: As for :func:`harness.connect`.

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
        host.name: _Connection(
            host, partial(connect, host.target, tmux=tmux, pane=pane, config=settings, create=create), closing
        )
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
        for connection in connections.values():
            connection.end_login()
    if failure is not None:
        raise failure
