"""The ssh configuration as the asyncssh engine reads it, and what it says that it does not honour."""

from __future__ import annotations

import os
from pathlib import Path

import asyncssh
import pytest

from harness.config import Config
from harness.errors import ConfigError
from harness.target import Target
from harness_backends.ssh.asyncssh_login import HostKeys, OfferedKey, host_name, judge, refusal
from harness_backends.ssh.asyncssh_settings import (
    config_files,
    parse_settings,
    read_effective,
    read_host_settings,
    ssh_words,
    unsupported_options,
)

WEB1 = Target.parse("ssh://deploy@web1:2222")


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        ({}, ()),
        ({"controlpath": "/tmp/x", "controlmaster": "auto", "port": "22", "requesttty": "force"}, ()),
        ({"knownhostscommand": "/bin/keys"}, ("knownhostscommand /bin/keys",)),
        ({"verifyhostkeydns": "yes"}, ("verifyhostkeydns yes",)),
        ({"verifyhostkeydns": "no", "updatehostkeys": "false"}, ()),
        ({"stricthostkeychecking": "no"}, ("stricthostkeychecking no",)),
        ({"stricthostkeychecking": "accept-new"}, ()),
        ({"ipqos": "ef", "addkeystoagent": "confirm"}, ("addkeystoagent confirm", "ipqos ef")),
    ],
)
def test_lost_settings_are_those_that_the_user_changed_and_asyncssh_ignores(
    changed: dict[str, str], lost: tuple[str, ...]
) -> None:
    defaults = {"verifyhostkeydns": "false", "ipqos": "af21 cs1", "stricthostkeychecking": "ask"}
    assert unsupported_options(defaults, defaults | changed) == lost


def test_settings_are_parsed_as_ssh_prints_them() -> None:
    assert parse_settings("host web1\nIdentityFile a b\nidentityfile c\nempty\n\n") == {
        "host": "web1",
        "identityfile": "a b",
        "empty": "",
        "": "",
    }


