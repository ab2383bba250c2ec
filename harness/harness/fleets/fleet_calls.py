"""A fleet: one call reaches many hosts, each through its own context; a host's failure is that host's outcome."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from ..config import Config
from ..context import ExecutionContext
from ..errors import ContextClosed
from ..results import ShellResult
from ..system.background_tasks import open_task_group
from .executor import ConnectOptions, FleetExecutor, HostRunner, HostWork
from .host_commands import CommandCall, HostCommand, OnJob, OnOutput
from .hosts import Host, choose_hosts, resolve_hosts
from .in_process import InProcess
from .inventories.inventory import Inventory
from .outcomes import HostOutcome
from .starting import Count, Starting, StartOptions, split_into_waves

__all__ = ["DEFAULT_FORKS", "Fleet", "HostOutcome", "fleet"]

T = TypeVar("T")
DEFAULT_FORKS = 64
"""The default maximum number of hosts that work at the same time."""


class Fleet:
    """The hosts of :func:`fleet`; each is connected when it is first used."""

    def __init__(
        self,
        hosts: Sequence[Host],
        runner: HostRunner,
        tasks: TaskGroup,
        inventory: Inventory | None = None,
        *,
        has_terminal: bool = False,
    ) -> None:
        self.hosts = tuple(hosts)
        self.inventory = inventory
        self.has_terminal = has_terminal
        self._by_name = {host.name: host for host in hosts}
        self._runner = runner
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
        host = self._by_name[name]
        context = self._runner.context(host)
        if context is None:
            raise ContextClosed(f"{name} is not connected", target=host.target, hint="await fleet.connected(name)")
        return context

    def is_connected(self, name: str) -> bool:
        """Return whether a host is connected now.

        Raises:
            KeyError: The fleet has no such host.
        """
        return self._runner.context(self._by_name[name]) is not None

    def choose(self, pattern: str) -> tuple[str, ...]:
        """Return the names of the hosts of this fleet that a pattern means, in the order in which it names them.

        Args:
            pattern: As :func:`resolve_hosts` reads it, but only about these hosts: ``*`` is all of them.

        Raises:
            ConfigError: The pattern is wrong, or names no host of this fleet; the hint lists the hosts.
        """
        return choose_hosts(pattern, self.hosts, self.inventory)

    async def connected(self, name: str) -> ExecutionContext:
        """Return the context of a host; connect it first if that is needed.

        Raises:
            KeyError: The fleet has no such host.
            ConnectError: The host cannot be reached.
            ContextClosed: The fleet has been left.
            UnsupportedOperation: Hosts are connected by another process, as the fleet's executor decides.
        """
        return await self._runner.connected(self._by_name[name])

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
        salvage: Callable[[str, ExecutionContext, str | None], Awaitable[T]] | None = None,
    ) -> AsyncGenerator[tuple[str, HostOutcome[T]], None]:
        """Call an async function with the name and the context of each host, as :meth:`map`.

        Args:
            function: As for :meth:`map`, but called with the host's name first.
            hosts: As for :meth:`map`, like all arguments up to ``on_wave``.
            salvage: Returns the result so far of a host that :meth:`interrupt` has ended, from its name, its context
                and the job ID of its newest command (None: none was sent). Only for functions that run one command.
        """
        options = StartOptions(forks, max_fail, rolling, retry_unreachable, on_start, on_wave)
        chosen = [self._by_name[name] for name in (self.names if hosts is None else hosts)]
        starting = Starting(options.failure_limit(len(chosen)))
        run_on = self._runner.start_call(HostWork(function, salvage), options, starting)
        call = _Call(run_on, options, starting, self._tasks)
        self._calls.add(call)
        try:
            async with aclosing(call.run(split_into_waves(chosen, options.rolling))) as outcomes:
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
        stdin, key = options.pop("stdin", None), options.pop("key", None)
        asked = HostCommand(command, key, stdin, options)
        return self.ask(
            lambda name: asked,
            hosts=hosts,
            forks=forks,
            max_fail=max_fail,
            rolling=rolling,
            retry_unreachable=retry_unreachable,
            on_start=on_start,
            on_wave=on_wave,
            on_output=on_output,
            on_stderr=on_stderr,
        )

    def ask(
        self,
        command_for: Callable[[str], HostCommand],
        *,
        on_output: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
        on_job: OnJob | None = None,
        **arguments: Any,
    ) -> AsyncGenerator[tuple[str, HostOutcome[ShellResult]], None]:
        """Ask each host for the result of a command and yield ``(host, outcome)`` as they end.

        Args:
            command_for: Returns what is asked of a host, by its name.
            on_output: As for :meth:`run_shell`, like ``on_stderr``.
            on_job: Called with a host's name, its context and the ID of its job before the command is sent.
            arguments: As for :meth:`map`.
        """
        call = CommandCall(command_for, on_output, on_stderr, on_job)
        return self.map_named(call, salvage=call.result_of_interrupted, **arguments)

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


@dataclass(eq=False)
class _Call(Generic[T]):
    """One call on many hosts: wave after wave, with a bounded number of workers that take one host after the other."""

    run_on: Callable[[Host], Awaitable[HostOutcome[T]]]
    options: StartOptions
    starting: Starting
    tasks: TaskGroup
    failure: Exception | None = None
    """The exception that ended the call."""
    _cancelled: bool = False
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """The scope of the current wave."""

    def cancel(self) -> None:
        """Cancel what runs; the call yields nothing more."""
        self._cancelled = True
        self._scope.cancel()

    async def run(self, waves: Sequence[Sequence[Host]]) -> AsyncGenerator[HostOutcome[T], None]:
        """Yield the outcome of every host, unless the call is cancelled."""
        for number, wave in enumerate(waves):
            if number and self.options.on_wave is not None and not self.starting.refusal:
                await self.options.on_wave([host.name for host in wave])
            if self._cancelled:
                return
            self._scope, over = anyio.CancelScope(), anyio.Event()
            send, receive = anyio.create_memory_object_stream[HostOutcome[T]](self.options.forks)
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
        self, wave: Sequence[Host], send: MemoryObjectSendStream[HostOutcome[T]], over: anyio.Event
    ) -> None:
        waiting = iter(wave)
        try:
            with self._scope, send:
                async with anyio.create_task_group() as workers:
                    for _ in range(min(self.options.forks, len(wave))):
                        workers.start_soon(self._work, waiting, send)
        finally:
            over.set()

    async def _work(self, waiting: Iterator[Host], send: MemoryObjectSendStream[HostOutcome[T]]) -> None:
        for host in waiting:
            try:
                outcome = await self.run_on(host)
            except Exception as error:  # raised again in the loop of the caller, outside of the task group
                self.failure = self.failure or error
                self._scope.cancel()
                return
            if outcome.failed and not outcome.left_out:
                self.starting.record_failure()
            await send.send(outcome)


@asynccontextmanager
async def fleet(
    hosts: str | Sequence[str] | Sequence[Host],
    *,
    tmux: bool | str = False,
    pane: str | None = None,
    config: Config | None = None,
    inventory: Inventory | None = None,
    create: bool = True,
    executor: FleetExecutor | None = None,
) -> AsyncIterator[Fleet]:
    """Open a fleet; each host is connected when it is first used, and logins ask nothing.

    Args:
        hosts: Patterns as :func:`resolve_hosts` reads them, or hosts.
        tmux: As for :func:`harness.connect`, like ``pane``.
        config: The settings; the defaults if None.
        inventory: The hosts, groups and addresses of a file.
        create: As for :func:`harness.connect`.
        executor: Where the calls run; None is this process.

    Raises:
        ConfigError: A pattern is wrong or matches no host.
    """
    settings = config or Config()
    given = [hosts] if isinstance(hosts, str) else list(hosts)
    known = tuple(host for host in given if isinstance(host, Host))
    if len(known) < len(given):
        patterns = [text for text in given if isinstance(text, str)]
        known += resolve_hosts(patterns, inventory, ssh_config=settings.ssh_config or None)
    if settings.ssh_engine == "default" and not tmux:  # with tmux, a pane may be a program ssh on this machine
        settings = replace(settings, ssh_engine="auto")
    options = ConnectOptions(settings, tmux, pane, create)
    async with (
        open_task_group() as tasks,
        (executor or InProcess()).open(known, options, tasks) as runner,
    ):
        opened = Fleet(known, runner, tasks, inventory, has_terminal=tmux is not False)
        try:
            yield opened
        finally:
            opened.cancel()
