"""Forwards of one target, which are kept while the SSH connection is lost and restored."""

from __future__ import annotations

import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast

import anyio
from anyio import to_thread

from ..config import Config
from ..discovery import find_backend
from ..errors import (
    AuthenticationError,
    ConfigError,
    ConnectError,
    ConnectionLost,
    ForwardError,
    HarnessError,
    HostKeyError,
    UnsupportedOperation,
)
from ..system.background_tasks import BackgroundTasks, open_background_tasks
from ..target import Target
from .interface import Forwarding, OpenForwarding
from .listeners import accept_connections, connect_here, listen_here
from .socks import SocksError, SocksRequest, read_request
from .specification import Address, ForwardSpec, TcpAddress
from .streams import BufferedStream, ByteStream, relay

__all__ = ["ForwardStatus", "Forwards", "open_forwards"]

MAX_CONNECTIONS = 200
"""Open connections; with four descriptors for each, that is within the usual limit of a process."""
RECONNECT_TIMEOUT = 10.0
"""Seconds that a new connection waits for the SSH connection to be restored."""
SOCKS_TIMEOUT = 30.0
BACKOFF: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0)
"""Seconds before each attempt to restore the forwards."""
STABLE_SECONDS = 30.0
"""Seconds after which a restored connection counts as good, so that the backoff restarts."""
MAX_NOTE_CHARS = 300

