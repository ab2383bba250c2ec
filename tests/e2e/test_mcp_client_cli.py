"""Tools of other servers from the command line: the list, the acceptance, a call, and through our own server."""

from __future__ import annotations

import json
import sys

import anyio
import pytest
from tests.support.mcp_servers import SERVERS
from tests.support.program import Program


def configure(program: Program, *arguments: str, more: str = "") -> None:
    settings = program.home / "config/harness/config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    command = json.dumps([sys.executable, str(SERVERS / "raw.py"), *arguments])
    settings.write_text(f'[permissions]\nmode = "auto"\n[mcp.servers.raw]\ncommand = {command}\n{more}')


def test_a_tool_of_a_server_is_called_through_policy_and_audit(program: Program) -> None:
    configure(program)
    done = program.run("tools", "call", "raw_echo", '{"text": "hello"}')
    assert (done.returncode, done.stdout) == (0, b"hello\n")
    assert program.run("tools", "call", "raw_fail").returncode == 1
    done = program.run("tools", "call", "raw_die")
    assert (done.returncode, b"it may have changed something" in done.stderr) == (125, True)
    records = program.run("audit", "show", "--json").stdout.decode()
    assert "raw_echo" in records
    assert '"unknown"' in records
    done = program.run("tools", "call", "raw_ehco")
    assert (done.returncode, b"did you mean 'raw_echo'?" in done.stderr) == (125, True)


def test_without_an_approver_a_tool_of_a_server_is_refused(program: Program) -> None:
    configure(program)
    settings = program.home / "config/harness/config.toml"
    settings.write_text(settings.read_text().replace('"auto"', '"ask"'))
    done = program.run("tools", "call", "raw_echo", '{"text": "hello"}')
    assert (done.returncode, done.stdout) == (126, b"")


def test_rules_match_a_servers_tools_by_their_arguments(program: Program) -> None:
    configure(program)
    settings = program.home / "config/harness/config.toml"
    rule = '[[permissions.deny]]\ntool = "raw_echo"\nargument = "raw/echo *secret*"\n'
    settings.write_text(settings.read_text() + rule)
    assert program.run("tools", "call", "raw_echo", '{"text": "fine"}').returncode == 0
    assert program.run("tools", "call", "raw_echo", '{"text": "a secret"}').returncode == 126


def test_the_servers_are_listed_and_checked(program: Program) -> None:
    configure(program, more='[mcp.servers.gone]\ncommand = "no-such-program"\n')
    [gone, raw] = json.loads(program.run("servers", "--json").stdout)
    assert (gone["state"], raw["state"], raw["tools"]) == (None, None, [])
    done = program.run("servers", "list", "--check", "--json")
    assert done.returncode == 1
    [gone, raw] = json.loads(done.stdout)
    assert gone["state"].startswith("unavailable: program 'no-such-program' not found")
    assert (raw["state"], len(raw["tools"])) == ("ready", 19)
    text = program.run("servers", "list", "--check").stdout.decode()
    assert "raw   ready" in text


def test_every_list_and_message_names_a_servers_tool_as_models_do(program: Program) -> None:
    command = json.dumps([sys.executable, str(SERVERS / "raw.py")])
    configure(program, more=f"[mcp.servers.raw_fail]\ncommand = {command}\n")
    before = program.run("tools", "list", "--all")
    assert b"the tools of servers raw, raw_fail are not known yet; 'harness servers list --check'" in before.stderr
    may_exist = program.run("permissions", "add", "--allow", "--any", "--tool", "raw_later")
    assert may_exist.returncode == 0  # the server may have it: it has not said yet
    shown = {one["name"]: one["tool"] for one in json.loads(program.run("servers", "show", "raw", "--json").stdout)}
    assert shown["echo"] == "raw_echo"
    assert program.run("servers", "list", "--check").returncode == 0
    servers = {one["name"]: one["tool_names"] for one in json.loads(program.run("servers", "list", "--json").stdout)}
    assert servers["raw"] == [shown[name] for name in shown if shown[name]]
    for words in (["list"], ["list", "--all"]):
        listed = {one["name"]: one for one in json.loads(program.run("tools", *words, "--json").stdout)}
        assert set(servers["raw"] + servers["raw_fail"]) < listed.keys()
        assert (listed["raw_echo"]["source"], listed["raw_echo"]["offered"]) == ("mcp:raw", True)
    assert program.run("tools", "list").stderr.count(b"not known yet") == 0
    assert json.loads(program.run("tools", "schema", "raw_echo").stdout)["name"] == "raw_echo"
    assert program.run("tools", "call", "raw_echo", '{"text": "hello"}').stdout == b"hello\n"


