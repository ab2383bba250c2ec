"""The managed sessions of the tmux server: listed, made within the limit, ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from harness.errors import PaneGone, TerminalError
from harness.results import SessionInfo

from .link import Link
from .naming import DEFAULT_PANE, PANE_FORMAT, parse_panes
from .panes import PaneTable
from .setup import setup_script, shells_script

__all__ = ["SessionTable"]


class SessionTable:
    """Knows the sessions that carry our option."""

    def __init__(self, link: Link, table: PaneTable) -> None:
        self._link = link
        self._table = table

    async def list(self) -> list[SessionInfo]:
        """The managed sessions; ``attached`` counts people, not the clients of harness."""
        sessions, clients = await self._link.request(
            ("list-sessions", "-F", "#{session_name}\t#{@harness}"),
            ("list-clients", "-F", "#{client_control_mode}\t#{session_name}"),
        )
        people = Counter(line.partition("\t")[2] for line in clients.text.splitlines() if not line.startswith("1"))
        names = [line.split("\t")[0] for line in sessions.text.splitlines() if line.endswith("\t1")]
        return [await self._info(name, people[name]) for name in names]

    async def _info(self, name: str, attached: int) -> SessionInfo:
        rows = await self._link.request(("list-panes", "-s", "-t", f"={name}", "-F", PANE_FORMAT))
        panes = tuple(replace(self._table.info(row), session=name) for row in parse_panes(rows[-1].text))
        return SessionInfo(name, attached, panes, default=name == self._link.setup.session)

    async def create(self, name: str) -> SessionInfo:
        """Another managed session.

        Raises:
            TerminalError: the limit is reached, or the name is taken.
        """
        sessions = await self.list()
        limit = self._link.setup.config.max_sessions
        if any(session.name == name for session in sessions):
            raise TerminalError(f"there is a session {name!r} already", target=self._link.transport.target)
        if len(sessions) >= limit:
            raise TerminalError(
                f"the limit of {limit} managed sessions is reached",
                target=self._link.transport.target,
                hint="kill one, or raise max_sessions",
            )
        other, pane = replace(self._link.setup, session=name), self._table.new_pane(DEFAULT_PANE, None)
        if other.here:
            await self._link.shells.call(shells_script(other, pane))
        await self._link.shell.call(setup_script(other, pane))
        return next(session for session in await self.list() if session.name == name)

    async def kill(self, name: str) -> None:
        """End another managed session.

        Raises:
            TerminalError: it is the one in use.
            PaneGone: there is no managed session of that name.
        """
        if name == self._link.setup.session:
            raise TerminalError("the session in use is protected", target=self._link.transport.target)
        if not any(session.name == name for session in await self.list()):
            raise PaneGone(f"there is no managed session {name!r}", target=self._link.transport.target)
        await self._link.request(("kill-session", "-t", f"={name}"))
