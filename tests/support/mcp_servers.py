"""Real servers of the Model Context Protocol for tests of our client, and an executor with their tools."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from tests.support.toolbox import Toolbox, toolbox

from harness.mcp.client.configuration import ServerConfig, server_config
from harness.mcp.client.session import RestartPolicy
from harness.mcp.client.sources import McpSources, open_sources
from harness.toolkit.values import CallOutcome, ToolCall

SERVERS = Path(__file__).parents[1] / "data/mcp_servers"
QUICK = RestartPolicy(backoff=0.05)


def raw(*arguments: str, name: str = "raw", **settings: Any) -> ServerConfig:
    """The server that misbehaves on request."""
    return server_config(name, {"command": [sys.executable, str(SERVERS / "raw.py"), *arguments], **settings}, "test")


@dataclass
class Workbench:
    """An executor with the tools of servers, and what was noticed about them."""

    box: Toolbox
    sources: McpSources
    notices: list[str] = field(default_factory=list)

    async def call(self, name: str, /, **arguments: Any) -> CallOutcome:
        return await self.box.executor.call(ToolCall(name, arguments))

    def names(self) -> list[str]:
        return [tool.name for tool in self.box.executor.registry.list()]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until the registry, a state or a notice is as it should be."""
        await eventually(holds)


@asynccontextmanager
async def workbench(
    directory: Path,
    *servers: ServerConfig,
    environ: dict[str, str] | None = None,
    rules: RestartPolicy = QUICK,
    wait: bool = True,
) -> AsyncIterator[Workbench]:
    """Start servers and wait until each has listed its tools or was given up."""
    box = toolbox([])
    notices: list[str] = []
    env = {"PATH": os.environ["PATH"], "HOME": str(directory)} if environ is None else environ
    async with open_sources(
        box.executor.registry, servers, environ=env, directory=directory / "state", rules=rules, notice=notices.append
    ) as sources:
        if wait:
            assert await sources.wait_listed(30)
        yield Workbench(box, sources, notices)


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait for what nothing signals to us: the state of another process, or of a task that is not ours."""
    with anyio.fail_after(60):
        while not holds():  # noqa: ASYNC110  # there is no event
            await anyio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


@dataclass
class Web:
    """A running server, and what it is told to do to each request."""

    directory: Path
    port: int
    process: Process

    def config(
        self, name: str = "web", *, scheme: str = "http", token: str = "Bearer T0KEN", **more: Any
    ) -> ServerConfig:
        url = f"{scheme}://127.0.0.1:{self.port}/mcp"
        return server_config(name, {"url": url, "headers": {"Authorization": token}, **more}, "test")

    def answers(self, text: str) -> None:
        state = self.directory / "STATE"
        state.write_text(text) if text else state.unlink()


@asynccontextmanager
async def web(directory: Path, *arguments: str) -> AsyncIterator[Web]:
    """Start the server over HTTP, which requires the token."""
    directory.mkdir(exist_ok=True)
    file = directory / "port"
    file.unlink(missing_ok=True)
    command = [sys.executable, str(SERVERS / "web.py"), str(file), *arguments]
    async with await anyio.open_process(command, stdout=None, stderr=subprocess.DEVNULL) as process:
        try:
            await eventually(file.exists)
            yield Web(directory, int(file.read_text()), process)
        finally:
            if process.returncode is None:
                process.kill()
