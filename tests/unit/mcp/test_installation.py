"""The entry of harness in configuration files of MCP clients: what changes, what stays, and what is refused."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.mcp.installation.clients import CLIENTS, Installation, config_path, plan_installation
from harness.mcp.installation.json_text import JsonTextError, read_json, set_member
from harness.mcp.server.roots import directory_of

COMMAND = ("/opt/h/bin/harness", "--ssh", "web1", "mcp")
ENTRY = {"command": COMMAND[0], "args": list(COMMAND[1:])}


def planned(client: str, file: Path, name: str = "harness") -> Installation:
    return plan_installation(client, name, COMMAND, file, {"HOME": "/h"})


# -- JSON


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "s": {\n    "h": 1\n  }\n}\n'),
        ("{}", '{\n  "s": {\n    "h": 1\n  }\n}'),
        ("// mine\n", '// mine\n{\n  "s": {\n    "h": 1\n  }\n}\n'),
        ('{"a": 1}', '{"a": 1,\n  "s": {\n    "h": 1\n  }\n}'),
        ('{\n\t"s": {} // why\n}\n', '{\n\t"s": {\n\t\t"h": 1\n\t} // why\n}\n'),
        ('{\n "s": {\n  "x": [1], /* } */ // "\n },\n}', '{\n "s": {\n  "x": [1], /* } */ // "\n  "h": 1,\n },\n}'),
        ('{\n "s": {\n  "x": 0 // last\n }\n}', '{\n "s": {\n  "x": 0, // last\n  "h": 1\n }\n}'),
        ('{"s": {"h": {"old": "}"}, "i": 2}, "t": 3}', '{"s": {"h": 1, "i": 2}, "t": 3}'),
        ('{\r\n  "s": {\r\n    "a": 1\r\n  }\r\n}', '{\r\n  "s": {\r\n    "a": 1,\r\n    "h": 1\r\n  }\r\n}'),
    ],
)
def test_a_member_is_set_and_everything_else_stays(before: str, after: str) -> None:
    assert set_member(before, ("s", "h"), 1, comments=True) == after
    assert set_member(after, ("s", "h"), 1, comments=True) == after


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=6), below, max_size=3),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text(max_size=6), JSON, max_size=4),
    st.none() | st.integers(0, 5),
    st.text(max_size=6),
    st.data(),
)
def test_whatever_the_text_holds_only_one_member_changes(
    root: dict[str, Any], indent: int | None, name: str, data: st.DataObject
) -> None:
    servers = data.draw(st.dictionaries(st.text(max_size=6), JSON, max_size=3))
    root = {**root, "s": servers} if data.draw(st.booleans()) else {**root}
    if "s" in root and not isinstance(root["s"], dict):
        del root["s"]
    text = json.dumps(root, indent=indent, ensure_ascii=data.draw(st.booleans()))
    after = set_member(text, ("s", name), ENTRY, comments=data.draw(st.booleans()))
    assert json.loads(after) == {**root, "s": {**root.get("s", {}), name: ENTRY}}


@pytest.mark.parametrize(
    ("text", "comments"),
    [
        ('{"a": 1, "a": 2}', True),
        ('{"s": {"h": 1, "h": 2}}', True),
        ("[]", True),
        ('{"s": []}', True),
        ('{"s": null}', True),
        ('{"a": "', True),
        ("{} /*", True),
        ("{", True),
        ("{} {}", True),
        ('{"a": 1,}', False),
        ("{} // x", False),
        ("{a: 1}", True),
        ("[" * 100_000, True),
    ],
)
def test_a_text_that_could_lose_something_is_refused(text: str, comments: bool) -> None:
    with pytest.raises(JsonTextError):
        set_member(text, ("s", "h"), 1, comments=comments)


# -- files


def test_each_client_gets_a_file_that_it_reads(tmp_path: Path) -> None:
    for client, facts in CLIENTS.items():
        plan = planned(client, tmp_path / "new" / client)
        assert plan.write() is None
        content = (tmp_path / "new" / client).read_text()
        document = tomllib.loads(content) if facts.toml else json.loads(content)
        entry = {"type": "local", "command": [*COMMAND]} if client == "opencode" else {**dict(facts.extra), **ENTRY}
        assert document == {facts.servers: {"harness": entry}}
        assert not planned(client, tmp_path / "new" / client).changes


def test_a_file_keeps_its_mode_its_link_and_a_copy_of_what_it_was(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles" / "mcp.json", tmp_path / "mcp.json"
    real.parent.mkdir()
    real.write_text('{"mcpServers": {"harness": {"command": "old"}, "x": {}}}')
    real.chmod(0o644)
    link.symlink_to(real)
    plan = planned("cursor", link)
    assert plan.replaces
    copy = plan.write()
    assert copy is not None
    assert copy.read_text() == '{"mcpServers": {"harness": {"command": "old"}, "x": {}}}'
    assert (link.is_symlink(), real.stat().st_mode & 0o777) == (True, 0o644)
    assert json.loads(link.read_text()) == {"mcpServers": {"harness": ENTRY, "x": {}}}
    assert sorted(path.name for path in real.parent.iterdir()) == ["mcp.json", copy.name]


@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_a_read_only_file_is_refused_unless_it_stays_the_same(client: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    planned(client, file).write()
    file.chmod(0o444)
    assert not planned(client, file).changes
    with pytest.raises(ConfigError, match="is read-only; nothing was changed") as refused:
        planned(client, file, "another")
    assert ["chmod u+w" in refused.value.hint, "/opt/h/bin/harness" in refused.value.hint] == [True, True]


def test_a_change_by_another_program_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    created = planned("cursor", file)
    file.write_text("{}")
    changed = planned("cursor", file)
    file.write_text('{"mcpServers": {}}')
    for plan in (created, changed):
        with pytest.raises(ConfigError, match="another program"):
            plan.write()
    assert file.read_text() == '{"mcpServers": {}}'


def test_toml_is_only_appended_to(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    text = '# mine\nmodel = "x"\n[mcp_servers.a]\ncommand = "a"  # why\n'
    file.write_text(text)
    planned("codex", file).write()
    assert file.read_text().startswith(text)
    assert tomllib.loads(file.read_text())["mcp_servers"] == {"a": {"command": "a"}, "harness": ENTRY}
    for refused in (
        'mcp_servers = {a = {command = "a"}}',
        '[mcp_servers.harness]\ncommand = "other"',
        "mcp_servers = 1",
        "= broken",
    ):
        file.write_text(refused)
        with pytest.raises(ConfigError, match="nothing was changed") as caught:
            planned("codex", file)
        assert "[mcp_servers.harness]; command = " in str(caught.value.hint)


def test_what_is_not_a_text_file_of_this_user_is_refused(tmp_path: Path) -> None:
    binary, fifo = tmp_path / "binary", tmp_path / "fifo"
    binary.write_bytes(b'{"a": "\xff"}')
    os.mkfifo(fifo)
    for path, reason in ((binary, "UTF-8"), (fifo, "not a file"), (tmp_path, "not a file")):
        with pytest.raises(ConfigError, match=reason):
            planned("zed", path)


def test_what_python_cannot_read_or_write_is_refused_by_name(tmp_path: Path) -> None:
    loop, long, empty = tmp_path / "loop", tmp_path / "long", tmp_path / "empty"
    loop.symlink_to(loop)
    with pytest.raises(ConfigError, match="loop: too many levels of symbolic links"):
        planned("cursor", loop)
    for client, text in (("cursor", f'{{"a": {"1" * 5000}}}'), ("codex", f"a = {'1' * 5000}")):
        long.write_text(text)
        with pytest.raises(ConfigError, match=r"long cannot be changed: .* nothing was changed"):
            planned(client, long)
    for client in ("cursor", "codex"):
        with pytest.raises(ConfigError, match="not UTF-8"):
            plan_installation(client, "h", ("/bin/harness", "-i", "k\udcff"), empty, {"HOME": "/h"})


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", '"', "x" * 65])
def test_a_name_that_a_client_does_not_take_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="server name"):
        planned("codex", tmp_path / "config.toml", name)


def test_files_are_where_the_clients_look_for_them() -> None:
    home, here = {"HOME": "/h", "XDG_CONFIG_HOME": "/x", "CODEX_HOME": "/c"}, Path("/w")
    found = {name: str(config_path(name, home, here, "darwin")) for name in CLIENTS}
    assert found == {
        "claude-code": "/w/.mcp.json",
        "claude-desktop": "/h/Library/Application Support/Claude/claude_desktop_config.json",
        "codex": "/c/config.toml",
        "cursor": "/h/.cursor/mcp.json",
        "gemini": "/h/.gemini/settings.json",
        "opencode": "/x/opencode/opencode.json",
        "vscode": "/w/.vscode/mcp.json",
        "zed": "/h/.config/zed/settings.json",
    }
    assert str(config_path("zed", home, here, "linux")) == "/x/zed/settings.json"
    with pytest.raises(ConfigError, match="no configuration file"):
        config_path("claude-desktop", home, here, "linux")


def test_json_is_read_as_the_clients_read_it() -> None:
    assert read_json('{"a": "// \\" /* ",\n /* , */ "b": [1, 2, ], }', comments=True) == {"a": '// " /* ', "b": [1, 2]}


# -- roots


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///home/u/a%20b", "/home/u/a b"),
        ("file://localhost/x/../y/", "/y"),
        ("file:///%C3%A4", "/ä"),
        ("file://server/share", None),
        ("file:///a%00b", None),
        ("file:///%ff", None),
        ("file:relative", None),
        ("https://x/y", None),
        ("file://[", None),
    ],
)
def test_a_root_is_a_path_of_this_machine(uri: str, path: str | None) -> None:
    assert directory_of(uri) == path