Connect = Callable[[Address], Awaitable[ByteStream]]
"""Connects to a destination."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ForwardStatus:
    """The state of forwards. ``since`` is the Unix time of the last change of ``connected``."""

    connected: bool
    since: float
    specs: tuple[ForwardSpec, ...]
    """The forwards; a port 0 is replaced by the one that the target has chosen."""
    connections: int = 0
    """How many connections are open."""
    note: str = ""
    """Why the last connection or reconnect failed; empty after a success."""


class Forwards:
    """Running forwards; :func:`open_forwards` opens them.

    Args:
        link: The SSH connection.
        specs: The forwards.
        changed: Called after each change of :attr:`status`, in the event loop; must not block.
    """

    def __init__(self, link: Forwarding, specs: Sequence[ForwardSpec], changed: Callable[[], None]) -> None:
        self._link = link
        self._changed = changed
        self._wanted = tuple(specs)
        self._connected = anyio.Event()
        self._slots = anyio.CapacityLimiter(MAX_CONNECTIONS)
        self._status = ForwardStatus(connected=False, since=time.time(), specs=self._wanted)

    @property
    def status(self) -> ForwardStatus:
        """The current state."""
        return self._status

    def _set(self, **values: object) -> None:
        self._status = replace(self._status, **values)  # type: ignore[arg-type]  # fields of the dataclass
        self._changed()

    def _note(self, error: object) -> None:
        text = str(error)[:MAX_NOTE_CHARS]
        if text != self._status.note:
            if text:
                log.info("%s", text)
            self._set(note=text)

    # -- the SSH connection

    async def keep(self, opened: Callable[[], None]) -> None:
        """Keep the forwards until cancelled.

        Args:
            opened: Called when all forwards work for the first time.

        Raises:
            HarnessError: A forward was refused before all worked, or a login was refused.
        """
        await self._hold(opened)
        failures = 0
        while True:
            await anyio.sleep(_pause(failures))
            started = anyio.current_time()
            try:
                await self._link.reconnect()
                await self._hold_restored()
            except (AuthenticationError, HostKeyError):
                raise
            except (ConnectError, ConnectionLost, ConfigError, OSError) as error:  # the configuration may be edited now
                self._note(error)
            failures = 0 if anyio.current_time() - started > STABLE_SECONDS else failures + 1

    async def _hold(self, opened: Callable[[], None]) -> None:
        """Let the target listen, and wait until the connection is lost."""
        async with AsyncExitStack() as stack:
            await self._listen_there(stack)
            self._set(connected=True, since=time.time(), note="")
            self._connected.set()
            log.info("%s: connected", self._link.target)
            opened()
            try:
                await self._link.wait_lost()
            finally:
                self._note_loss()
                self._set(connected=False, since=time.time())
            log.info("%s: the connection was lost", self._link.target)

    async def _hold_restored(self) -> None:
        """Hold a restored connection; what listens here works even if the target cannot listen again yet.

        A server that has not noticed the loss may hold its ports for a while.
        """
        failures, is_lost = 0, False
        try:
            while not is_lost:
                self._connected.set()
                try:
                    await self._hold(lambda: None)
                    is_lost = True
                except ForwardError as error:
                    self._note(error)
                    failures += 1
                    is_lost = await self._is_lost_within(_pause(failures))
        finally:
            self._note_loss()

    async def _is_lost_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self._link.wait_lost()
            return True
        return False

    def _note_loss(self) -> None:
        """Let new connections wait from now on."""
        if self._connected.is_set():
            self._connected = anyio.Event()

    async def _listen_there(self, stack: AsyncExitStack) -> None:
        """Let the target listen for each remote forward, if possible on the same ports as before."""
        specs = list(self._status.specs)
        for number, wanted in enumerate(self._wanted):
            if wanted.kind != "remote":
                continue
            serve = partial(self._serve_there, wanted)
            try:
                port = await stack.enter_async_context(self._link.listen(specs[number].listen, serve))
            except ForwardError:
                if specs[number] == wanted:
                    raise
                port = await stack.enter_async_context(self._link.listen(wanted.listen, serve))
            if isinstance(wanted.listen, TcpAddress):
                specs[number] = replace(wanted, listen=replace(wanted.listen, port=port))
            if specs[number] != self._status.specs[number]:
                log.info("%s", specs[number])
        self._set(specs=tuple(specs))

    # -- connections

    async def accept(self, spec: ForwardSpec, listener: socket.socket, tasks: BackgroundTasks) -> None:
        """Serve the connections of a listener on this machine until cancelled."""
        await accept_connections(listener, partial(self._serve, spec, self._connect_there), tasks, self._slots)

    async def _serve_there(self, spec: ForwardSpec, stream: ByteStream) -> None:
        """Serve a connection to the target; the target cannot make it wait, so too many are refused."""
        if self._status.connections >= MAX_CONNECTIONS:
            self._note(f"{MAX_CONNECTIONS} connections are open; further ones to the target are refused")
            stream.abort()
            return
        await self._serve(spec, connect_here, stream)

    async def _serve(self, spec: ForwardSpec, connect: Connect, stream: ByteStream) -> None:
        """Connect a client to its destination, and close it when either has ended."""
        self._count(1)
        try:
            await self._join(spec, connect, BufferedStream(stream))
        except SocksError as error:
            self._note(f"a client of {spec} was refused: {error}")
        except (OSError, HarnessError) as error:
            if not isinstance(error, ConnectionError):  # the client has left
                self._note(error)
        except EOFError:
            log.debug("a client of %s has left before its request was complete", spec)
        finally:
            stream.abort()  # does nothing after the regular end
            self._count(-1)

    def _count(self, change: int) -> None:
        self._set(connections=self._status.connections + change)

    async def _join(self, spec: ForwardSpec, connect: Connect, client: BufferedStream) -> None:
        request = None if spec.connect is not None else await _read_request(client)
        try:
            destination = spec.connect or (request.destination if request else None)
            assert destination is not None
            server = await connect(destination)
        except HarnessError:
            if request is not None:
                await client.send(request.refused)
                client.close()
            raise
        self._note("")
        try:
            if request is not None:
                await client.send(request.granted)
            await relay(client, server)
        finally:
            server.abort()

    async def _connect_there(self, address: Address) -> ByteStream:
        """Connect from the target, waiting a little for a lost SSH connection."""
        try:
            with anyio.fail_after(RECONNECT_TIMEOUT):
                await self._connected.wait()
        except TimeoutError:
            raise ConnectionLost("the connection is not restored yet", target=self._link.target) from None
        return await self._link.connect(address)


def _pause(failures: int) -> float:
    return BACKOFF[min(failures, len(BACKOFF) - 1)]


async def _read_request(client: BufferedStream) -> SocksRequest:
    with anyio.fail_after(SOCKS_TIMEOUT):
        return await read_request(client)


@asynccontextmanager
async def open_forwards(
    target: Target, config: Config, specs: Sequence[ForwardSpec], changed: Callable[[], None] = lambda: None
) -> AsyncIterator[Forwards]:
    """Forward connections while the context is open; all forwards work when it is entered, or none.

    Args:
        target: The host.
        config: The settings of harness.
        specs: The forwards.
        changed: Called after each change of the status, in the event loop; must not block.

    Raises:
        ForwardError: An address cannot be listened on.
        ConnectError: The login failed, also later: a refused login ends the forwards.
        UnsupportedOperation: The target is not reached over SSH.
    """
    open_forwarding = _opener(target)
    with ExitStack() as stack:
        listening = []
        for spec in specs:
            if spec.kind != "remote":
                found = await to_thread.run_sync(stack.enter_context, listen_here(spec.listen))
                listening += [(spec, listener) for listener in found]
        async with open_forwarding(target, config) as link, open_background_tasks() as tasks:
            forwards = Forwards(link, specs, changed)
            opened = anyio.Event()
            tasks.start_soon(forwards.keep, opened.set)
            await opened.wait()
            for spec, listener in listening:
                tasks.start_soon(forwards.accept, spec, listener, tasks)
            yield forwards


def _opener(target: Target) -> OpenForwarding:
    """Return what opens the forwarding of a target's backend: a function next to its factory."""
    if len(target.hops) == 1:
        module = sys.modules[find_backend(target.last.scheme).__module__]
        if hasattr(module, "open_forwarding"):
            return cast(OpenForwarding, module.open_forwarding)
    raise UnsupportedOperation(
        "only a host behind SSH can be forwarded to and from", target=target, hint="give --ssh HOST, and no container"
    )
