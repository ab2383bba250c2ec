"""Lists of servers: what may stand in them, where secrets come from, and whose files are trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.mcp.client.configuration import (
    HttpEndpoint,
    ServerTable,
    StdioLaunch,
    Template,
    load_servers,
    parse_mcp_json,
    server_config,
)
from harness.toolkit.values import Category

PIN = "a" * 64


def test_a_program_has_its_command_environment_and_pin() -> None:
    config = server_config(
        "git",
        {
            "command": "git-mcp",
            "args": ["--repo", "${HOME}/x"],
            "env": {"TOKEN": "${GH}"},
            "program_sha256": f"sha256:{PIN}",
        },
        "file",
    )
    assert isinstance(config.reach, StdioLaunch)
    assert [word.text for word in config.reach.command] == ["git-mcp", "--repo", "${HOME}/x"]
    assert (config.reach.program_sha256, config.pin_tools) == (PIN, True)
    assert (config.timeout, config.start_timeout, config.category, config.read_only) == (
        30.0,
        10.0,
        Category.MCP,
        frozenset(),
    )
    assert not config.trust_annotations


def test_what_may_be_a_secret_is_not_in_the_repr() -> None:
    values = {"url": "https://mcp.example/x?key=s3cret", "headers": {"Authorization": "Bearer s3cret"}}
    assert "s3cret" not in repr(server_config("x", values, "file"))
    assert "s3cret" not in repr(server_config("x", {"command": ["a", "s3cret"], "env": {"A": "s3cret"}}, "file"))


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"command": "git-mcp"}, "this machine (MCP server x)"),
        ({"url": "http://127.0.0.1:8000/mcp"}, "this machine (MCP server x)"),
        ({"url": "https://mcp.example/x?key=s3cret"}, "mcp.example (MCP server x)"),
        ({"url": "https://${TENANT}.example/"}, "another machine (MCP server x)"),
        ({"url": "${URL}"}, "another machine (MCP server x)"),
    ],
)
def test_it_says_where_its_tools_do_their_work_and_shows_no_secret(values: dict[str, Any], place: str) -> None:
    assert server_config("x", values, "file").place == place


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "give either command or url"),
        ({"command": "x", "url": "https://h/"}, "give either command or url"),
        ({"comand": "x"}, "comand: no such argument; did you mean 'command'?"),
        ({"command": "x", "timeout": 0}, "timeout must be a number of seconds from 0.1"),
        ({"command": "x", "start_timeout": 1e9}, "start_timeout must be a number of seconds"),
        ({"command": "x", "max_message_bytes": 5}, "max_message_bytes must be a number of bytes from 65536"),
        ({"command": "x", "category": "everything"}, "category: input should be"),
        ({"command": "x", "program_sha256": "sha1:abc"}, "program_sha256 must be sha256: and 64"),
        ({"command": "x", "headers": {"A": "b"}}, "headers needs url"),
        ({"command": "x", "env": {"A B": "c"}}, "env.A B is not a valid name"),
        ({"command": ["x", "${TOKEN}"]}, "every user can read it"),
        ({"command": ["x", "--token=${file:/secret}"]}, "every user can read it"),
        ({"url": "https://h/", "program_sha256": PIN}, "program_sha256 needs command"),
        ({"url": "ftp://h/"}, "must start with https://"),
        ({"url": "https:///x"}, "contain a host"),
        ({"url": "https://u:p@h/"}, "must not contain a user or a password"),
        ({"url": "http://h/", "headers": {"A": "b"}}, "unencrypted to h"),
        ({"url": "https://h/", "headers": {"A:": "b"}}, "headers.A: is not a valid name"),
        ({"url": "https://[h/"}, "invalid url"),
    ],
)
def test_a_mistake_is_said_with_its_file_and_server(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server_config("web", values, "conf.toml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("conf.toml: server 'web'")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "-a", "x" * 33, "ü"])
def test_a_name_that_is_no_prefix_of_a_tool_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        server_config(name, {"command": "x"}, "file")


def test_a_clear_url_to_this_machine_may_have_headers() -> None:
    config = server_config("x", {"url": "http://127.0.0.1:8/mcp", "headers": {"A": "b"}}, "file")
    assert isinstance(config.reach, HttpEndpoint)


def test_the_identity_changes_with_what_is_reached_and_not_with_a_secret() -> None:
    def identity(**values: Any) -> str:
        return server_config("x", values, "file").identity

    assert identity(command="a") != identity(command="b")
    assert identity(url="https://h/") != identity(url="https://h/2")
    assert identity(command="a", env={"A": "1"}) == identity(command="a", env={"A": "2"})


# -- values


def test_places_are_filled_from_variables_and_private_files(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    file.chmod(0o600)
    text = f"${{A}}-${{B:-b}}-${{C:-}}-${{file:{file}}}-$D"
    assert Template(text).resolve({"A": "1"}, "here") == "1-b--s3cret-$D"


@pytest.mark.parametrize(("mode", "message"), [(0o644, "others may read"), (0o660, "others may read")])
def test_a_file_of_a_secret_that_is_open_to_others_is_refused(tmp_path: Path, mode: int, message: str) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret")
    file.chmod(mode)
    with pytest.raises(ConfigError, match=message) as caught:
        Template(f"${{file:{file}}}").resolve({}, "here")
    assert "chmod 600" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${A}", "the variable A is not set"),
        ("${}", "invalid reference ${}"),
        ("${a-b}", "invalid reference ${a-b}"),
        ("${file:/no/such/file}", "no such file"),
        ("${file:/dev/null}", "not a regular file"),
    ],
)
def test_a_place_that_cannot_be_filled_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"^here") as caught:
        Template(text).resolve({}, "here")
    assert message in str(caught.value)


# -- .mcp.json


def test_the_list_of_other_clients_is_taken() -> None:
    text = json.dumps(
        {
            "mcpServers": {
                "a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "${V}"}, "autoApprove": ["all"]},
                "b": {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${T}"}},
                "c": {"type": "stdio", "command": "c", "disabled": True},
            }
        }
    )
    servers = parse_mcp_json(text, ".mcp.json")
    assert [server.name for server in servers] == ["a", "b", "c"]
    assert [type(server.reach) for server in servers] == [StdioLaunch, HttpEndpoint, StdioLaunch]
    assert [server.disabled for server in servers] == [False, False, True]
    assert not any(server.trust_annotations for server in servers), "what is approved is not their business"


def test_the_older_form_with_a_transport_is_taken_too() -> None:
    [server] = parse_mcp_json('{"version": 1, "servers": {"a": {"transport": "stdio", "command": "x"}}}', "f")
    assert server.name == "a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "invalid JSON"),
        ("[]", "no list of servers"),
        ("{}", "no list of servers"),
        ('{"mcpServers": []}', "no list of servers"),
        ('{"mcpServers": {"a": 1}}', "server 'a' is not an object"),
        ('{"mcpServers": {"a": {"type": "sse", "url": "https://h/"}}}', "unsupported type 'sse'"),
        ('{"mcpServers": {"a": {"type": "http", "command": "x"}}}', "has no url"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "duplicate name"),
        ('{"mcpServers": {"a b": {"command": "x"}}}', "letters, digits"),
        ('{"mcpServers": {"a": {"command": 5}}}', "command"),
        ("[" * 100_000, "invalid JSON"),
    ],
)
def test_a_list_that_cannot_be_used_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"^f: ") as caught:
        parse_mcp_json(text, "f")
    assert message in str(caught.value)


# -- files and their trust


def home(tmp_path: Path, settings: str) -> dict[str, str]:
    config = tmp_path / "home/.config/harness/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(settings)
    return {"HOME": str(tmp_path / "home")}


def test_servers_come_from_the_settings_and_from_the_files_that_they_name(tmp_path: Path) -> None:
    env = home(
        tmp_path,
        '[mcp]\nfiles = ["more.json"]\n[mcp.servers.one]\ncommand = ["a", "b"]\n[mcp.servers.two]\nurl = "https://h/"\n',
    )
    more = {"mcpServers": {"two": {"command": "older"}, "three": {"command": "c"}}}
    (tmp_path / "home/.config/harness/more.json").write_text(json.dumps(more))
    project = tmp_path / "project"
    project.mkdir()
    found = load_servers(environ=env, directory=project)
    assert [server.name for server in found.servers] == ["one", "three", "two"]
    assert isinstance(found.servers[2].reach, HttpEndpoint), "the settings win"
    assert found.refused == ()


def test_a_projects_list_is_read_only_where_the_directory_is_trusted(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / ".mcp.json").write_text('{"mcpServers": {"evil": {"command": "rm"}}}')
    env = home(tmp_path, "")
    found = load_servers(environ=env, directory=project)
    assert found.servers == ()
    [refused] = found.refused
    assert "this directory is not trusted" in refused
    assert str(project / ".mcp.json") in refused
    (tmp_path / "home/.config/harness/config.toml").write_text(f"trusted_dirs = ['{project}']\n")
    found = load_servers(environ=env, directory=project)
    assert [server.name for server in found.servers] == ["evil"]
    assert found.refused == ()


def test_a_projects_settings_may_name_servers_only_where_the_directory_is_trusted(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "harness.toml").write_text('[mcp.servers.evil]\ncommand = "rm"\n')
    env = home(tmp_path, "")
    with pytest.raises(ConfigError, match="this directory is not trusted") as caught:
        load_servers(environ=env, directory=project)
    assert "trusted_dirs" in caught.value.hint
    (tmp_path / "home/.config/harness/config.toml").write_text(f"trusted_dirs = ['{project}']\n")
    assert [server.name for server in load_servers(environ=env, directory=project).servers] == ["evil"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("[mcp]\nservers = 3\n", "mcp.servers is not a table"),
        ("[mcp.servers]\na = 3\n", "mcp.servers is not a table"),
        ("[mcp]\nfiles = 'x'\n", "mcp.files is not a list"),
        ("[mcp]\nfiles = ['missing.json']\n", "missing.json: no such file"),
        ("[mcp.servers.a]\ncommand = 'x'\nlazzy = true\n", "did you mean 'lazy'?"),
    ],
)
def test_a_mistake_in_the_settings_is_an_error(tmp_path: Path, settings: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_servers(environ=home(tmp_path, settings), directory=tmp_path)
    assert message in str(caught.value)


def test_what_is_not_ours_in_the_table_is_left_alone(tmp_path: Path) -> None:
    assert load_servers(environ=home(tmp_path, "[mcp]\njob_handoff_seconds = 45\n"), directory=tmp_path).servers == ()


def test_nobody_knows_of_a_server_where_there_is_none(tmp_path: Path) -> None:
    assert load_servers(environ={"HOME": str(tmp_path)}, directory=tmp_path).servers == ()


def test_the_documented_settings_are_taken(tmp_path: Path) -> None:
    example = (Path(__file__).parents[3] / "docs/examples/mcp_servers.toml").read_text()
    env = home(tmp_path, example)
    (tmp_path / "home/.config/harness/mcp.json").write_text('{"mcpServers": {"more": {"command": "x"}}}')
    found = load_servers(environ=env, directory=tmp_path)
    assert [(server.name, server.lazy, server.pin_tools, server.trust_annotations) for server in found.servers] == [
        ("github", False, False, True),
        ("more", False, False, False),
        ("notes", True, True, False),
    ]


def test_every_key_is_documented_with_its_default() -> None:
    page = (Path(__file__).parents[3] / "docs/mcp.md").read_text()
    rows = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`"):
            rows |= {name.strip("` "): cells[1].strip("`") for name in cells[0].split(",")}
    fields = ServerTable.model_fields
    assert set(fields) <= set(rows)
    for name in ("timeout", "start_timeout", "max_message_bytes"):
        assert float(rows[name]) == fields[name].default
    for name in ("read_only", "trust_annotations", "parallelizable", "lazy", "disabled"):
        assert rows[name] == json.dumps(fields[name].default)