@pytest.mark.usefixtures("needs_process")
async def test_a_setting_of_the_users_file_that_is_not_honoured_is_found(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("Host web1\n  VerifyHostKeyDNS yes\n  StrictHostKeyChecking no\nHost other\n  IPQoS ef\n")
    config = Config(ssh_config=str(path))
    with config_files(config) as files:
        effective = await read_effective(WEB1, config, files)
    assert effective.host_key_checking in ("no", "false")
    assert effective.lost == (f"stricthostkeychecking {effective.host_key_checking}", "verifyhostkeydns true")


@pytest.mark.usefixtures("needs_process")
async def test_without_openssh_only_the_options_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    config = Config(ssh_options=("StrictHostKeyChecking=no", "VerifyHostKeyDNS=yes"))
    with config_files(config) as files:
        effective = await read_effective(WEB1, config, files)
    assert effective.lost == ("stricthostkeychecking no", "verifyhostkeydns yes")


@pytest.mark.usefixtures("needs_process")
async def test_a_configuration_that_openssh_refuses_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("NoSuchOption yes\n")
    config = Config(ssh_config=str(path))
    with config_files(config) as files, pytest.raises(ConfigError, match=r"(?i)nosuchoption"):
        await read_effective(WEB1, config, files)


async def test_the_host_settings_are_read_from_the_files(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    path = tmp_path / "config"
    path.write_text(
        f"Host web1\n  IdentityFile {tmp_path}/key\n  IdentityFile {tmp_path}/none\n  UserKnownHostsFile a b\n"
        "  HostKeyAlias alias\n  ProxyJump one,me@two:2200\n"
    )
    settings = await read_host_settings(WEB1, Config(), [str(path)])
    assert settings.identities == (f"{tmp_path}/key",)
    assert settings.known_hosts == ("a", "b")
    assert settings.global_known_hosts is None
    assert settings.host_key_alias == "alias"
    assert settings.jumps == ("one", "me@two:2200")


async def test_no_known_hosts_file_does_not_mean_no_check(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("UserKnownHostsFile none\nGlobalKnownHostsFile none\n")
    settings = await read_host_settings(WEB1, Config(), [str(path)])
    keys = HostKeys(settings.known_hosts, settings.global_known_hosts)
    assert keys.data() == b"# known hosts\n"


async def test_an_identity_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="/nowhere/key does not exist"):
        await read_host_settings(WEB1, Config(identity="/nowhere/key"), [])


@pytest.mark.parametrize("option", ["no value\nHost *", "Host web1", "Match=all", "", "=x", "Include=/etc/passwd"])
def test_options_cannot_smuggle_in_other_lines(option: str) -> None:
    with pytest.raises(ConfigError), config_files(Config(ssh_options=(option,))):
        pass


def test_options_are_in_a_private_file_that_goes_away() -> None:
    with config_files(Config(ssh_options=("Port=2222", "User deploy"))) as files:
        assert Path(files.options).read_text() == "Port=2222\nUser deploy\n"
        assert os.stat(os.path.dirname(files.options)).st_mode & 0o777 == 0o700
    assert not os.path.exists(files.options)


def test_a_configuration_file_that_is_named_must_exist() -> None:
    with pytest.raises(ConfigError, match="/nowhere does not exist"), config_files(Config(ssh_config="/nowhere")):
        pass


def test_the_client_for_people_gets_the_same_settings() -> None:
    config = Config(ssh_config="/f", identity="/k", ssh_options=("A=b",))
    assert ssh_words(WEB1, config) == ["-F", "/f", "-i", "/k", "-o", "A=b", "-p", "2222", "deploy@web1"]
    assert ssh_words(Target.parse("ssh://web1"), Config()) == ["web1"]
    through = Target.parse("local:+ssh://a@one:1+ssh://two+ssh://web1")
    assert ssh_words(through, Config()) == ["-J", "a@one:1,two", "web1"]


@pytest.fixture(scope="module")
def key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519").convert_to_public()


@pytest.mark.parametrize(
    ("checking", "known", "can_ask", "decision"),
    [
        ("ask", False, True, "ask"),
        ("ask", False, False, "refuse"),
        ("ask", True, True, "refuse"),
        ("yes", False, True, "refuse"),
        ("true", False, True, "refuse"),
        ("accept-new", False, False, "accept"),
        ("accept-new", True, True, "refuse"),
        ("no", False, False, "refuse"),
        ("no", False, True, "ask"),
        ("no", True, True, "refuse"),
    ],
)
def test_unknown_host_keys(key: asyncssh.SSHKey, checking: str, known: bool, can_ask: bool, decision: str) -> None:
    assert judge(checking, OfferedKey("web1", key, known), can_ask=can_ask) == decision


def test_a_refusal_shows_the_fingerprint_and_what_to_do(key: asyncssh.SSHKey) -> None:
    unknown, changed = (refusal(OfferedKey("[web1]:2222", key, known), WEB1) for known in (False, True))
    assert key.get_fingerprint() in str(unknown)
    assert "has changed" in str(changed)
    assert "ssh-keygen -R '[web1]:2222'" in str(changed)


def test_an_accepted_key_is_recorded_as_openssh_does(key: asyncssh.SSHKey, tmp_path: Path) -> None:
    path = tmp_path / "dir" / "known_hosts"
    path.parent.mkdir()
    path.write_text("# last line without its end")
    keys = HostKeys([str(path)], [])
    keys.accept(OfferedKey(host_name("web1", 2222), key, known=False))
    public = key.export_public_key().decode().strip()
    assert path.read_text() == f"# last line without its end\n[web1]:2222 {public}\n"
    assert asyncssh.match_known_hosts(keys.data(), "web1", "", 2222)[0] == [key, key]


def test_a_key_that_cannot_be_recorded_is_still_accepted(key: asyncssh.SSHKey, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    keys = HostKeys([str(tmp_path / "file" / "known_hosts")], [])
    keys.accept(OfferedKey(host_name("web1", 22), key, known=False))
    assert asyncssh.match_known_hosts(keys.data(), "web1", "", None)[0] == [key]
