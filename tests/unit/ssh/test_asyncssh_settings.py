"""The ssh configuration as the asyncssh engine reads it, and what it says that it does not honour."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from harness.config import Config
from harness.errors import ConfigError
from harness.target import Target
from harness_backends.ssh.asyncssh_login import HostKeys, OfferedKey, judge, refusal
from harness_backends.ssh.asyncssh_settings import (
    HostSettings,
    algorithm_arguments,
    config_file,
    host_settings,
    read_host_settings,
    read_without_ssh,
    ssh_words,
)
from harness_backends.ssh.asyncssh_user_keys import key_problems, offered_keys, read_identities
from harness_backends.ssh.options import SshSettings

WEB1 = Target.parse("ssh://deploy@web1:2222")


async def read(tmp_path: Path, text: str, **overrides: object) -> HostSettings:
    """The settings of web1 with this configuration."""
    path = tmp_path / "config"
    path.write_text(text + "\n")
    return await read_host_settings(WEB1, Config(ssh_config=str(path), **overrides))  # type: ignore[arg-type]  # a test's


@pytest.mark.usefixtures("needs_ssh")
@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("", ()),
        ("ControlPath /tmp/x\nControlMaster auto\nPort 22\nRequestTTY force", ()),
        ("KnownHostsCommand /bin/keys", ("knownhostscommand /bin/keys",)),
        ("VerifyHostKeyDNS yes", ("verifyhostkeydns true",)),
        ("VerifyHostKeyDNS no\nUpdateHostKeys no", ()),
        ("StrictHostKeyChecking accept-new", ()),
        ("IPQoS ef\nAddKeysToAgent confirm", ("addkeystoagent confirm", "ipqos ef ef")),
        ("ProxyCommand nc %h %p\nForwardAgent yes\nCiphers aes256-ctr\nCompression yes", ()),
        ("Host web1\n VerifyHostKeyDNS yes\nHost other\n  IPQoS ef", ("verifyhostkeydns true",)),
        ("StrictHostKeyChecking no", ("stricthostkeychecking false",)),
    ],
)
async def test_lost_settings_are_those_that_the_user_changed_and_asyncssh_ignores(
    tmp_path: Path, text: str, lost: tuple[str, ...]
) -> None:
    assert (await read(tmp_path, text)).lost == lost


@pytest.mark.usefixtures("needs_ssh")
async def test_a_configuration_that_openssh_refuses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?i)nosuchoption"):
        await read(tmp_path, "NoSuchOption yes")


@pytest.mark.usefixtures("needs_ssh")
async def test_the_host_settings_are_those_of_ssh(tmp_path: Path) -> None:
    settings = await read(
        tmp_path,
        f"Host web1\n  IdentityFile {tmp_path}/%r-%h\n  IdentityFile {tmp_path}/none\n  UserKnownHostsFile /a /b\n"
        "  HostKeyAlias Alias\n  ProxyJump one,me@two:2200\n  HostName 10.0.0.1\n  IdentitiesOnly yes\n"
        "  IdentityAgent /agent\n  ForwardAgent yes\n  HashKnownHosts yes\n  StrictHostKeyChecking yes\n",
    )
    assert settings.identities == (f"{tmp_path}/deploy-10.0.0.1", f"{tmp_path}/none")
    assert settings.user_files == ("/a", "/b")
    assert settings.names == ("alias",)
    assert (settings.agent, settings.forwarded_agent, settings.identities_only) == ("/agent", "/agent", True)
    assert (settings.hashes_names, settings.checking) == (True, "true")
    assert settings.server == "10.0.0.1 port 2222 via one,me@two:2200"


async def test_without_openssh_asyncssh_reads_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    text = "Host web1\n  HostName 10.0.0.1\n  AddressFamily inet\n  UserKnownHostsFile /a /b\n  HostKeyAlias alias"
    settings = await read(tmp_path, text, ssh_options=("StrictHostKeyChecking=no", "VerifyHostKeyDNS=yes"))
    assert settings.lost == ("stricthostkeychecking no", "verifyhostkeydns yes")
    assert (settings.ssh.get("hostname"), settings.ssh.get("port"), settings.ssh.get("user")) == (
        "10.0.0.1",
        "2222",
        "deploy",
    )
    assert (settings.names, settings.user_files) == (("alias",), ("/a", "/b"))
    assert settings.identities[0] == os.path.expanduser("~/.ssh/id_ed25519")
    with config_file(settings, [], certificates=False) as path:
        assert "addressfamily inet\n" in Path(path).read_text()


def test_no_known_hosts_file_does_not_mean_no_check() -> None:
    settings = SshSettings.parse("hostname web1\nuserknownhostsfile none\nglobalknownhostsfile none")
    assert HostKeys(host_settings(settings, SshSettings())).find() == ([], [], [])


async def test_files_that_are_named_must_exist() -> None:
    with pytest.raises(ConfigError, match="/nowhere/key does not exist"):
        await read_host_settings(WEB1, Config(identity="/nowhere/key"))
    with pytest.raises(ConfigError, match="/nowhere does not exist"):
        await read_host_settings(WEB1, Config(ssh_config="/nowhere"))


@pytest.mark.parametrize("option", ["no value\nHost *", "Host web1", "Match=all", "", "=x", "Include=/etc/passwd"])
async def test_options_cannot_smuggle_in_other_lines(option: str) -> None:
    with pytest.raises(ConfigError):
        await read_without_ssh(WEB1, Config(ssh_options=(option,)))


@pytest.mark.parametrize("has_dev_fd", [True, False])
def test_asyncssh_gets_a_private_file_of_which_a_killed_process_leaves_nothing(
    has_dev_fd: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not has_dev_fd:
        monkeypatch.setattr("os.path.exists", lambda path: False)
    settings = SshSettings.parse(
        "hostname fe80::1%eth0\nuser me\nport 22\nsetenv A=1\nsetenv B=x y\nsendenv LC_*\nrekeylimit 0 0\n"
        "pubkeyauthentication unbound\nproxycommand nc %h %p\nciphers aes256-ctr,aes128-gcm@openssh.com\n"
    )
    with config_file(host_settings(settings, settings), [], certificates=False) as path:
        assert Path(path).read_text().splitlines() == [
            "pubkeyauthentication yes",
            "hostname fe80::1%%eth0",
            "port 22",
            "user me",
            "sendenv LC_*",
            "setenv A=1 'B=x y'",
            "proxycommand nc %h %p",
            "ciphers aes128-gcm@openssh.com,aes256-ctr",
        ]
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert [str(found) for found in tmp_path.iterdir()] == ([] if has_dev_fd else [path])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        os.stat(path)


@pytest.mark.parametrize(
    ("known", "certificates", "line"),
    [
        ([], False, "ssh-ed25519,rsa-sha2-512"),
        (["ssh-rsa"], False, "rsa-sha2-512,ssh-ed25519"),
        (["ssh-rsa"], True, "ssh-ed25519-cert-v01@openssh.com,rsa-sha2-512,ssh-ed25519"),
    ],
)
def test_recorded_types_of_host_keys_come_first(known: list[str], certificates: bool, line: str) -> None:
    settings = SshSettings.parse(
        "hostname a\nhostkeyalgorithms ssh-ed25519-cert-v01@openssh.com,ssh-ed25519,rsa-sha2-512"
    )
    with config_file(host_settings(settings, SshSettings()), known, certificates=certificates) as path:
        assert Path(path).read_text().splitlines()[-1] == f"hostkeyalgorithms {line}"


@pytest.mark.parametrize(
    "values",
    [
        "kexalgorithms sntrup761x25519-sha512,unknown@x,curve25519-sha256\nciphers aes256-ctr,aes128-ctr\n"
        "macs umac-x@y,hmac-sha2-512,hmac-sha2-256\ncasignaturealgorithms ssh-ed25519,none@such,rsa-sha2-512",
        "kexalgorithms +curve25519-sha256\nciphers aes*\nmacs ^hmac-sha2-512\nhostkeyalgorithms -ssh-rsa",
        "kexalgorithms unknown\nciphers none@such\nmacs neither",
    ],
)
@pytest.mark.parametrize("known", [[], ["ssh-rsa"]])
def test_algorithms_as_arguments_are_those_of_the_file(values: str, known: list[str]) -> None:
    text = f"hostname a\nhostkeyalgorithms ssh-ed25519-cert-v01@openssh.com,x@y,ssh-ed25519,rsa-sha2-512\n{values}"
    settings = SshSettings.parse(text)
    host = host_settings(settings, settings)
    arguments: dict[str, Any] = algorithm_arguments(host, known, certificates=False)
    with config_file(host, known, certificates=False) as path:
        by_file = asyncssh.SSHClientConnectionOptions(config=[path])
        by_argument = asyncssh.SSHClientConnectionOptions(config=[path], **arguments)
    for name in ("kex_algs", "encryption_algs", "mac_algs", "signature_algs"):
        assert [*getattr(by_argument, name)] == [*getattr(by_file, name)], name
    found = (host_algorithms(options) for options in (by_file, by_argument))
    assert next(found) == next(found)


def host_algorithms(options: Any) -> list[bytes]:
    """The algorithms of host keys that a connection offers."""
    select = asyncssh.connection._select_host_key_algs
    return [*select(options.server_host_key_algs, options.config.get("HostKeyAlgorithms", ()), [])]


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
    assert judge(checking, OfferedKey("web1", key, "/k:1" if known else ""), can_ask=can_ask) == decision


def test_a_refusal_shows_the_fingerprint_and_what_to_do(key: asyncssh.SSHKey) -> None:
    unknown, changed = (refusal(OfferedKey("[web1]:2222", key, place), WEB1) for place in ("", "/k:3"))
    assert f"the host key is unknown: ssh-ed25519 {key.get_fingerprint()}" in str(unknown)
    assert "does NOT match the recorded one" in str(changed)
    assert "the recorded key is in /k:3" in str(changed)


def host_keys(tmp_path: Path, *lines: str, more: str = "") -> HostKeys:
    """The keys of web1, port 2222, with these lines of known_hosts."""
    path = tmp_path / "known_hosts"
    path.write_text("".join(f"{line}\n" for line in lines))
    settings = SshSettings.parse(
        f"hostname web1\nport 2222\nuserknownhostsfile {path}\nglobalknownhostsfile none\n{more}"
    )
    return HostKeys(host_settings(settings, SshSettings()))


def other_key() -> str:
    return asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()


def text_of(key: asyncssh.SSHKey) -> str:
    return key.export_public_key().decode().strip()


def test_an_accepted_key_is_recorded_and_trusted(key: asyncssh.SSHKey, tmp_path: Path) -> None:
    keys = host_keys(tmp_path)
    keys.accept(keys.offered(key))
    assert (tmp_path / "known_hosts").read_text() == f"[web1]:2222 {text_of(key)}\n"
    assert keys.find()[0] == [key]


def test_an_accepted_key_is_recorded_with_a_hash_where_ssh_does_so(key: asyncssh.SSHKey, tmp_path: Path) -> None:
    keys = host_keys(tmp_path, more="hashknownhosts yes")
    keys.accept(keys.offered(key))
    assert "web1" not in (tmp_path / "known_hosts").read_text()
    assert host_keys_again(tmp_path).find()[0] == [key]


def host_keys_again(tmp_path: Path) -> HostKeys:
    return host_keys(tmp_path, *(tmp_path / "known_hosts").read_text().splitlines())


def test_a_key_that_cannot_be_recorded_is_still_accepted(key: asyncssh.SSHKey, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = SshSettings.parse(f"hostname web1\nuserknownhostsfile {tmp_path}/file/known_hosts")
    keys = HostKeys(host_settings(settings, SshSettings()))
    keys.accept(keys.offered(key))
    assert keys.find()[0] == [key]


def test_a_key_of_the_name_without_the_port_counts_only_if_there_is_none_for_the_port(
    key: asyncssh.SSHKey, tmp_path: Path
) -> None:
    without = host_keys(tmp_path, f"web1 {text_of(key)}")
    assert (without.find()[0], without.offered(key).place) == ([key], "")
    both = host_keys(tmp_path, f"[web1]:2222 {other_key()}", f"web1 {text_of(key)}")
    assert key not in both.find()[0]
    assert both.offered(key).place == f"{tmp_path}/known_hosts:1"


def test_a_key_of_the_address_is_not_trusted_for_the_name(key: asyncssh.SSHKey, tmp_path: Path) -> None:
    keys = host_keys(tmp_path, f"10.0.0.1,[10.0.0.1]:2222 {text_of(key)}")
    assert keys.find("web1", "10.0.0.1", 2222) == ([], [], [])


def test_revoked_keys_count_with_and_without_the_port(key: asyncssh.SSHKey, tmp_path: Path) -> None:
    for name in ("[web1]:2222", "web1", "*"):
        keys = host_keys(tmp_path, f"@revoked {name} {text_of(key)}", f"web1 {text_of(key)}")
        assert keys.find()[2] in ([key], [key, key])


# -- the user's keys


@pytest.fixture
def key_files(tmp_path: Path) -> list[Path]:
    """Files of keys: one, a second one, and one that others can read."""
    paths = [tmp_path / name for name in ("one", "two", "open")]
    for path in paths:
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(path))
        path.chmod(0o600)
    paths[2].chmod(0o644)
    return paths


def with_keys(paths: list[Path], more: str = "") -> HostSettings:
    lines = "".join(f"identityfile {path}\n" for path in paths)
    return host_settings(SshSettings.parse(f"hostname web1\nidentityagent none\n{lines}{more}"), SshSettings())


async def test_keys_are_offered_in_the_order_of_the_configuration(key_files: list[Path]) -> None:
    settings = with_keys([key_files[1], Path("/nowhere"), key_files[0], key_files[2]])
    async with offered_keys(settings) as keys:
        assert keys.keys == [asyncssh.read_private_key(str(path)) for path in (key_files[1], key_files[0])]


def test_keys_that_ssh_would_treat_otherwise_are_named(key_files: list[Path]) -> None:
    one, two, readable = key_files
    assert list(key_problems(with_keys([one, two]), ["ssh-ed25519"], may_unlock=True)) == []
    locked = asyncssh.generate_private_key("ssh-ed25519")
    for name in ("locked", "named"):
        locked.write_private_key(str(one.parent / name), passphrase="x")
        (one.parent / name).chmod(0o600)
    locked.write_public_key(str(one.parent / "named.pub"))
    Path(f"{two}-cert.pub").touch()
    (one.parent / "broken").write_text("no key")
    (one.parent / "broken").chmod(0o600)
    paths = [two, readable, *(one.parent / name for name in ("locked", "named", "broken"))]
    found = list(key_problems(with_keys(paths), ["sk-ssh-ed25519@openssh.com"], may_unlock=True))
    assert [text.rpartition(": ")[2] for text in found] == [
        "it has a certificate",
        "others can read it",
        "its public key is not known",
        "it may be unlocked with a passphrase",
        "its public key is not known",
        "it has a key of type sk-ssh-ed25519@openssh.com",
    ]
    assert list(key_problems(with_keys([one.parent / "named"]), [], may_unlock=False)) == []


def test_a_file_with_only_the_public_key_is_known(key_files: list[Path]) -> None:
    public = Path(f"{key_files[0]}.pub")
    asyncssh.read_private_key(str(key_files[0])).write_public_key(str(public))
    (identity,) = read_identities([str(public)])
    assert (identity.key, len(identity.public), identity.problem) == (None, 1, "")
