"""``harness mcp install`` as an operator runs it, and the server that a client starts by what it wrote."""

from __future__ import annotations

import json

import pexpect
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.support.program import Program

from harness.mcp.installation.json_text import read_json

pytestmark = pytest.mark.usefixtures("needs_process")

SETTINGS = '// Zed settings\n{\n  "vim_mode": true, // yes\n}\n'


def at_terminal(program: Program, *words: str) -> pexpect.spawn[str]:
    return pexpect.spawn(
        program.path, [*words], cwd=str(program.home), env=program.environ, encoding="utf-8", timeout=30
    )


def test_the_operator_sees_the_change_and_decides(program: Program) -> None:
    file = program.home / "config/zed/settings.json"
    file.parent.mkdir(parents=True)
    file.write_text(SETTINGS)
    words = ("--ssh", "deploy@web1", "-F", "ssh_config", "--tmux", "mcp", "install", "zed")
    for answer, code in (("n\r", 1), ("\x03", 130), ("\x04", 1)):
        child = at_terminal(program, *words)
        child.expect_exact('+    "harness-web1": {')
        child.expect_exact(f"write {file}? [y/N] ")
        child.send(answer)
        child.expect(pexpect.EOF)
        child.close()
        assert (child.exitstatus, file.read_text(), len(list(file.parent.iterdir()))) == (code, SETTINGS, 1), answer
    child = at_terminal(program, *words)
    child.expect_exact("[y/N] ")
    child.send("y\r")
    child.expect_exact("Zed has the server harness-web1 in ")
    child.expect(pexpect.EOF)
    text = file.read_text()
    assert text.startswith('// Zed settings\n{\n  "vim_mode": true, // yes\n')
    config = str(program.home / "ssh_config")
    entry = read_json(text, comments=True)["context_servers"]["harness-web1"]
    assert [entry["command"], *entry["args"]] == [
        *(program.path, "-F", config, "--ssh", "deploy@web1", "--tmux", "mcp")
    ]
    again = program.run(*words)
    assert (again.returncode, again.stdout) == (0, b"")
    assert b"has the server harness-web1 already" in again.stderr


async def test_a_client_starts_what_was_written(program: Program) -> None:
    refused = program.run("mcp", "install", "claude-code")
    assert refused.returncode == 125
    assert b"--yes" in refused.stderr
    secret = program.run("--target", "ssh://root:hunter2@web1", "mcp", "install", "claude-code", "--yes")
    assert (secret.returncode, b"hunter2" in secret.stderr) == (125, False)
    current = program.run("--tmux", "current", "mcp", "install", "zed", "--yes")
    from_settings = program.run("mcp", "install", "zed", "--yes", HARNESS_TMUX="current")
    for inside in (current, from_settings):
        assert (inside.returncode, b"it starts its servers outside your tmux" in inside.stderr) == (125, True)
    assert program.run("--no-tmux", "mcp", "install", "zed", "--print", HARNESS_TMUX="current").returncode == 0
    shown = program.run("mcp", "install", "claude-code", "--print")
    assert (shown.returncode, b'+      "args": [' in shown.stdout) == (0, True)
    mounts = ("--mount", "./x:/y:ro", "--mount", "type=volume,dst=/v")
    image = program.run("--json", "--image", "alpine", *mounts, "mcp", "install", "claude-code", "--print")
    words = json.loads(image.stdout)["command"]
    assert words[words.index("--mount") :][1:4:2] == [f"{program.home.resolve()}/x:/y:ro", "type=volume,dst=/v"]
    assert not (program.home / ".mcp.json").exists()
    done = program.run("--json", "mcp", "install", "claude-code", "--name", "here", "--tool-profile", "none", "--yes")
    document = json.loads(done.stdout)
    assert (document["changed"], document["backup"]) == (True, None)
    entry = json.loads((program.home / ".mcp.json").read_text())["mcpServers"]["here"]
    assert [entry["command"], *entry["args"]] == document["command"]
    server = StdioServerParameters(**entry, env=program.environ, cwd="/")
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        assert "run_shell" in {tool.name for tool in (await client.list_tools()).tools}
