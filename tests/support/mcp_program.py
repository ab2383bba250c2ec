"""``harness mcp`` as a program, with a home of its own, for clients of any kind."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

__all__ = ["HARNESS", "Home", "HttpProgram", "cancelled_call", "http_program", "running", "stdio_client_of"]

HARNESS = (sys.executable, "-c", "from harness.cli.main import main; main()")
LIMIT = 60


@dataclass(frozen=True)
class Home:
    """Where a program finds its settings and leaves its state, apart from all others."""

    path: Path

    @classmethod
    def make(cls, path: Path, settings: str = "") -> Home:
        """A home with settings; its tmux server has a name that nobody else has."""
        config = path / ".config" / "harness"
        config.mkdir(parents=True)
        socket = f'tmux_socket = "hx-{secrets.token_hex(4)}"\n'
        (config / "config.toml").write_text(socket + settings)
        (config / "config.toml").chmod(0o600)
        (path / "run").mkdir(mode=0o700)
        return cls(path)

    @property
    def environment(self) -> dict[str, str]:
        """All that the program gets."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.path), "XDG_RUNTIME_DIR": str(self.path / "run")}


@asynccontextmanager
async def stdio_client_of(home: Home, *arguments: str, **options: Any) -> AsyncIterator[ClientSession]:
    """The SDK's client, with the handshake done."""
    command, *first = HARNESS
    server = StdioServerParameters(
        command=command, args=[*first, "mcp", *arguments], env=home.environment, cwd=str(home.path)
    )
    async with stdio_client(server) as streams, ClientSession(*streams, **options) as client:
        await client.initialize()
        yield client


def running(command: str) -> bool:
    """Whether a program runs whose command line begins so."""
    return subprocess.run(["pgrep", "-f", f"^{command}"], capture_output=True).returncode == 0


async def cancelled_call(client: ClientSession, command: str) -> None:
    """Call ``run_shell``, cancel the call once the command runs, and wait until it has ended."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "run_shell", {"command": command})
        while not running(command):
            await client.send_ping()
        tasks.cancel_scope.cancel()
    while running(command):
        await client.send_ping()


@dataclass(frozen=True)
class HttpProgram:
    """A server that listens."""

    url: str
    token_file: Path
    process: subprocess.Popen[bytes]

    @property
    def token(self) -> str:
        """What a client has to know."""
        return self.token_file.read_text().strip()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2].partition("/")[0])


@contextmanager
def http_program(home: Home, *arguments: str, extra: Sequence[tuple[str, str]] = ()) -> Iterator[HttpProgram]:
    """``harness mcp --http`` on a port that was free; ended by SIGTERM."""
    command = [*HARNESS, "--json", "mcp", "--http", "127.0.0.1:0", *arguments]
    environment = home.environment | dict(extra)
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, cwd=home.path, stdin=nothing, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        said = json.loads(line)
        yield HttpProgram(said["url"], Path(said["token_from"]), process)
    finally:
        process.terminate()
        try:
            process.wait(LIMIT)
        finally:
            process.kill()
            process.communicate()
