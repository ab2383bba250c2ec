"""A client of the SDK, connected to a server of ours over streams in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp import ClientSession
from mcp.shared.memory import create_client_server_memory_streams

from harness.mcp.server.elicitation import ClientApprover
from harness.mcp.server.server import open_session
from harness.toolkit import Executor

__all__ = ["connected", "subscribe", "unsubscribe"]


@asynccontextmanager
async def connected(make: Callable[[ClientApprover], Executor], **options: Any) -> AsyncIterator[ClientSession]:
    """A client whose handshake is done; ``options`` are the SDK's, such as an ``elicitation_callback``."""

    @asynccontextmanager
    async def opened(approver: ClientApprover) -> AsyncIterator[Executor]:
        yield make(approver)

    async with (
        create_client_server_memory_streams() as (ours, theirs),
        anyio.create_task_group() as tasks,
        open_session(opened, "1.2.3") as session,
    ):
        tasks.start_soon(session.serve, *theirs)
        async with ClientSession(*ours, **options) as client:
            await client.initialize()
            yield client
        tasks.cancel_scope.cancel()


async def subscribe(client: ClientSession, uri: str) -> None:
    """``resources/subscribe``; the client's own method warns of what later revisions have instead."""
    request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
    await client.send_request(request, types.EmptyResult)


async def unsubscribe(client: ClientSession, uri: str) -> None:
    """``resources/unsubscribe``."""
    request = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
    await client.send_request(request, types.EmptyResult)
