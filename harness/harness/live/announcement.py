"""The announcement of a running harness process: its private socket, to which dashboards connect.

While no dashboard is connected it costs an open descriptor: nothing is computed, imported or sent.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from ..errors import HarnessError
from ..system.background_tasks import BackgroundTasks, open_background_tasks
from ..system.descriptor_stream import read_when_ready
from ..system.process_identity import ProcessId, this_process
from .sockets import listening_socket

if TYPE_CHECKING:
    from .connection import Connection
    from .sessions.pane_leases import Lease, PaneLeases
    from .sessions.session import LiveSession

__all__ = ["Announcement", "announce"]

MAX_CLIENTS = 64
"""Maximum clients of a process; more are refused."""
ACCEPT_PAUSE = 1.0
"""Seconds until the next attempt to accept a client if this process has no more descriptors."""
log = logging.getLogger(__name__)


class Announcement:
    """The sessions of this process, for dashboards; :func:`announce` opens it.

    Args:
        here: This process.
        kind: The command that it runs.
        tasks: Run what clients ask for, even if they disconnect meanwhile.
    """

    def __init__(self, here: ProcessId, kind: str, tasks: BackgroundTasks) -> None:
        self.here = here
        self.kind = kind
        self.started = time.time()
        self.sessions: dict[str, LiveSession] = {}
        self._tasks = tasks
        self._connections: set[Connection] = set()

    @cached_property
    def leases(self) -> PaneLeases:
        """The panes that connections hold."""
        from .sessions.pane_leases import PaneLeases  # with the first client

        return PaneLeases()

    @contextmanager
    def session(self, session: LiveSession) -> Iterator[None]:
        """Show a session while the context is open."""
        self.sessions[session.session_id] = session
        self.changed()
        try:
            yield
        finally:
            if self.sessions.get(session.session_id) is session:
                del self.sessions[session.session_id]
            self.changed()

    def changed(self) -> None:
        """Let connected clients know that the state of a session may have changed. Never waits."""
        for connection in self._connections:
            connection.state_changed()

    @property
    def has_operators(self) -> bool:
        """Whether a client is connected that may answer approval requests."""
        return any(connection.may_act for connection in self._connections)

    def start_soon(self, work: Callable[[], Awaitable[object]]) -> None:
        """Run a function that does not raise, until the announcement is closed."""
        self._tasks.start_soon(work)

    def release_panes_of(self, connection: object) -> None:
        """Release the panes that a closed connection holds, unless their operator connects again soon."""
        if self.leases.is_held_by(connection):
            self.start_soon(partial(self.leases.release_left, connection, self._release))

    async def _release(self, lease: Lease) -> None:
        session_id, pane, by = lease
        if (session := self.sessions.get(session_id)) is None:
            return
        try:
            await session.act("release_pane", {"pane": pane, "reason": "the operator has disconnected"}, by)
        except HarnessError as error:
            log.info("pane %s is not released: %s", pane, error)

    async def serve(self, listener: socket.socket) -> None:
        """Accept clients until cancelled."""
        while True:
            try:
                connected, _ = await read_when_ready(listener, listener.accept)
            except anyio.ClosedResourceError:  # the announcement ends
                return
            except OSError as error:
                log.debug("cannot accept a dashboard: %s", error)
                await anyio.sleep(ACCEPT_PAUSE)
                continue
            self._tasks.start_soon(self._serve_client, connected)

    async def _serve_client(self, connected: socket.socket) -> None:
        with connected:
            connected.setblocking(False)
            try:
                await to_thread.run_sync(import_module, ".connection", __package__)
                await self._connected(connected)
            except Exception:  # a dashboard must not end the program that it shows
                log.debug("the connection of a dashboard failed", exc_info=True)

    async def _connected(self, connected: socket.socket) -> None:
        from .connection import Connection  # with the first client

        connection = Connection(self, connected)
        if refusal := connection.refusal():
            log.warning("a dashboard was refused: %s", refusal)
            return
        if len(self._connections) >= MAX_CLIENTS:
            await connection.refuse(f"{MAX_CLIENTS} dashboards are connected already")
            return
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            self.release_panes_of(connection)


@asynccontextmanager
async def announce(kind: str, *, is_shown: bool = True) -> AsyncIterator[Announcement]:
    """Announce this process to dashboards while the context is open.

    A process that cannot announce itself works as usual: dashboards do not show it.

    Args:
        kind: The command: ``prompt``, ``exec``, ``run``, ``mcp``, ``fleet``, ``forward``, or ``python``.
        is_shown: False opens no socket, as with the setting ``announce = false``: no dashboard shows the process.
    """
    here = this_process()
    async with open_background_tasks() as tasks:
        announcement = Announcement(here, kind, tasks)
        with ExitStack() as stack:
            if is_shown and (listener := _listener(stack, here)) is not None:
                stack.callback(anyio.notify_closing, listener)
                tasks.start_soon(announcement.serve, listener)
            yield announcement


def _listener(stack: ExitStack, here: ProcessId) -> socket.socket | None:
    try:
        return stack.enter_context(listening_socket(here))
    except HarnessError as error:
        log.info("this process is not shown by dashboards: %s", error)
        return None
