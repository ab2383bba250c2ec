"""``harness mcp --tool-profile``: what a client of the protocol sees."""

from __future__ import annotations

from pathlib import Path

import mcp_types as types
import pytest
from tests.support.mcp_program import Home, stdio_client_of

SETTINGS = '[permissions]\nmode = "auto"\n[mcp]\njob_handoff_seconds = 1\n'


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.fixture
def home(needs_process: None, tmp_path: Path) -> Home:
    return Home.make(tmp_path, SETTINGS)


DECLARED = '[[tool]]\nname = "ending"\ndescription = "Echo."\nbinary = "echo"\nwords = ["the end"]\nmutating = false\n'


async def test_a_client_gets_declared_tools_next_to_those_of_the_profile(home: Home) -> None:
    declared = home.path / ".config/harness/tools/ending.toml"
    declared.parent.mkdir()
    declared.write_text(DECLARED)
    declared.chmod(0o600)
    async with stdio_client_of(home, "--tool-profile", "terse") as client:
        assert {"read", "ending"} <= {tool.name for tool in (await client.list_tools()).tools}
        assert text_of(await client.call_tool("ending", {})) == "the end\n"


async def test_a_client_gets_the_tools_and_the_results_of_the_profile(home: Home) -> None:
    async with stdio_client_of(home, "--tool-profile", "gofastr") as client:
        offered = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"Read", "Write", "Bash", "Grep"} <= set(offered)
        assert not set(offered) & {"run_shell", "read_file", "capture-pane"}
        assert set(offered["Bash"].input_schema["properties"]) == {"cmd", "cwd", "timeout_ms", "env"}
        done = await client.call_tool("Bash", {"cmd": "echo out; exit 3"})
        assert (done.is_error, text_of(done), done.structured_content) == (True, "out\n[exit code 3]", None)
        wrong = await client.call_tool("Bash", {"command": "true"})
        assert (wrong.is_error, "did you mean 'cmd'?" in text_of(wrong)) == (True, True)
        long = await client.call_tool("Bash", {"cmd": "until [ -e go-on ]; do sleep 0.1; done"})
        assert (long.is_error, "harness://job/" in text_of(long)) == (False, True)
        assert not (await client.call_tool("Bash", {"cmd": "touch go-on"})).is_error
