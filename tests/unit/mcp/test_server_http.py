"""Who may talk to the HTTP server, where it may listen, and how its token is kept."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.mcp.server.http import (
    VARIABLE,
    Token,
    check_address,
    default_token_path,
    deny_token_file,
    find_token,
    http_server,
    http_sessions,
    refusal_of,
)
from harness.system import http_server as module
from harness.system.http_server import Address, check_names, names_of, parse_address
from harness.toolkit.permissions.rules.store import RuleFile

SECRET = "s" * 40
TOKEN = Token(SECRET, "test")
NAMES = names_of(Address("127.0.0.1", 8765))
GOOD = {"host": "127.0.0.1:8765", "authorization": f"Bearer {SECRET}"}


def status(*pairs: tuple[str, str], **changes: str | None) -> int:
    headers = [(name, value) for name, value in {**GOOD, **changes}.items() if value is not None]
    raw = [(name.encode(), value.encode("latin-1")) for name, value in [*headers, *pairs]]
    refusal = refusal_of(raw, NAMES, TOKEN)
    return 200 if refusal is None else refusal[0]


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765", "[::1]:8765"])
def test_the_servers_own_names_are_served(host: str) -> None:
    assert status(host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:8765",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1:8765.evil.example",
        "0.0.0.0:8765",
    ],
)
def test_no_other_name_is_served_whatever_the_token_is(host: str | None) -> None:
    assert status(host=host) == 421


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1:8765", 200),
        ("http://localhost:8765", 200),
        ("", 200),
        ("null", 403),
        ("http://evil.example", 403),
        ("http://localhost:8765.evil.example", 403),
        ("http://127.0.0.1:9", 403),
        ("file://127.0.0.1:8765", 403),
    ],
)
def test_only_pages_of_the_server_itself_may_ask(origin: str, expected: int) -> None:
    assert status(origin=origin) == expected


@pytest.mark.parametrize(
    "sent",
    [None, "", SECRET, "Bearer", "Bearer ", f"Basic {SECRET}", f"Bearer {SECRET}x", f"Bearer {SECRET[1:]}", "Bearer é"],
)
def test_without_the_token_nothing_is_served(sent: str | None) -> None:
    assert status(authorization=sent) == 401


@pytest.mark.parametrize("name", ["host", "authorization", "origin"])
def test_a_header_that_comes_twice_counts_for_nothing(name: str) -> None:
    value = GOOD.get(name, "http://127.0.0.1:8765")
    twice = status((name, value), **{name: value})
    assert twice == {"host": 421, "authorization": 401, "origin": 403}[name]


def test_names_that_were_asked_for_are_served_with_and_without_port() -> None:
    names = names_of(Address("0.0.0.0", 80), ["Harness.example", "proxy:443"])
    assert {"harness.example", "harness.example:80", "proxy:443"} <= names
    assert "127.0.0.1:80" not in names


@pytest.mark.parametrize("name", ["http://gate.example", "gate.example/", "", "a b", "gate:port", "::1"])
def test_a_name_under_which_no_request_could_come_is_refused(name: str) -> None:
    check_names(["gate.example", "gate.example:443", "[::1]:80"])
    with pytest.raises(ConfigError, match="is not a host name"):
        check_names([name])


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8765", "127.0.0.1", 8765),
        ("8765", "127.0.0.1", 8765),
        (":8765", "127.0.0.1", 8765),
        ("[::1]:0", "::1", 0),
        ("localhost:65535", "localhost", 65535),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert address == Address(host, port)
    assert address.is_loopback
    assert parse_address(address.authority) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:65536", "::1:8765", "[]:1", "h:-1", "h:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="invalid address"):
        parse_address(text)


@given(st.text())
def test_no_text_breaks_the_parser_of_addresses(text: str) -> None:
    with suppress(ConfigError):
        assert 0 <= parse_address(text).port <= 65535


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_other_machines_reach_it_only_when_that_is_asked_for(host: str) -> None:
    with pytest.raises(ConfigError, match="other machines"):
        check_address(Address(host, 1), allow_remote=False)
    check_address(Address(host, 1), allow_remote=True)


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTTP/1.1\r\nHost: 127"])
async def test_a_connection_that_asks_for_nothing_is_ended(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD_LIMIT", 0.1)

    def no_session() -> NoReturn:
        raise AssertionError

    async with http_sessions(no_session) as sessions, http_server(sessions, Address("127.0.0.1", 0), TOKEN) as found:
        with anyio.fail_after(10):
            async with await anyio.connect_tcp(found.host, found.port) as stream:
                if sent:
                    await stream.send(sent)
                with pytest.raises(anyio.EndOfStream):
                    await stream.receive()


def test_this_machine_may_always_reach_it() -> None:
    for host in ("127.0.0.1", "127.8.9.1", "::1", "localhost"):
        check_address(Address(host, 1), allow_remote=False)


# -- the token


def test_a_missing_token_is_made_private_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "state" / "token"
    token = find_token(str(path), {})
    assert len(token.secret) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert find_token(str(path), {}).secret == token.secret
    assert list(path.parent.iterdir()) == [path]
    assert find_token(str(tmp_path / "other"), {}).secret != token.secret


def test_the_default_file_is_in_the_state_directory(tmp_path: Path) -> None:
    assert default_token_path({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "harness" / "mcp-token"
    assert default_token_path({"HOME": "/h"}) == Path("/h/.local/state/harness/mcp-token")
    assert find_token(None, {"XDG_STATE_HOME": str(tmp_path)}).origin == str(tmp_path / "harness" / "mcp-token")


def test_a_token_file_of_ones_own_is_denied_to_every_harness_of_the_user(tmp_path: Path) -> None:
    rules = RuleFile(tmp_path / "config" / "permissions.json")
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    token = find_token(str(tmp_path / "link" / "token"), {})
    for _ in range(2):
        deny_token_file(token, rules)
    assert [(rule.action, rule.target, rule.tool, rule.argument) for rule in rules.load().rules] == [
        ("deny", "*", "*", str(tmp_path.resolve() / "there" / "token"))
    ]
    deny_token_file(find_token(None, {"XDG_STATE_HOME": str(tmp_path)}), rules)  # its place is known
    deny_token_file(find_token(None, {VARIABLE: SECRET}), rules)
    assert len(rules.load().rules) == 1


def test_the_environment_gives_the_token_unless_a_file_is_named(tmp_path: Path) -> None:
    env = {VARIABLE: SECRET, "XDG_STATE_HOME": str(tmp_path)}
    assert find_token(None, env).secret == SECRET
    assert find_token(str(tmp_path / "t"), env).secret != SECRET
    assert not (tmp_path / "harness").exists()


@pytest.mark.parametrize("secret", ["short", "x" * 31, "x" * 20 + " " + "x" * 20, "é" * 40])
def test_a_weak_token_is_refused(secret: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="contains no valid token"):
        find_token(None, {VARIABLE: secret})
    path = tmp_path / "token"
    path.write_text(secret)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="contains no valid token") as caught:
        find_token(str(path), {})
    assert secret not in str(caught.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(SECRET)
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(ConfigError, match="other users may read"):
            find_token(str(path), {})


def test_a_link_a_pipe_and_a_directory_are_no_token_files(tmp_path: Path) -> None:
    good = tmp_path / "good"
    find_token(str(good), {})
    (tmp_path / "link").symlink_to(good)
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "dir").mkdir(mode=0o700)
    for name in ("link", "pipe", "dir"):
        with pytest.raises(ConfigError):
            find_token(str(tmp_path / name), {})


def test_a_token_is_not_in_its_repr_and_is_compared_whole() -> None:
    assert SECRET not in repr(TOKEN)
    assert TOKEN.matches(SECRET)
    assert not TOKEN.matches(SECRET[:-1])
    assert not TOKEN.matches("\udcff")
