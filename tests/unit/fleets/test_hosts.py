"""Which hosts a pattern means, and in which order."""

from __future__ import annotations

import os
import random
import re
import sys
from pathlib import Path

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from harness.errors import ConfigError
from harness.fleets import NamedTarget, resolve_hosts
from harness.fleets.host_names import fold_names
from harness.fleets.hosts import ssh_config_hosts


def names(pattern: str | list[str], **more: object) -> list[str]:
    return [host.name for host in resolve_hosts(pattern, **more)]  # type: ignore[arg-type]  # passed through


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("web[1-3],db1,!web2", ["web1", "web3", "db1"]),
        ("h05,h01,h02", ["h05", "h01", "h02"]),
        ("h[5,1-2]", ["h5", "h1", "h2"]),
        ("r[2,1]n[1-2]", ["r2n1", "r2n2", "r1n1", "r1n2"]),
        ("h[1-5/2]", ["h1", "h3", "h5"]),
        (" h1 , h2 ,! h1", ["h2"]),
        ("2001:db8::1,root@::1,[::2]:22,deploy@[::3]:22", ["2001:db8::1", "root@::1", "[::2]:22", "deploy@[::3]:22"]),
        ("2001:db8::[1-2]", ["2001:db8::1", "2001:db8::2"]),
        ("ssh://[::1]+docker://app[1-2]", ["ssh://[::1]+docker://app1", "ssh://[::1]+docker://app2"]),
        ("web[1-3]!web2", ["web1", "web3"]),
        ("web[01-03]", ["web01", "web02", "web03"]),
        ("web[1-5]&web[4-9]", ["web4", "web5"]),
        ("deploy@web[1-2]:2222", ["deploy@web1:2222", "deploy@web2:2222"]),
        ("ssh://a+docker://app[1-2]", ["ssh://a+docker://app1", "ssh://a+docker://app2"]),
        ("local:", ["local:"]),
        ("web[1-2]:2222", ["web1:2222", "web2:2222"]),
        ("ssh://[::1]:22", ["ssh://[::1]:22"]),
    ],
)
def test_patterns(pattern: str, expected: list[str]) -> None:
    assert names(pattern) == expected


def test_each_host_is_there_once_in_the_order_of_the_patterns() -> None:
    assert names(["web[2-3]", "web[1-2]"]) == ["web2", "web3", "web1"]


def test_targets() -> None:
    found = resolve_hosts("deploy@web1:2222,docker://app,web2:22")
    assert {host.name: str(host.target) for host in found} == {
        "web2:22": "ssh://web2:22",
        "deploy@web1:2222": "ssh://deploy@web1:2222",
        "docker://app": "docker://app",
    }


@pytest.mark.usefixtures("needs_process")  # a groups.conf of ClusterShell starts a program
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "empty"),
        ("web1,nope*", "no host matches"),
        ("@nope", "no host matches '@nope'.*--inventory"),
        ("web1,!@nope", "no host matches '@nope'.*--inventory"),
        ("web[1-3", "not a pattern"),
        ("web[3-1]", "not a pattern"),
        ("web1!web1", "leaves no host"),
        ("web1&web2", "leaves no host"),
        ("web[a-c]", "not a pattern"),
        ("web]", "a bracket is missing"),
        (f"web[1-{'9' * 5000}]", "not a pattern of hosts: a number has more than 18 digits"),
        ("[1-999999999999999999]" * 300, "means 999,999,999,999,999,999 or more hosts"),
        (f"web[{'0' * 5000}1-3]", "not a pattern of hosts: a number has more than 18 digits"),
        (f"web1,!w*:{'9' * 5000}", "excludes no host"),
        ("web[1:3]", r"not a pattern.*write a range as \[1-20\]"),
        ("web1,,web2", "empty part"),
        ("web1,", "empty part"),
        ("web1,!", "empty part after '!'"),
        ("web1,!!web2", "empty part after '!'"),
        ("web1^web2", "operator '\\^' is not supported"),
        ("!web1", "no hosts were given"),
        ("ssh://web*", "wildcards match names"),
        ("a:b", "not a target"),
        ("2001:db8::zz", "not a target"),
        ("web1:99999", "port 99999 is out of range"),
        ("web\u200b1", "not a host name"),
        ("web[1-9999999]", "at most 100,000"),
        ("web[1-999],db[1-999]-[1-999]", "at most 100,000"),
        ("-oProxyCommand=x", "names no host"),
        ("web 1", "has a space.*separate hosts with ','"),
        ("http//x", "not a target"),
        ("web1+docker://app", "not a target"),
    ],
)
def test_mistakes(pattern: str, message: str, tmp_path: Path) -> None:
    empty = tmp_path / "config"
    empty.write_text("Host *\n")
    with pytest.raises(ConfigError, match=message):
        resolve_hosts(pattern, ssh_config=str(empty))


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("root@h[01-03],!h02", ["root@h01", "root@h03"]),
        ("h[01-03],!root@h02", ["h01", "h03"]),
        ("h[01-03],!ssh://root@h02", ["h01", "h03"]),
        ("h[01-03],!h02,h0[1-4]", ["h01", "h03", "h04"]),
        ("!h02,h[01-03]", ["h01", "h03"]),
        (["h[01-02]", "!h02"], ["h01"]),
        (["!h02", "h01,h02"], ["h01"]),
        ("h[01-03],!h0[2-9]", ["h01"]),
        ("h[01-03],!*2", ["h01", "h03"]),
        ("a:1,a:2,!a:2", ["a:1"]),
        ("a:1,a:2,b,!a", ["b"]),
        ("docker://root@a,docker://b,!docker://a", ["docker://b"]),
        ("::1,::2,![::2]", ["::1"]),
        ("a,b,c&b,c", ["b"]),
        ("a&b,b", ["b"]),
        (["h[1-5]", "&h[4-9],!h5"], ["h4"]),
    ],
)
def test_exclusions_hold_wherever_they_are_written(patterns: str | list[str], expected: list[str]) -> None:
    assert names(patterns) == expected


