"""What the Model Context Protocol adds to a call, over both transports, and what a server of it weighs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import httpx2
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from tests.support.mcp_program import HARNESS, Home, HttpProgram, http_program

from harness.testing.memory import MemoryBackend, memory_context
from harness.toolkit import ToolCall
from harness.toolkit.assembly import ToolkitSettings, open_toolkit

from .child import memory
from .model import Line, Row
from .timing import Action, take_turns
from .world import Size, World

__all__ = ["mcp_row"]

TOOL = "time"
MANY = 10
EXECUTOR, BARE, STDIO, HTTP = "the executor alone", "a server of the SDK alone, stdio", "over stdio", "over HTTP"
BARE_SERVER = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("bare")

@server.tool()
def time() -> str:
    return "2030-01-02T03:04:05"

server.run()
"""
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}
START, WEIGHT = "until the first list of tools", "memory of a server"


async def mcp_row(world: World, size: Size) -> Row:
    """Calls of a tool that only tells the time, so that the way there is all that is measured."""
    home = Home.make(world.directory / "mcp-home")
    bare = [sys.executable, "-c", BARE_SERVER]
    lines: list[Line] = []
    with http_program(home) as server:
        alone = _weight(server.process.pid)
        async with AsyncExitStack() as stack:
            stdio = [await stack.enter_async_context(_stdio(home, [*HARNESS, "mcp"])) for _ in range(MANY)]
            web = [await stack.enter_async_context(_web(server)) for _ in range(MANY)]
            plain = await stack.enter_async_context(_stdio(home, bare))
            own = await stack.enter_async_context(_executor())
            sides = {STDIO: _calls(stdio[:1]), HTTP: _calls(web[:1]), BARE: _calls([plain]), EXECUTOR: own}
            lines += await take_turns(sides, size.pick(200, 5), group="a call, 1 client")
            together = {f"{STDIO}, a server for each": _calls(stdio), f"{HTTP}, one server": _calls(web)}
            lines += await take_turns(together, size.pick(50, 3), group=f"a call of each of {MANY} clients at once")
            served = _weight(server.process.pid)
    started = [_start(home, [*HARNESS, "mcp"]) for _ in range(size.pick(10, 2))]
    simple = [_start(home, bare) for _ in range(size.pick(10, 2))]
    lines += [
        Line("stdio", tuple(weight for _, weight in started), "MB", WEIGHT),
        Line("HTTP, no session", (alone,), "MB", WEIGHT),
        Line(f"HTTP, {MANY} sessions", (served,), "MB", WEIGHT),
        Line("a server of the SDK alone", tuple(weight for _, weight in simple), "MB", WEIGHT),
        Line("harness mcp", tuple(seconds for seconds, _ in started), "ms", START),
        Line("a server of the SDK alone", tuple(seconds for seconds, _ in simple), "ms", START),
    ]
    notes = (
        "The clients are the SDK's own, in one process, and their work is in all numbers but the executor's.",
        "Memory is the resident one of the server's process, idle. The start is from exec to the answer.",
    )
    return Row("mcp", "Model Context Protocol", tuple(lines), (), notes)


def _calls(clients: Sequence[ClientSession]) -> Action:
    """One call of each, at once."""

    async def one(client: ClientSession) -> None:
        result = await client.call_tool(TOOL, {})
        assert not result.is_error, result

    async def act() -> None:
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(one, client)

    return act


@asynccontextmanager
async def _stdio(home: Home, argv: Sequence[str]) -> AsyncIterator[ClientSession]:
    server = StdioServerParameters(command=argv[0], args=list(argv[1:]), env=home.environment, cwd=str(home.path))
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        yield client


@asynccontextmanager
async def _web(server: HttpProgram) -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {server.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as web,
        streamable_http_client(server.url, http_client=web) as streams,
        ClientSession(*streams[:2]) as client,
    ):
        await client.initialize()
        yield client


@asynccontextmanager
async def _executor() -> AsyncIterator[Action]:
    """The same call without any protocol, in this process."""
    async with (
        open_toolkit(ToolkitSettings()) as toolkit,
        toolkit.executor(memory_context(MemoryBackend())) as executor,
    ):

        async def act() -> None:
            outcome = await executor.call(ToolCall(TOOL))
            assert not outcome.result.is_error, outcome

        yield act


def _start(home: Home, argv: Sequence[str]) -> tuple[float, float]:
    """Milliseconds until a server has listed its tools, and its megabytes then."""
    pipe, began = subprocess.PIPE, time.perf_counter()
    messages = (
        {"id": 1, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    )
    with subprocess.Popen(argv, env=home.environment, cwd=home.path, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in messages:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            process.stdin.flush()
            while "id" in message and json.loads(process.stdout.readline()).get("id") != message["id"]:
                pass
        elapsed, weight = (time.perf_counter() - began) * 1e3, _weight(process.pid)
        process.stdin.close()
        process.wait(60)
    return elapsed, weight


def _weight(pid: int) -> float:
    """Resident megabytes of a process."""
    return memory(pid)["rss"] / 1024
