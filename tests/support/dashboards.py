"""A dashboard of a test: the processes of a home that is not the test's, as :class:`Overview` sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from harness.live.overview import LiveProcess, Overview, open_overview
from harness.live.sessions.state import SessionState, WaitingApproval

__all__ = ["Dashboard", "dashboard"]

PATIENCE = 30.0


@dataclass
class Dashboard:
    """What a test sees and does."""

    overview: Overview
    more: anyio.Event = field(default_factory=anyio.Event)

    async def until(self, condition: Callable[[SessionState], bool]) -> tuple[LiveProcess, SessionState]:
        """Wait for a session for which something is true."""
        with anyio.move_on_after(PATIENCE):
            while True:
                for process, session in self.overview.rows():
                    if condition(session):
                        return process, session
                self.more = anyio.Event()
                await self.more.wait()
        raise AssertionError(f"never seen; there are {self.overview.rows()}")

    async def gone(self, key: str) -> None:
        """Wait until a process is not shown any more."""
        with anyio.fail_after(PATIENCE):
            while key in self.overview.processes:
                self.more = anyio.Event()
                await self.more.wait()

    async def asked(self, text: str) -> tuple[LiveProcess, SessionState, WaitingApproval]:
        """Wait for an approval request with that text."""
        process, session = await self.until(lambda one: any(text in asked.text for asked in one.approvals))
        return process, session, session.approvals[0]

    async def act(self, process: LiveProcess, session: SessionState, action: str, **arguments: object) -> object:
        """Ask for an action."""
        assert process.client is not None, process
        assert not process.acting_problem
        return await process.client.request(session.session, action, arguments)


@asynccontextmanager
async def dashboard(
    environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, name: str = "anna"
) -> AsyncIterator[Dashboard]:
    """A dashboard of the user whose environment that is; without a name it only watches."""
    for variable in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, environment[variable])
    found: list[Dashboard] = []
    async with open_overview(lambda: [one.more.set() for one in found] and None, name=name) as overview:
        found.append(Dashboard(overview))
        yield found[0]
