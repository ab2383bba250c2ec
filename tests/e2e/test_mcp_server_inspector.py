"""``harness mcp`` and the MCP Inspector's command line, over both transports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.inspector import Inspector, find_inspector
from tests.support.mcp_program import Home, HttpProgram, http_program

pytestmark = pytest.mark.usefixtures("needs_node")

FREE = '[permissions]\nmode = "auto"\n'


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return find_inspector(tmp_path_factory.mktemp("inspector"))


@pytest.fixture
def inspector(cli: Path, tmp_path: Path) -> Inspector:
    return Inspector(cli, Home.make(tmp_path, FREE))


@pytest.fixture
def server(inspector: Inspector) -> Iterator[HttpProgram]:
    with http_program(inspector.home) as program:
        yield program


def test_it_lists_the_tools_with_their_hints(inspector: Inspector) -> None:
    tools = {tool["name"]: tool for tool in inspector.over_stdio("--method", "tools/list")["tools"]}
    assert {"run_shell", "read_file", "write_file", "time"} <= set(tools)
    assert tools["run_shell"]["annotations"]["readOnlyHint"] is False
    assert tools["run_shell"]["annotations"]["destructiveHint"] is True
    assert tools["read_file"]["annotations"]["readOnlyHint"] is True
    assert tools["run_shell"]["inputSchema"]["required"] == ["command"]


def test_it_calls_a_tool_and_reads_its_log(inspector: Inspector) -> None:
    words = ("--method", "tools/call", "--tool-name", "run_shell", "--tool-arg", "command=echo $((6*7))")
    result = inspector.over_stdio(*words)
    assert result["structuredContent"]["stdout"] == "42\n"
    log = f"harness://job/{result['structuredContent']['job_id']}/log"
    uris = [item["uri"] for item in inspector.over_stdio("--method", "resources/list")["resources"]]
    assert {"harness://jobs", "harness://describe", log} <= set(uris)
    (content,) = inspector.over_stdio("--method", "resources/read", "--uri", log)["contents"]
    assert content["text"] == "42\n"
    templates = inspector.over_stdio("--method", "resources/templates/list")["resourceTemplates"]
    assert len(templates) == 2


def test_a_failure_is_a_result_to_it(inspector: Inspector) -> None:
    words = ("--method", "tools/call", "--tool-name", "read_file", "--tool-arg", "path=/does/not/exist")
    assert inspector.over_stdio(*words)["isError"] is True


def test_it_does_the_same_over_http(inspector: Inspector, server: HttpProgram) -> None:
    names = [tool["name"] for tool in inspector.over_http(server, "--method", "tools/list")["tools"]]
    assert "run_shell" in names
    words = ("--method", "tools/call", "--tool-name", "run_shell", "--tool-arg", "command=echo over http")
    assert inspector.over_http(server, *words)["structuredContent"]["stdout"] == "over http\n"