def test_a_wrong_name_is_answered_with_the_name_of_the_servers_tool(program: Program) -> None:
    configure(program)
    assert program.run("servers", "list", "--check").returncode == 0
    nearest = b"did you mean 'raw_echo'?"
    for words in (
        ["tools", "call", "echo"],
        ["tools", "schema", "mcp__raw__echo"],
        ["permissions", "add", "--allow", "--any", "--tool", "raw_ehco"],
        ["permissions", "test", "--tool", "echo", "x"],
    ):
        done = program.run(*words)
        assert (words, done.returncode, nearest in done.stderr) == (words, 125, True)
    assert program.run("permissions", "add", "--deny", "--any", "--tool", "raw_echo").returncode == 0
    assert program.run("tools", "call", "raw_echo", '{"text": "x"}').returncode == 126


def test_a_changed_tool_is_shown_and_accepted(program: Program) -> None:
    wrapper = program.home / "server"
    start = f"#!/bin/sh\nexec {sys.executable} {SERVERS / 'raw.py'}"
    wrapper.write_text(f"{start}\n")
    wrapper.chmod(0o755)
    settings = program.home / "config/harness/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[permissions]\nmode = "auto"\n[mcp.servers.raw]\ncommand = "{wrapper}"\npin_tools = true\n')
    assert program.run("servers", "list", "--check").returncode == 0
    wrapper.write_text(f"{start} --poisoned\n")
    done = program.run("tools", "call", "raw_echo", '{"text": "x"}')
    assert (done.returncode, b"changed since it was accepted" in done.stdout) == (1, True)
    shown = json.loads(program.run("servers", "show", "raw", "--json").stdout)
    assert [tool["name"] for tool in shown if tool["changed"]] == ["echo"]
    assert "id_ed25519" in shown[0]["description"]
    line = b"raw_echo (raw/echo; changed, not accepted yet): Do echo."
    assert line in program.run("servers", "show", "raw").stdout
    assert program.run("servers", "accept", "raw", "nothing").returncode == 125
    done = program.run("servers", "accept", "raw", "raw_echo")
    assert (done.returncode, b"accepted: echo" in done.stderr) == (0, True)
    assert program.run("tools", "call", "raw_echo", '{"text": "x"}').stdout == b"x\n"
    assert b"no changed tools to accept" in program.run("servers", "accept", "raw").stderr


def test_an_unknown_server_and_a_refused_project_file_are_said(program: Program) -> None:
    configure(program)
    done = program.run("servers", "show", "nix")
    assert (done.returncode, done.stderr) == (125, b"harness: unknown server 'nix' (there are: raw)\n")
    (program.home / ".mcp.json").write_text('{"mcpServers": {"evil": {"command": "touch", "args": ["evil"]}}}')
    done = program.run("servers", "list", "--check", "--json")
    assert done.returncode == 0
    assert [server["name"] for server in json.loads(done.stdout)] == ["raw"]
    assert b"this directory is not trusted" in done.stderr
    assert not (program.home / "evil").exists()


@pytest.mark.parametrize("change", [False, True])
async def test_our_own_server_offers_the_tools_of_other_servers(program: Program, change: bool) -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    configure(program)
    news = anyio.Event()

    async def heard(message: object) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            news.set()

    parameters = StdioServerParameters(command=program.path, args=["mcp"], env=program.environ, cwd=program.home)
    async with (
        stdio_client(parameters) as (read, write),
        ClientSession(read, write, message_handler=heard) as session,
    ):
        with anyio.fail_after(60):
            await session.initialize()
            while "raw_echo" not in (names := {tool.name for tool in (await session.list_tools()).tools}):
                await news.wait()
                news = anyio.Event()
            assert "run_shell" in names
            result = await session.call_tool("raw_echo", {"text": "through"})
            assert result.content[0].text == "through"
            if change:
                await session.call_tool("raw_change", {})
                while "raw_brand_new" not in {tool.name for tool in (await session.list_tools()).tools}:
                    await news.wait()
                    news = anyio.Event()
