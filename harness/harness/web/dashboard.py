"""What the dashboard shows: the harness processes of this user, their streams, and who sees them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from ..agent.storage.stored_items import stored_items
from ..errors import HarnessError
from ..live.overview import LiveProcess, Overview, open_overview
from ..live.sessions.pane_leases import Lease, PaneLeases
from ..live.sessions.state import SessionState
from ..system.background_tasks import BackgroundTasks, open_background_tasks
from .logins import LoginStore
from .shared_streams import SharedStreams

__all__ = ["MAX_BROWSERS", "Dashboard", "Row", "open_dashboard"]

MAX_BROWSERS = 64
"""Maximum browser pages at the same time."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Row:
    """A session with its process, as browsers see them."""

    state: SessionState
    process: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return {**self.state.to_json(), "process": dict(self.process)}


class Viewer(Protocol):
    """A browser that is told of changes."""

    def sessions_changed(self) -> None:
        """Report the sessions when the browser next reads."""


class Dashboard:
    """The processes and their streams; :func:`open_dashboard` opens it.

    Args:
        logins: Who may see it.
        redact: Replaces secrets in texts that do not come from a harness process.
        tasks: Run what continues when a browser leaves.
    """

    def __init__(self, logins: LoginStore, redact: Callable[[str], str], tasks: BackgroundTasks) -> None:
        self.logins = logins
        self.redact = redact
        self._tasks = tasks
        self.streams = SharedStreams(tasks)
        self.leases = PaneLeases()
        self.browsers: set[Viewer] = set()
        self.overview: Overview | None = None

    def changed(self) -> None:
        """Tell all browsers that sessions have changed."""
        for browser in self.browsers:
            browser.sessions_changed()

    @property
    def is_complete(self) -> bool:
        """Whether all processes have been asked."""
        return self.overview is not None and self.overview.is_complete

    def rows(self) -> dict[str, Row]:
        """Return every session with its process, by its key."""
        found = self.overview.rows() if self.overview is not None else []
        return {f"{process.key}/{state.session}": Row(state, _process_json(process)) for process, state in found}

    def find(self, key: str) -> tuple[LiveProcess, str]:
        """Return the process and the ID of a session.

        Raises:
            HarnessError: It does not exist.
        """
        name, _, session = key.partition("/")
        process = self.overview.processes.get(name) if self.overview is not None else None
        if process is None or session not in process.sessions:
            raise HarnessError("this session has ended", hint="go back to the overview")
        return process, session

    async def ask(self, key: str, action: str, arguments: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """Ask a session for an action or a query, in the name of a login.

        Raises:
            HarnessError: It is not possible.
        """
        process, session = self.find(key)
        if process.client is None:
            raise HarnessError("the process of this session does not answer", hint=process.problem)
        return await process.client.request(session, action, arguments, name=name)

    def release_panes_of(self, browser: object) -> None:
        """Release the panes that a browser holds which has left, unless its operator connects again soon."""
        if self.leases.is_held_by(browser):
            self._tasks.start_soon(partial(self.leases.release_left, browser, self._release))

    async def _release(self, lease: Lease) -> None:
        session, pane, name = lease
        arguments = {"pane": pane, "reason": "the operator has disconnected"}
        try:
            await self.ask(session, "release_pane", arguments, name)
        except HarnessError as error:
            log.info("pane %s is not released: %s", pane, error)

    def history_of(self, session: str) -> Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]:
        """Return a function that reads the stored items of a session's conversation."""
        return lambda: stored_items(session, self.redact)


def _process_json(process: LiveProcess) -> dict[str, Any]:
    return {
        "pid": process.facts.pid or process.identity.pid,
        "kind": process.facts.kind,
        "started": process.facts.started,
        "problem": process.problem,
        "acting_problem": process.acting_problem,
        "lost_at": process.lost_at,
    }


@asynccontextmanager
async def open_dashboard(logins: LoginStore, redact: Callable[[str], str], name: str) -> AsyncIterator[Dashboard]:
    """Follow all harness processes while the context is open.

    Args:
        logins: Who may see it.
        redact: Replaces secrets in texts that do not come from a harness process.
        name: Who runs the server.
    """
    async with open_background_tasks() as tasks:
        dashboard = Dashboard(logins, redact, tasks)
        async with open_overview(dashboard.changed, name=name) as overview:
            dashboard.overview = overview
            yield dashboard
