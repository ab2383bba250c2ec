"""The calls of a fleet on the workers of Dask distributed.

The process with the fleet is the controller: it decides what runs, makes the key of each host's command and gives Dask
one task for each host. A worker logs in with its own credentials and runs the command with the key, so that a task that
runs again, because its worker was lost, waits for the first one's job. What workers do is in :mod:`.dask_worker`.
"""

from __future__ import annotations

import logging
import pickle
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from ..context import ExecutionContext
from ..errors import ConfigError, ConnectError, ContextClosed, HarnessError, UnsupportedOperation
from ..results import ShellResult, Status
from .dask_worker import InvalidArguments, WorkerRequest, harness_version, run_on_worker, stop_on_worker
from .executor import ConnectOptions, HostWork
from .host_commands import CommandCall, HostCommand, host_key
from .hosts import Host
from .outcomes import HostOutcome
from .starting import HostNotStarted, Starting, StartOptions

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["DaskExecutor", "connect_scheduler"]


# -- The workers, which may fall silent.

log = logging.getLogger(__name__)
MAX_SILENCE = 20.0
"""Seconds without a heartbeat of a worker after which its hosts go to others; workers send one each second or so."""
CHECK_INTERVAL = 5.0
CHECK_TIMEOUT = 10.0
"""Seconds for the scheduler to answer."""
MAX_MOVES = 3
"""How often a host goes to another worker; after that, Dask alone decides."""


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """What the scheduler knows: the tasks of silent workers by their addresses, and the addresses of the others."""

    silent: Mapping[str, Sequence[str]]
    responsive: Sequence[str]


class MovableTask(Protocol):
    """A task that can be given to another worker."""

    moves: int

    @property
    def key(self) -> str:
        """Its key in Dask."""
        ...

    def move(self, workers: Sequence[str], reason: str) -> None:
        """Let one of these workers run it, and forget the one that has it."""
        ...


def find_silent_workers(max_silence: float, dask_scheduler: Any = None) -> WorkerHealth:
    """Return which workers have sent no heartbeat for a time; this runs in the scheduler.

    Args:
        max_silence: Seconds.
        dask_scheduler: The scheduler, which Dask gives.
    """
    now = time.time()
    silent, responsive = {}, []
    for worker in dask_scheduler.workers.values():
        if now - worker.last_seen > max_silence:
            silent[worker.address] = [task.key for task in worker.processing]
        elif worker.status.name == "running":
            responsive.append(worker.address)
    return WorkerHealth(silent, responsive)


async def watch_workers(ask: Callable[[], Awaitable[WorkerHealth]], tasks: Collection[MovableTask]) -> None:
    """Move tasks away from silent workers, until cancelled.

    Args:
        ask: Returns the state of the workers from the scheduler.
        tasks: The tasks that have not ended.
    """
    while True:
        await anyio.sleep(CHECK_INTERVAL)
        if not tasks:
            continue
        try:
            with anyio.move_on_after(CHECK_TIMEOUT):
                _move_tasks(await ask(), tasks)
        except Exception as error:  # a lost scheduler is the outcome of each task
            log.debug("the state of the Dask workers is unknown: %s", error)


def _move_tasks(health: WorkerHealth, tasks: Collection[MovableTask]) -> None:
    if not health.responsive:
        return
    waiting = {task.key: task for task in tasks if task.moves < MAX_MOVES}
    for address, keys in health.silent.items():
        found = [waiting[key] for key in keys if key in waiting]
        if found:
            reason = f"the Dask worker {address} has not responded for {MAX_SILENCE:.0f} s"
            log.warning("%s: %d of its hosts go to another worker", reason, len(found))
        for task in found:
            task.move(health.responsive, reason)


# -- The executor.

T = TypeVar("T")
MAX_STDIN_BYTES = 1 << 20
"""Bytes of standard input that are sent with each task."""
VERSIONS_TIMEOUT = 10.0
"""Seconds for the workers to report their versions; a worker that hangs must not delay the others for longer."""
STOP_TIMEOUT = 5.0
"""Seconds for the workers to take notice of the end of a call."""
INTERRUPT_TIMEOUT = 8.0
"""Seconds for an interrupted host's outcome: a worker waits about 4 s for an unresponsive host."""
SCHEDULER_LOST = "the connection to the Dask scheduler was lost"


