"""What a worker of Dask distributed does for a fleet: one host's command in the worker's own process."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import cache

import anyio
from anyio.from_thread import BlockingPortal

from ..errors import ConfigError, HarnessError
from ..extras import DISTRIBUTION
from ..results import ShellResult
from .executor import ConnectOptions
from .fleet_calls import Fleet, fleet
from .host_commands import HostCommand
from .hosts import Host
from .outcomes import HostOutcome
from .starting import HostNotStarted

__all__ = ["InvalidArguments", "WorkerRequest", "harness_version", "run_on_worker", "stop_on_worker"]

MAX_STOPPED_CALLS = 1000


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """The command of one host; nothing in it is a credential.

    ``call`` identifies the call of the controller, which may end it with :func:`stop_on_worker`.
    """

    call: str
    host: Host
    connect: ConnectOptions
    command: HostCommand
    retries: int


@dataclass(frozen=True, slots=True)
class InvalidArguments:
    """A ``TypeError`` or ``ValueError`` of a call on a worker: it is the caller's, as without workers."""

    kind: str
    message: str

    def to_error(self) -> TypeError | ValueError:
        """Return the error to raise."""
        return TypeError(self.message) if self.kind == "TypeError" else ValueError(self.message)


def harness_version() -> str:
    """Return the version of harness in this process."""
    from importlib.metadata import version  # slow to import

    return version(DISTRIBUTION)


def run_on_worker(version: str, data: bytes) -> bytes:
    """Run the command of one host, as a task of Dask.

    Args:
        version: The version of harness that made the request.
        data: The pickled :class:`WorkerRequest`.

    Returns:
        The pickled outcome, or the pickled error about the arguments of the call.

    Raises:
        ConfigError: This worker has another version of harness; nothing was sent to the host.
    """
    from distributed import get_worker, secede

    if version != harness_version():
        raise ConfigError(
            f"the Dask worker {get_worker().address} has harness {harness_version()}, and the controller {version}",
            hint="install harness in the same version, with the extra dask, on each worker",
        )
    request = pickle.loads(data)  # noqa: S301  # Dask workers run what their scheduler sends
    secede()  # a host that waits must not keep other hosts from starting
    try:
        return pickle.dumps(_portal().call(_run, request))
    except (TypeError, ValueError) as error:
        return pickle.dumps(InvalidArguments(type(error).__name__, str(error)))


def stop_on_worker(call: str, reason: str, interrupt: bool) -> None:
    """Start nothing more of a call on this worker.

    Args:
        call: The call.
        reason: Why, for the outcomes of the hosts that do not start.
        interrupt: Interrupt what runs, too.
    """
    _portal().start_task_soon(_stop, call, reason, interrupt)


# -- the event loop of harness in this process


_starting = threading.Lock()


def _portal() -> BlockingPortal:
    """Return the way into the event loop, which all hosts of this worker share."""
    with _starting:
        return _start_loop()


@cache
def _start_loop() -> BlockingPortal:
    """Start the event loop, in a thread that does not keep the worker from ending."""
    ready: Future[BlockingPortal] = Future()
    threading.Thread(target=anyio.run, args=(_serve, ready), name="harness", daemon=True).start()
    return ready.result()


async def _serve(ready: Future[BlockingPortal]) -> None:
    async with BlockingPortal() as portal:
        ready.set_result(portal)
        await portal.sleep_until_stopped()


# -- in this event loop


@dataclass
class _RunningCall:
    """What this worker runs of one call."""

    fleets: set[Fleet] = field(default_factory=set)
    refusal: str = ""


_calls: dict[str, _RunningCall] = {}


async def _stop(call: str, reason: str, interrupt: bool) -> None:
    running = _calls.setdefault(call, _RunningCall())
    running.refusal = running.refusal or reason
    for opened in running.fleets:
        if interrupt:
            opened.interrupt(reason)
        else:
            opened.stop_starting(reason)
    while len(_calls) > MAX_STOPPED_CALLS and (old := next(iter(_calls))) != call:
        del _calls[old]


@contextmanager
def _counted(call: str, opened: Fleet) -> Iterator[None]:
    """Let :func:`stop_on_worker` find a host that runs inside.

    Raises:
        HostNotStarted: It was called before.
    """
    running = _calls.setdefault(call, _RunningCall())
    if running.refusal:
        raise HostNotStarted(f"not started: {running.refusal}")
    running.fleets.add(opened)
    try:
        yield
    finally:
        running.fleets.discard(opened)
        if not running.fleets and not running.refusal:
            _calls.pop(call, None)


async def _run(request: WorkerRequest) -> HostOutcome[ShellResult]:
    """Return the outcome of a host, as a fleet of this one host has it."""
    host, options = request.host, request.connect
    try:
        async with fleet(
            [host], tmux=options.tmux, pane=options.pane, config=options.config, create=options.create
        ) as opened:
            with _counted(request.call, opened):
                asked = opened.ask(lambda name: request.command, retry_unreachable=request.retries)
                async with aclosing(asked) as outcomes:
                    _, outcome = await anext(outcomes)
                    return outcome
    except HarnessError as error:
        return HostOutcome(host.name, str(host.target), error=error, started=False)
