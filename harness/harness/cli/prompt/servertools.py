"""Tools of MCP servers, for the agent at the prompt."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from anyio import to_thread

if TYPE_CHECKING:
    from ...mcp.client.sources import McpSources
    from ...settings import Choices
    from ...toolkit.registry import Registry

__all__ = ["server_tools"]

MARGIN = 5.0


@asynccontextmanager
async def server_tools(
    choices: Choices, registry: Registry, say: Callable[[str], None]
) -> AsyncIterator[McpSources | None]:
    """Start the servers of the settings and put their tools into a registry, as far as they list them in time.

    Raises:
        ConfigError: the settings are wrong.
    """
    from ...mcp.client.configuration import load_servers

    found = await to_thread.run_sync(load_servers, choices)
    for text in found.refused:
        say(text)
    configs = tuple(server for server in found.servers if not server.disabled)
    if not configs:
        yield None
        return
    from ...mcp.client.sources import open_sources

    for name in ("client", "mcp.client", "mcp.shared"):  # they log tracebacks for what a server does wrong
        logging.getLogger(name).setLevel(logging.CRITICAL)
    async with open_sources(registry, configs, notice=say) as sources:
        await sources.wait_listed(max(server.start_timeout + server.timeout for server in configs) + MARGIN)
        yield sources
