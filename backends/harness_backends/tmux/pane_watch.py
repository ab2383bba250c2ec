"""Live watches of one pane, and of all panes of a session, over the control client's stream."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial

import anyio

from harness.errors import HarnessError
from harness.pane_events import PaneEvent, PaneWatch, PaneWatches
from harness.system.background_tasks import BackgroundTasks

from .channel.control_connection import ControlConnection
from .channel.control_protocol import Block
from .pane.pane_state import Pane
from .pane.pane_table import PaneTable
from .pane.pane_watchers import PaneWatchers, Watcher
from .pane.screen_picture import picture_commands

__all__ = ["PaneWatching"]

START_TIMEOUT = 5.0
"""Seconds until the first screens of a session's panes are no longer waited for."""


class PaneWatching:
    """The watches of a terminal's panes."""

    def __init__(self, link: ControlConnection, table: PaneTable, tasks: BackgroundTasks) -> None:
        self._link = link
        self._table = table
        self._tasks = tasks
        self._all: list[_Watches] = []

    @contextmanager
    def watch(self, pane: Pane, max_bytes: int) -> Iterator[AsyncIterator[PaneEvent]]:
        """Watch one pane."""
        with pane.watch(max_bytes, partial(self._take_picture, pane)) as watcher:
            yield watcher

    @asynccontextmanager
    async def watch_all(self, max_bytes: int) -> AsyncIterator[PaneWatches]:
        """Watch all panes from now on, and each new one from its start."""
        with ExitStack() as stack:
            watches = _Watches(self, max_bytes, stack)
            self._all.append(watches)
            stack.callback(self._all.remove, watches)
            for pane in self._table.by_id.values():
                watches.add(pane)
            with anyio.move_on_after(START_TIMEOUT):
                await watches.start()
            yield watches

    def window_resized(self, window_id: str) -> None:
        """Check the sizes of the window's panes that are watched."""
        for pane in self._table.by_id.values():
            if pane.window_id == window_id and pane.watchers is not None:
                self._tasks.start_soon(_look_at_size, pane.watchers)

    def add_pane(self, pane: Pane) -> None:
        """Show a pane that becomes known to those who watch all panes."""
        for watches in self._all:
            watches.add(pane)

    async def _take_picture(self, pane: Pane, on_answer: Callable[[Sequence[Block]], None]) -> None:
        client = await self._link.ready()
        if not pane.gone:
            await client.request(*picture_commands(pane.pane_id, self._link.setup.version), on_answer=on_answer)


class _Watches(PaneWatches):
    def __init__(self, watching: PaneWatching, max_bytes: int, stack: ExitStack) -> None:
        self._watching = watching
        self._max_bytes = max_bytes
        self._stack = stack
        self._new: deque[PaneWatch] = deque()
        self._watchers: list[Watcher] = []
        self._wakeup = anyio.Event()
        self._is_over = False

    def add(self, pane: Pane) -> None:
        """Watch a new pane."""
        if self._is_over:
            return
        events = self._stack.enter_context(self._watching.watch(pane, self._max_bytes))
        assert isinstance(events, Watcher)
        self._watchers.append(events)
        self._new.append(PaneWatch(pane.name, events))
        self._wakeup.set()

    async def start(self) -> None:
        """Wait for the first screens."""
        for watcher in self._watchers:
            await watcher.start()

    async def __anext__(self) -> PaneWatch:
        while not self._new:
            if self._is_over:
                raise StopAsyncIteration
            await self._wakeup.wait()
            self._wakeup = anyio.Event()
        return self._new.popleft()

    def end(self) -> None:
        self._is_over = True
        self._wakeup.set()
        for watcher in self._watchers:
            watcher.end()


async def _look_at_size(watchers: PaneWatchers) -> None:
    with suppress(HarnessError):  # after a lost connection every watcher gets a new screen
        await watchers.look_at_size()
