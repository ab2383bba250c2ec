"""The events of the control client: the output of panes, changes of windows, pauses, and reconnects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace

from harness.errors import HarnessError, TargetGone, TerminalError
from harness.pane_events import PaneEvent, PaneWatches
from harness.results import Status
from harness.system.background_tasks import BackgroundTasks
from harness.terminal import Listener, Operators

from ..channel.control_client import Event
from ..channel.control_connection import ControlConnection
from ..channel.control_protocol import Notification, Output
from ..operator_watch import OperatorWatch, watch_operators
from ..pane.pane_state import Pane
from ..pane.pane_table import PaneTable
from ..pane_watch import PaneWatching
from .stream_gaps import StreamGaps

__all__ = ["ControlStream"]

_WINDOW_NEWS = frozenset({"window-close", "unlinked-window-close", "layout-change"})


class ControlStream:
    """The receiver of everything that the control client reports, in its order."""

    def __init__(self, link: ControlConnection, table: PaneTable, gaps: StreamGaps, tasks: BackgroundTasks) -> None:
        self._link = link
        self._table = table
        self._gaps = gaps
        self._tasks = tasks
        self._news = self._looking = False
        self._people: OperatorWatch | None = None
        self._watching = PaneWatching(link, table, tasks)
        link.on_event, link.on_lost, link.on_gone = self.on_event, self.on_lost, self.on_gone
        table.on_pane = self._on_pane

    def _on_pane(self, pane: Pane) -> None:
        """Handle a pane that becomes known."""
        self._gaps.added(pane)
        self._watching.add_pane(pane)

    def on_event(self, event: Event) -> None:
        """Handle an output or a notification; called for each, in order."""
        if isinstance(event, Output):
            pane = self._table.by_id.get(event.pane)
            if pane is not None:
                pane.receive(event.data)
                if self._people is not None:
                    self._people.on_pane_output(pane)
        elif isinstance(event, Notification):
            self._on_notification(event)

    def _on_notification(self, event: Notification) -> None:
        if event.name in _WINDOW_NEWS:
            self._windows_changed(event.args[0] if event.name.endswith("close") and event.args else "")
            if event.name == "layout-change":
                self._watching.window_resized(event.args[0] if event.args else "")
        elif event.name == "session-renamed" and event.args[:1] == (self._link.setup.session_id,):
            self._link.setup = replace(self._link.setup, shown=" ".join(event.args[1:]))
            self._table.tell_name()
        elif event.name == "session-changed" and event.args[:1] != (self._link.setup.session_id,):
            self._tasks.start_soon(self._link.client.aclose)  # an operator switched its session: a new client attaches
        elif event.name == "pause" and event.args:
            self._gaps.paused(event.args[0], self._table.by_id.get(event.args[0]))
        elif event.name == "client-detached":
            self._tasks.start_soon(self._link.keep_drainer)
        elif self._people is not None:
            self._people.told(event)

    # -- windows

    def _windows_changed(self, closed: str = "") -> None:
        """Handle a notification about a window, as an operator may have closed or moved panes.

        Args:
            closed: the window reported as closed, which may be linked to two sessions and still be in this one.
        """
        for pane in self._table.by_id.values():
            pane.doubt_window(closed)
        self._news = True
        if not self._looking:
            self._looking = True
            self._tasks.start_soon(self._look)

    async def _look(self) -> None:
        while self._news:
            self._news = False
            with suppress(HarnessError):  # without a connection, the reconnect checks
                await self._table.reconcile(self._link.client)
        self._looking = False

    # -- the connection

    def on_lost(self) -> None:
        """Handle a lost connection: the stream has a gap before its next bytes."""
        for pane in self._table.by_id.values():
            pane.pause()
        self._gaps.lost()

    def on_gone(self, error: TargetGone) -> None:
        """Handle the end of the target with all its processes: close the panes, so that their jobs end."""
        for pane in list(self._table.by_id.values()):
            del self._table.by_id[pane.pane_id]
            self._table.add_notice(
                pane.name, f"{error.message}, and pane {pane.name!r} with it; this is a new one with a new shell"
            )
            pane.lose(Status.UNKNOWN, f"{error.message} while the command ran")

    async def back(self, created: bool) -> None:
        """Handle a reconnect: find the remaining panes, and read the missed output from the logs."""
        with suppress(TerminalError):  # a pane without its files, which is reported on its next use
            await self._table.refresh(self._link.client)
        for pane in [pane for pane in self._table.by_id.values() if pane.paused]:
            if pane.job is None:
                self._gaps.stop_catching_up(pane)
                await self._gaps.reattach(pane)
            else:
                self._tasks.start_soon(self._gaps.catch_up, pane)
        if self._people is not None:
            self._tasks.start_soon(self._people.back)

    # -- watching

    @asynccontextmanager
    async def watch_pane(self, name: str, max_bytes: int) -> AsyncIterator[AsyncIterator[PaneEvent]]:
        """Watch a pane live like :meth:`.Terminal.watch_pane`."""
        with self._watching.watch(await self._table.find(name), max_bytes) as events:
            yield events

    def watch_panes(self, max_bytes: int) -> AbstractAsyncContextManager[PaneWatches]:
        """Watch all panes live like :meth:`.Terminal.watch_panes`."""
        return self._watching.watch_all(max_bytes)

    # -- operators

    @asynccontextmanager
    async def operators(self, listener: Listener) -> AsyncIterator[Operators]:
        """Watch the operators of the session.

        Raises:
            UnsupportedOperation: this tmux cannot report their activity.
        """
        async with watch_operators(self._link, self._table, self._tasks, listener, self._watch) as people:
            yield people

    def _watch(self, people: OperatorWatch | None) -> None:
        self._people = people
