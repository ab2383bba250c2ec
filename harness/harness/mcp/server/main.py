"""The server from its parts: a client on standard input and output, or many over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

import anyio

from ..context import ExecutionContext
from ..toolkit.assembly import Toolkit
from ..toolkit.executor import Executor
from .elicitation import ClientApprover
from .elicitation_questions import ClientQuestioner
from .http_guard import Address
from .http_server import http_server
from .http_sessions import http_sessions
from .http_token import Token
from .server import ClientSession, open_session
from .server_settings import ServerSettings
from .server_stdio import Wire, stdio_streams
from .sources import McpSources

__all__ = ["ToolServer"]

AGENT = "mcp"
"""Calls that come over the protocol are an agent's, whoever wrote the client."""


@dataclass(frozen=True, slots=True)
class ToolServer:
    """Serves the tools of a toolkit on one target. Each client has a session of its own."""

    toolkit: Toolkit
    execution: ExecutionContext
    settings: ServerSettings
    version: str
    sources: McpSources | None = None
    """Other servers, whose tools are offered as well."""

    async def serve_stdio(self, wire: Wire) -> None:
        """Serve one client until it goes."""
        async with stdio_streams(wire) as (incoming, outgoing), self._session() as session:
            await session.serve(incoming, outgoing)

    async def serve_http(
        self, address: Address, token: Token, names: Sequence[str], started: Callable[[Address], None]
    ) -> None:
        """Serve whoever has the token, until it is cancelled; ``started`` gets the address that was found.

        Raises:
            HarnessError: nothing can listen there.
        """
        async with http_sessions(self._session) as sessions, http_server(sessions, address, token, names) as found:
            started(found)
            await anyio.sleep_forever()

    def _session(self) -> AbstractAsyncContextManager[ClientSession]:
        return open_session(self._executor, self.version)

    @asynccontextmanager
    async def _executor(self, approver: ClientApprover) -> AsyncIterator[Executor]:
        async with self.toolkit.executor(
            self.execution, approver=approver, questioner=ClientQuestioner(), agent_id=AGENT
        ) as executor:
            with self.sources.attached(executor.registry) if self.sources is not None else nullcontext():
                yield replace(executor, handoff=self.settings.handoff)
