"""``harness mcp`` and a client that shares no code with the SDK, over both transports."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from chuk_mcp.protocol.messages.initialize import send_initialize
from chuk_mcp.protocol.messages.resources import send_resources_list, send_resources_read
from chuk_mcp.protocol.messages.tools import send_tools_call, send_tools_list
from chuk_mcp.transports.http import StreamableHTTPParameters, http_client
from chuk_mcp.transports.stdio import StdioParameters, stdio_client
from tests.support.mcp_program import HARNESS, Home, http_program

FREE = '[permissions]\nmode = "auto"\n'
LIMIT = 60


@asynccontextmanager
async def over_stdio(home: Home) -> AsyncIterator[Any]:
    command, *first = HARNESS
    parameters = StdioParameters(command=command, args=[*first, "mcp"], env=home.environment)
    async with stdio_client(parameters) as streams:
        yield streams


@asynccontextmanager
async def over_http(home: Home) -> AsyncIterator[Any]:
    with http_program(home) as server:
        parameters = StreamableHTTPParameters(url=server.url, bearer_token=server.token)
        async with http_client(parameters) as streams:
            yield streams


@pytest.fixture(autouse=True)
def streams_closed(needs_process: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the streams in memory that the other client leaves open, and report here what is left all the same."""
    opened: list[Any] = []
    create = anyio.create_memory_object_stream

    def recorded(*arguments: Any) -> Any:
        pair = create(*arguments)
        opened.extend(pair)
        return pair

    monkeypatch.setattr(anyio, "create_memory_object_stream", recorded)
    yield
    for stream in opened:
        stream.close()
    opened.clear()
    gc.collect()


@pytest.mark.parametrize("transport", [over_stdio, over_http])
async def test_tools_are_listed_and_called_and_logs_are_read(transport: Any, tmp_path: Path) -> None:
    home = Home.make(tmp_path, FREE)
    with anyio.fail_after(LIMIT):
        async with transport(home) as (read, write):
            greeting = await send_initialize(read, write)
            assert greeting.serverInfo.name == "harness"
            names = {tool.name for tool in (await send_tools_list(read, write)).tools}
            assert {"run_shell", "read_file", "write_file"} <= names
            result = await send_tools_call(read, write, "run_shell", {"command": "echo $((6*7)); exit 3"})
            assert result.isError is True
            assert result.structuredContent["stdout"] == "42\n"
            assert result.structuredContent["exit_code"] == 3
            log = f"harness://job/{result.structuredContent['job_id']}/log"
            assert log in {item.uri for item in (await send_resources_list(read, write)).resources}
            (content,) = (await send_resources_read(read, write, log)).contents
            assert content.text == "42\n"
            wrong = await send_tools_call(read, write, "nothing", {})
            assert wrong.isError is True