class DaskExecutor:
    """Runs the commands of a fleet on the workers of a Dask cluster, for ``harness.fleet(..., executor=...)``.

    Each worker needs harness in the same version, a way to the hosts, and keys or an agent of its own.

    Args:
        client: A client of the cluster, synchronous or asynchronous. It stays open.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    @asynccontextmanager
    async def open(
        self, hosts: Sequence[Host], options: ConnectOptions, tasks: TaskGroup
    ) -> AsyncIterator[_HostsOnWorkers]:
        """Check the workers and the hosts, as :meth:`FleetExecutor.open`.

        Raises:
            ConnectError: No worker is connected.
            ConfigError: A worker has another version of harness, or a host can only be reached from this machine.
        """
        for host in hosts:
            _check_host(host)
        await self._check_workers()
        runner = _HostsOnWorkers(self._client, _worker_options(options))
        watching = anyio.CancelScope()
        tasks.start_soon(self._watch, runner.tasks, watching)
        try:
            yield runner
        finally:
            runner.closed = True
            watching.cancel()

    async def _watch(self, tasks: set[_Task], watching: anyio.CancelScope) -> None:
        async def ask() -> WorkerHealth:
            found = await _of_client(self._client.run_on_scheduler, find_silent_workers, MAX_SILENCE)
            return cast("WorkerHealth", found)

        with watching:
            await watch_workers(ask, tasks)

    async def _check_workers(self) -> None:
        """Check the versions of all that answer at once; each task checks that of its worker again."""
        try:
            with anyio.move_on_after(VERSIONS_TIMEOUT):
                await self._check_versions()
        except OSError as error:
            raise ConnectError(SCHEDULER_LOST) from error

    async def _check_versions(self) -> None:
        try:
            version = await _of_client(self._client.run_on_scheduler, harness_version)
        except ImportError as error:  # it reads tasks before it passes them on
            version = error
        _check_version(version, "Dask scheduler")
        found = await _of_client(self._client.run, harness_version, on_error="return")
        if not found:
            raise ConnectError("the Dask scheduler has no workers", hint="start some with: dask worker ADDRESS")
        for address, version in found.items():
            if not isinstance(version, OSError):  # else it was lost, and the scheduler will notice
                _check_version(version, f"Dask worker {address}")


def _check_version(version: object, process: str) -> None:
    """Refuse a process of the cluster that would understand tasks in another way.

    Raises:
        ConfigError: It has another version of harness, or none (``version`` is the exception).
    """
    hint = "install harness in the same version, with the extra dask, for the scheduler and each worker"
    if isinstance(version, BaseException):
        raise ConfigError(f"the {process} cannot import harness: {version}", hint=hint)
    if version != harness_version():
        raise ConfigError(f"the {process} has harness {version}, and this is harness {harness_version()}", hint=hint)


def _check_host(host: Host) -> None:
    """Refuse a host that every worker would understand as another one.

    Raises:
        ConfigError: Its target is on the machine that connects to it.
    """
    if host.target.hops[0].scheme != "ssh":
        raise ConfigError(
            f"{host.name} is on the machine that connects to it, which is another one for each Dask worker",
            hint="use hosts behind SSH, or run without a scheduler",
        )


def _worker_options(options: ConnectOptions) -> ConnectOptions:
    """Return how workers connect: with tmux on the target only, where an operator finds it.

    Raises:
        ConfigError: The settings ask for what workers cannot do.
    """
    config = options.config
    if config.image:
        raise ConfigError("a temporary container (image) does not work on Dask workers: it ends with its worker")
    if options.tmux is not False and config.tmux_host == "local":
        raise ConfigError("tmux_host = local does not work on Dask workers: tmux would run on their machines")
    return replace(options, config=replace(config, tmux_host="target"))


@asynccontextmanager
async def connect_scheduler(address: str, timeout: float) -> AsyncIterator[DaskExecutor]:
    """Connect to a scheduler.

    Args:
        address: Such as ``tcp://10.0.0.1:8786``, or ``tls://...`` with the certificates of Dask's configuration.
        timeout: Seconds.

    Raises:
        ConfigError: The extra ``dask`` is missing, or the address is wrong.
        ConnectError: The scheduler cannot be reached.
    """
    try:
        from distributed import Client
    except ImportError as error:
        from ..extras import install_extra

        raise ConfigError("a Dask scheduler needs the extra dask", hint=install_extra("dask")) from error
    with _quiet_logs():
        client = Client(address, asynchronous=True, timeout=timeout, set_as_default=False)
        try:
            await _wait_for_scheduler(client, address)
            yield DaskExecutor(client)
        finally:
            with anyio.CancelScope(shield=True):
                await client.close(timeout=STOP_TIMEOUT if client.status == "running" else 0.1)


async def _wait_for_scheduler(client: Client, address: str) -> None:
    try:
        await client
    except (OSError, TimeoutError) as error:
        raise ConnectError(f"cannot reach the Dask scheduler {address}: {error}") from error
    except (ValueError, TypeError, RuntimeError) as error:
        raise ConfigError(f"cannot use the Dask scheduler {address}: {error}") from error


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Log nothing of Dask's inside, unless harness logs details: what matters is in the outcomes."""
    if logging.getLogger("harness").isEnabledFor(logging.INFO):
        yield
        return
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "distributed.gc")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# -- the controller