@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        ("h[1-3],!h02", "'!h02' excludes no host", "h2 is another name than h02: leading zeros count"),
        ("h1,!nope", "'!nope' excludes no host", "remove it, or name one of the chosen hosts: h1"),
        ("h1,!h1:22", "'!h1:22' excludes no host", "remove it, or name one of the chosen hosts: h1"),
        (
            "h[1-7],!x*",
            r"'!x\*' excludes no host",
            "remove it, or name one of the chosen hosts: h1, h2, h3, h4, h5 and 2 others",
        ),
    ],
)
def test_an_exclusion_without_effect_is_an_error(pattern: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        resolve_hosts(pattern)
    assert caught.value.hint == hint


def test_a_password_is_refused_and_not_shown() -> None:
    for pattern in ("ssh://root:secret@h01", "root:secret@h01", "a,root:secret@h[01-02]", "root:sec@ret@h01:x"):
        with pytest.raises(ConfigError, match="password") as caught:
            resolve_hosts(pattern)
        assert "secret" not in str(caught.value)
        assert "ret@" not in str(caught.value)


# -- named targets


def test_a_named_target_is_used() -> None:
    targets = {"web1": NamedTarget("ssh://deploy@web1.example:22"), "app": NamedTarget("ssh://a+docker://app")}
    found = resolve_hosts("web1,root@web1,app,web2,ssh://web1", targets=targets)
    assert [str(host.target) for host in found] == [
        *("ssh://deploy@web1.example:22", "ssh://root@web1.example:22", "ssh://a+docker://app"),
        *("ssh://web2", "ssh://web1"),
    ]
    with pytest.raises(ConfigError, match=r"root@app: .* takes no user"):
        resolve_hosts("root@app", targets=targets)


def test_a_named_target_with_settings_is_an_error() -> None:
    targets = {"web1": NamedTarget("ssh://web1", ("ssh_options", "tmux"))}
    with pytest.raises(ConfigError, match=r"web1 is a target with settings of its own \(ssh_options, tmux\)") as caught:
        resolve_hosts("web[1-2]", targets=targets)
    assert "--target web1" in caught.value.hint
    assert names("web[1-2],!web1", targets=targets) == ["web2"]


def test_no_pattern_is_no_host() -> None:
    with pytest.raises(ConfigError, match="no hosts were given"):
        resolve_hosts([])


def test_wildcards_match_the_ssh_configuration(tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.write_text("Host web3\n")
    config = tmp_path / "config"
    config.write_text(f'Include {more}\nHost web1 web2 *.example.org !web9\n  HostName 10.0.0.1\nhost "db1"\n')
    assert ssh_config_hosts(str(config)) == ["web1", "web2", "db1", "web3"]
    assert names("web*", ssh_config=str(config)) == ["web1", "web2", "web3"]
    assert ssh_config_hosts(str(tmp_path / "none")) == []


def test_includes_of_the_ssh_configuration_are_found_as_ssh_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a", "b"):
        (tmp_path / ".ssh/sites" / name).mkdir(parents=True)
        (tmp_path / ".ssh/sites" / name / "hosts").write_text(f"Host {name}1\n")
    os.mkfifo(tmp_path / ".ssh/pipe")
    (tmp_path / ".ssh/config").write_text(
        "Include ~no-such-user/config pipe sites/*/hosts # not/this\nHost web1 # the first one\nHost=web2\n"
    )
    assert ssh_config_hosts() == ["web1", "web2", "a1", "b1"]


def test_names_are_folded() -> None:
    assert fold_names(["web1", "web3", "web2", "db1"]) == "db1,web[1-3]"
    assert fold_names(["ssh://[::1]:22"]) == "ssh://[::1]:22"


@pytest.mark.timeout(15)  # ClusterShell alone takes 38 s
def test_many_names_with_several_numbers_are_folded_fast() -> None:
    drawn = random.Random(1)
    names = {f"ip-10-{drawn.randrange(256)}-{drawn.randrange(256)}-{drawn.randrange(256)}" for _ in range(3_000)}
    folded = fold_names(sorted(names))
    parts = re.split(r",(?![^\[]*\])", folded)
    assert {name for part in parts for name in NodeSet(part, resolver=RESOLVER_NOGROUP)} == names


def test_names_are_listed_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ClusterShell.NodeSet", None)
    assert fold_names(["web1", "web2"]) == "web1,web2"
