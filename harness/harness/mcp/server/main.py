"""The MCP server from its settings and parts: for one client over stdio, or many over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from ...context import ExecutionContext
from ...deprecated_names import renamed_fields
from ...errors import ConfigError
from ...live.announcement import Announcement
from ...live.sessions.approvals import share_approver
from ...live.sessions.call_session import show_calls
from ...login import use_prompter
from ...settings import SettingsTable
from ...system.protocol_stdio import Wire
from ...toolkit.assembly import Toolkit
from ...toolkit.executor import Executor
from .elicitation import ClientApprover, ClientQuestioner
from .protocol_types import DEFAULT_HANDOFF
from .server import ClientSession, open_session
from .stdio import stdio_streams

if TYPE_CHECKING:
    from ...notifications.notifier import Notifier
    from ...system.http_server import Address
    from ..client.sources import McpSources
    from .http import Token

__all__ = [
    "ServerSettings",
    "ToolServer",
    "server_settings_of",
]


# -- Settings: keys of the ``[mcp]`` table of the settings files


OF_THE_CLIENT = frozenset({"servers", "files"})
"""Keys of the same table about other servers, for the client."""
LONGEST = 86_400.0


@renamed_fields(handoff="job_handoff_seconds")
@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The operator's settings of the server.

    ``job_handoff_seconds``: seconds after which a call returns the handle of its job if the command is still running.
    """

    job_handoff_seconds: float = DEFAULT_HANDOFF


def server_settings_of(tables: Iterable[SettingsTable]) -> ServerSettings:
    """Return the settings of all tables; later tables override earlier ones.

    Raises:
        ConfigError: a key is unknown, or a value is wrong.
    """
    settings = ServerSettings()
    for table in tables:
        for key, value in table.values.items():
            if key == "job_handoff_seconds":
                settings = replace(settings, job_handoff_seconds=_seconds(value, table.origin))
            elif key not in OF_THE_CLIENT:
                raise ConfigError(
                    f"{table.origin}: mcp.{key} is not a setting", hint="there are: files, job_handoff_seconds, servers"
                )
    return settings


def _seconds(value: object, origin: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= LONGEST:
        raise ConfigError(
            f"{origin}: mcp.job_handoff_seconds must be a number of seconds from 1 to {LONGEST:.0f}, not {value!r}"
        )
    return float(value)


# -- The server


AGENT = "mcp"
"""The agent id of calls over the protocol, whatever the client is."""


@dataclass(frozen=True, slots=True)
class ToolServer:
    """Serves the tools of a toolkit on one target, with a session for each client."""

    toolkit: Toolkit
    execution: ExecutionContext
    settings: ServerSettings
    version: str
    sources: McpSources | None = None
    """Other MCP servers, whose tools are offered, too."""
    announcement: Announcement | None = None
    """Shows the sessions of clients in dashboards, which may then answer their approval requests."""
    notifier: Notifier | None = None
    """Notifies of the sessions that are announced."""

    async def serve_stdio(self, wire: Wire) -> None:
        """Serve one client until it disconnects."""
        with use_prompter(None):  # the terminal, if there is one, belongs to the client
            async with stdio_streams(wire) as (incoming, outgoing), self._session() as session:
                await session.serve(incoming, outgoing)

    async def serve_http(
        self, address: Address, token: Token, names: Sequence[str], started: Callable[[Address], None]
    ) -> None:
        """Serve clients with the token until cancelled.

        Args:
            address: where to listen.
            token: the token that clients need.
            names: further host names of the server.
            started: called with the actual address.

        Raises:
            HarnessError: the address is not available.
        """
        from .http import http_server, http_sessions

        with use_prompter(None):  # a client must not make this terminal ask
            async with http_sessions(self._session) as sessions, http_server(sessions, address, token, names) as found:
                started(found)
                await anyio.sleep_forever()

    def _session(self) -> AbstractAsyncContextManager[ClientSession]:
        return open_session(self._executor, self.version)

    @asynccontextmanager
    async def _executor(self, approver: ClientApprover) -> AsyncIterator[Executor]:
        shown = self.announcement
        shared = None if shown is None else share_approver(shown, approver)
        async with self.toolkit.executor(
            self.execution, approver=shared or approver, questioner=ClientQuestioner(), agent_id=AGENT
        ) as executor:
            with ExitStack() as stack:
                if self.sources is not None:
                    stack.enter_context(self.sources.attached(executor.registry))
                if shown is not None and shared is not None:
                    session = stack.enter_context(show_calls(shown, executor, shared, "mcp"))
                    if self.notifier is not None:
                        redact = executor.services.redactor.text
                        read = session.read_end
                        stack.enter_context(self.notifier.watching(session.state, executor.events, redact, read))
                yield replace(executor, handoff=self.settings.job_handoff_seconds)
