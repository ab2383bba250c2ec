"""All harness processes of this user on this machine, with their sessions, for a dashboard.

New processes are noticed by a change of the directory of sockets, dead ones by the end of their connection. Only a
process that cannot be connected to is tried again after a while.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
from anyio import to_thread

from ..errors import HarnessError
from ..system.background_tasks import BackgroundTasks, open_background_tasks
from ..system.directory_watch import DirectoryWatch, watch_directory
from ..system.process_identity import ProcessId, ProcessState, process_state, this_process
from .client import ProcessClient, open_client
from .sessions.state import ProcessFacts, SessionState
from .sockets import directory_of, listed_processes, open_directory, remove_old_sockets, set_aside, was_left

__all__ = ["LiveProcess", "Overview", "open_overview"]

RETRY_PAUSE = 1.0
"""Seconds until a process that cannot be connected to is tried again."""
MAX_LOST = 100
"""Processes that have died and are still shown; the last ones."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class LiveProcess:
    """One process. ``lost_at`` is the Unix time at which it was found dead, 0 while it lives."""

    path: Path
    identity: ProcessId
    facts: ProcessFacts = field(default_factory=ProcessFacts)
    sessions: dict[str, SessionState] = field(default_factory=dict)
    client: ProcessClient | None = None
    is_complete: bool = False
    """Whether its sessions are known, or why they are not is in ``problem``."""
    problem: str = ""
    acting_problem: str = ""
    """Why actions are refused; empty if they are possible, or were not tried."""
    lost_at: float = 0.0

    @property
    def key(self) -> str:
        """The name of the process that no other one has."""
        return self.path.name


class Overview:
    """The processes; :func:`open_overview` opens it.

    Args:
        changed: Called after each change, in the event loop.
        name: Who acts; empty if this dashboard only watches.
    """

    def __init__(self, changed: Callable[[], None], name: str) -> None:
        self._changed = changed
        self._name = name
        self._here = this_process()
        self.processes: dict[str, LiveProcess] = {}
        self._looked = False
        self._complete = anyio.Event()

    # -- for the dashboard

    @property
    def is_complete(self) -> bool:
        """Whether all processes that were there at the start have been asked."""
        return self._looked and all(one.is_complete for one in self.processes.values())

    async def wait_complete(self) -> None:
        """Wait until :attr:`is_complete`."""
        await self._complete.wait()

    def rows(self) -> list[tuple[LiveProcess, SessionState]]:
        """Return every session with its process, the oldest first."""
        found = [(process, session) for process in self.processes.values() for session in process.sessions.values()]
        return sorted(found, key=lambda row: (row[1].started, row[0].key, row[1].session))

    def forget_lost(self) -> None:
        """Show processes that have died no longer."""
        self.processes = {key: one for key, one in self.processes.items() if not one.lost_at}
        self._note_change()

    def _note_change(self) -> None:
        if self.is_complete:
            self._complete.set()
        self._changed()

    # -- following the processes

    async def serve(self, directory: Path, tasks: BackgroundTasks) -> None:
        """Follow every process until cancelled."""
        with watch_directory(directory) as watch:
            while True:
                found = await to_thread.run_sync(self._list_processes, watch)
                for path, identity in found.items():
                    known = self.processes.get(path.name)
                    if known is None or known.lost_at:
                        process = self.processes[path.name] = LiveProcess(path, identity)
                        tasks.start_soon(self._follow, process)
                self._looked = True
                self._note_change()
                await watch.wait_for_change()

    def _list_processes(self, watch: DirectoryWatch) -> dict[Path, ProcessId]:
        """Return the sockets of living processes; another machine may have removed the directory while it was empty."""
        if not directory_of(self._here).is_dir():
            open_directory(self._here)
        watch.renew()
        return listed_processes(self._here)

    async def _follow(self, process: LiveProcess) -> None:
        """Stay connected to a process until it has ended."""
        while True:
            try:
                async with open_client(process.path, lambda: self._heard(process)) as client:
                    _check_identity(client, process)
                    process.client, process.facts, process.problem = client, client.facts, ""
                    await self._authorize(process, client)
                    await client.watch()
                    await client.wait_closed()
                    process.problem = client.goodbye
            except HarnessError as error:
                process.problem = error.message
            process.client = None
            if await self._has_ended(process):
                return
            process.is_complete = True
            self._note_change()
            await anyio.sleep(RETRY_PAUSE)

    async def _authorize(self, process: LiveProcess, client: ProcessClient) -> None:
        if not self._name:
            return
        try:
            await client.authorize(self._name)
            process.acting_problem = ""
        except HarnessError as error:
            process.acting_problem = error.message

    def _heard(self, process: LiveProcess) -> None:
        client = process.client
        if client is not None:
            process.sessions, process.is_complete = client.sessions, client.is_complete
            self._note_change()

    async def _has_ended(self, process: LiveProcess) -> bool:
        """Return whether a process has ended, and show it as lost if it did not close its socket."""
        is_there = await to_thread.run_sync(process.path.exists)
        state = await to_thread.run_sync(process_state, process.identity, self._here)
        if is_there and state is ProcessState.ALIVE:
            return False
        if state is not ProcessState.ALIVE and process.sessions and await to_thread.run_sync(was_left, process.path):
            process.lost_at, process.is_complete = time.time(), True
            process.sessions = {name: _lost(session) for name, session in process.sessions.items()}
            await to_thread.run_sync(set_aside, process.path)
        else:
            del self.processes[process.key]
        lost = [key for key, one in self.processes.items() if one.lost_at]
        for key in lost[:-MAX_LOST]:
            del self.processes[key]
        self._note_change()
        return True


def _check_identity(client: ProcessClient, process: LiveProcess) -> None:
    """Refuse a socket that another process than that of its name listens on.

    Raises:
        HarnessError: It may pretend to be a harness process.
    """
    if client.peer_pid not in (None, process.identity.pid):
        raise HarnessError(f"process {client.peer_pid} pretends to be process {process.identity.pid}")


def _lost(session: SessionState) -> SessionState:
    """Return the state of a session whose process has died: what it ran may continue on its target."""
    return replace(
        session, doing="lost", since=time.time(), approvals=(), running=(), actions=(), paused_by="", taken_by={}
    )


@asynccontextmanager
async def open_overview(changed: Callable[[], None] = lambda: None, *, name: str = "") -> AsyncIterator[Overview]:
    """Follow all harness processes of this user on this machine while the context is open.

    Args:
        changed: Called after each change, in the event loop; it must not block.
        name: Who acts, for the audit logs; empty only watches.

    Raises:
        HarnessError: The directory of the sockets is not private, or cannot be created.
    """
    overview = Overview(changed, name)
    here = this_process()
    directory = await to_thread.run_sync(open_directory, here)
    await to_thread.run_sync(remove_old_sockets, here)
    async with open_background_tasks() as tasks:
        tasks.start_soon(overview.serve, directory, tasks)
        yield overview
