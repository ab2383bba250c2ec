"""``harness mcp`` for a host behind SSH, plainly and in a tmux session there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.support.program import Program, over_ssh, program, there

__all__ = ["over_ssh", "program", "there"]

LIMIT = 90


@asynccontextmanager
async def client_of(program: Program, *more: str) -> AsyncIterator[ClientSession]:
    arguments = [*program.always, "mcp", *more]
    server = StdioServerParameters(command=program.path, args=arguments, env=program.environ, cwd=str(program.home))
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        yield client


def data_of(result: types.CallToolResult) -> dict[str, Any]:
    assert isinstance(result.structured_content, dict), result
    return result.structured_content


@pytest.mark.parametrize("terminal", [[], ["--tmux"]], ids=["plain", "tmux"])
async def test_commands_files_logs_and_long_commands(there: Program, terminal: list[str]) -> None:
    config = there.home / "config" / "harness"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[permissions]\nmode = "auto"\n[mcp]\njob_handoff_seconds = 2\n')
    with anyio.fail_after(LIMIT):
        async with client_of(there, *terminal) as client:
            short = data_of(await client.call_tool("run_shell", {"command": "echo $((6*7))"}))
            assert (short["exit_code"], short["stdout"]) == (0, "42\n")
            waits = f"echo begun; until [ -e {there.home}/go ]; do sleep 0.1; done; echo ended"
            long = data_of(await client.call_tool("run_shell", {"command": waits}))
            assert (long["status"], long["stdout"]) == ("running", "begun\n")
            (there.home / "go").touch()
            uri, text = f"harness://job/{long['job_id']}/log", ""
            while "ended" not in text:
                (content,) = (await client.read_resource(uri)).contents
                assert isinstance(content, types.TextResourceContents)
                text = content.text
            assert text == "begun\nended\n"
            screens = [item for item in (await client.list_resources()).resources if "pane" in str(item.uri)]
            assert bool(screens) is bool(terminal)