async def _of_client(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a method of a client or a future, which blocks unless the client is asynchronous in this event loop."""
    client = getattr(function, "__self__", None)
    if getattr(client, "asynchronous", False):
        return await function(*arguments, **options)
    return await anyio.to_thread.run_sync(partial(function, *arguments, **options), abandon_on_cancel=True)


class _HostsOnWorkers:
    """The hosts of one open fleet, connected by the workers."""

    def __init__(self, client: Client, options: ConnectOptions) -> None:
        self._client = client
        self._options = options
        self.tasks: set[_Task] = set()
        """The tasks that have not ended."""
        self.closed = False

    def context(self, host: Host) -> ExecutionContext | None:
        return None

    async def connected(self, host: Host) -> ExecutionContext:
        raise UnsupportedOperation(
            "hosts are connected by Dask workers, not here", target=host.target, hint="use run_shell() or gather()"
        )

    def start_call(
        self, work: HostWork[T], options: StartOptions, starting: Starting
    ) -> Callable[[Host], Awaitable[HostOutcome[T]]]:
        if self.closed:
            raise ContextClosed("the fleet has been left")
        asked = work.function
        if not isinstance(asked, CommandCall):
            raise UnsupportedOperation(
                "functions do not run on Dask workers: if a worker is lost, they would run twice",
                hint="use run_shell() or gather()",
            )
        call = _Call(self._client, self._options, asked, options, starting, self.tasks)
        return cast("Callable[[Host], Awaitable[HostOutcome[T]]]", call.outcome_of)


@dataclass(eq=False)
class _Call:
    """One call: a task for each host."""

    client: Client
    connect: ConnectOptions
    asked: CommandCall
    options: StartOptions
    starting: Starting
    tasks: set[_Task]
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    _told: set[bool] = field(default_factory=set)
    """What the workers know: False that nothing more starts, True that what runs is interrupted."""

    async def outcome_of(self, host: Host) -> HostOutcome[ShellResult]:
        """Return the outcome of a host."""
        if self.options.on_start is not None and not self.starting.refusal:
            self.options.on_start(host.name)
        try:
            if self.starting.refusal:
                raise HostNotStarted(f"not started: {self.starting.refusal}")
            request = self._request(host)
            outcome = await self._run(host, request)
        except HarnessError as error:
            return HostOutcome(host.name, str(host.target), error=error, started=False)
        return self._show(outcome)

    def _request(self, host: Host) -> WorkerRequest:
        command = self.asked.command_for(host.name)
        key = host_key(self.token, host.name) if command.key is None else command.key
        command = replace(command, key=key, stdin=_read_stdin(command), options=dict(command.options))
        return WorkerRequest(self.token, host, self.connect, command, self.options.retries)

    def _show(self, outcome: HostOutcome[ShellResult]) -> HostOutcome[ShellResult]:
        """Pass the output, which comes with the result, to the callbacks; note what of it is missing."""
        result, on_output = outcome.result, self.asked.on_output
        if result is None or on_output is None:
            return outcome
        if result.stdout_bytes:
            on_output(outcome.host, result.stdout_bytes)
        if result.stderr_bytes:
            (self.asked.on_stderr or on_output)(outcome.host, result.stderr_bytes)
        if not result.truncated:
            return outcome
        notice = f"{result.truncated:,} bytes in the middle of the output are not shown"
        return replace(outcome, result=replace(result, notices=(*result.notices, notice)))

    async def _run(self, host: Host, request: WorkerRequest) -> HostOutcome[ShellResult]:
        """Run a task; if it is interrupted, return the outcome that its worker still reports.

        Raises:
            HarnessError: The command was not sent.
        """
        with self.starting.run(host.name) as run:
            task = _Task(self.client, host, request)
            self.tasks.add(task)
            try:
                with run.scope:
                    async with anyio.create_task_group() as watching:
                        watching.start_soon(self._watch_stop)
                        await task.ended.wait()
                        watching.cancel_scope.cancel()
                    return await self._outcome(task)
                return await self._interrupted(task)
            except anyio.get_cancelled_exc_class():  # the loop was left, which ends what runs
                with anyio.CancelScope(shield=True):
                    await self._interrupted(task)
                raise
            finally:
                self.tasks.discard(task)
                task.release()

    async def _outcome(self, task: _Task) -> HostOutcome[ShellResult]:
        outcome = await task.outcome()
        if task.lost:
            self.starting.stop(SCHEDULER_LOST)
        return outcome

    async def _watch_stop(self) -> None:
        """Let the workers start nothing more as soon as this call does not."""
        with self.starting.login():
            await anyio.sleep_forever()
        await self._stop_workers(interrupt=False)

    async def _interrupted(self, task: _Task) -> HostOutcome[ShellResult]:
        await self._stop_workers(interrupt=True)
        with anyio.move_on_after(INTERRUPT_TIMEOUT):
            await task.ended.wait()
            return await self._outcome(task)
        return task.unknown("interrupted, but the Dask worker did not answer")

    async def _stop_workers(self, *, interrupt: bool) -> None:
        """Let all workers start nothing more of this call; the first host of the call that notices tells them."""
        if interrupt in self._told:
            return
        self._told.add(interrupt)
        reason = self.starting.refusal or "interrupted"
        with anyio.move_on_after(STOP_TIMEOUT, shield=True), suppress(OSError, HarnessError):
            await _of_client(self.client.run, stop_on_worker, self.token, reason, interrupt, on_error="ignore")


def _read_stdin(command: HostCommand) -> bytes | str | None:
    """Return the standard input of a command.

    Raises:
        HarnessError: It is too long, or cannot be read.
    """
    data = command.stdin
    if isinstance(data, Path):
        try:
            with data.open("rb") as file:
                data = file.read(MAX_STDIN_BYTES + 1)
        except OSError as error:
            raise HarnessError(f"cannot read the standard input: {error.strerror}") from error
    if data is not None and len(data) > MAX_STDIN_BYTES:
        raise ConfigError(
            f"Dask workers take at most {MAX_STDIN_BYTES:,} bytes of standard input",
            hint="upload a file to the hosts first, or run without a scheduler",
        )
    return data


class _Task:
    """A task of Dask for one host."""

    def __init__(self, client: Client, host: Host, request: WorkerRequest) -> None:
        from anyio.lowlevel import current_token

        self.host = host
        self.ended = anyio.Event()
        self.moves = 0
        """How often it was given to another worker."""
        self._command = request.command.command
        self._call = request.call
        self._data = pickle.dumps(request)
        self._client = client
        self._moved_because = ""
        self.lost = False
        """Whether the scheduler was lost, or has forgotten the task."""
        self._loop: Any = current_token().native_token
        self._future = self._submit()

    @property
    def key(self) -> str:
        """Its key in Dask."""
        return str(self._future.key)

    def move(self, workers: Sequence[str], reason: str) -> None:
        """Let one of these workers run the command: with its key, it waits for the job that may have started."""
        self.moves += 1
        self._moved_because = reason
        old, self._future = self._future, self._submit(workers)
        old.release()

    def _submit(self, workers: Sequence[str] | None = None) -> Future:
        name = f"harness-{self._call}-{secrets.token_hex(8)}"
        options: dict[str, Any] = {"workers": list(workers), "allow_other_workers": True} if workers else {}
        future = self._client.submit(run_on_worker, harness_version(), self._data, key=name, pure=False, **options)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._end, done))
        return future

    def _end(self, future: Future) -> None:
        if future is self._future:  # not one that was moved
            self.ended.set()

    async def outcome(self) -> HostOutcome[ShellResult]:
        """Return the outcome that the worker reported; ``unknown`` where it may have started the command.

        Raises:
            HarnessError: The worker refused the task.
            TypeError: An argument of the call is wrong.
            ValueError: As above.
        """
        from distributed import KilledWorker

        if self._future.status in ("cancelled", "lost"):
            self.lost = True
            return self.unknown(SCHEDULER_LOST)
        try:
            data = await _of_client(self._client.gather, self._future)
        except HarnessError as error:
            if self.moves:
                return self.unknown(f"{self._moved_because}, and another one reports: {error}")
            raise  # before anything was sent
        except KilledWorker as error:
            number = error.allowed_failures + 1
            lost = "Dask worker that ran it was" if number == 1 else f"{number} Dask workers that ran it were"
            return self.unknown(f"the {lost} lost")
        except Exception as error:
            self.lost = self._future.status in ("cancelled", "lost")
            return self.unknown(SCHEDULER_LOST if self.lost else f"the Dask worker could not report it: {error!r}")
        outcome = pickle.loads(data)  # noqa: S301  # workers run code of this program
        if isinstance(outcome, InvalidArguments):
            raise outcome.to_error()
        if self.moves and not outcome.started:  # by this worker; the other one may have sent the command
            return self.unknown(f"{self._moved_because}, and another one reports: {outcome.error}")
        return cast("HostOutcome[ShellResult]", outcome)

    def unknown(self, reason: str) -> HostOutcome[ShellResult]:
        """Return the outcome of a command that may have started."""
        result = ShellResult(self._command, Status.UNKNOWN, notices=(f"{reason}; the command may have started",))
        return HostOutcome(self.host.name, str(self.host.target), result)

    def release(self) -> None:
        """Let Dask forget the task and its result."""
        self._future.release()
