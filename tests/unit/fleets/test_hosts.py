"""Which hosts a pattern means, with groups and addresses of inventories."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.fleets import read_inventory, resolve_hosts
from harness.fleets.hosts import fold_names, ssh_config_hosts

INI = """\
# machines
web[01:03].example.org ansible_user=deploy
db1 ansible_host=10.0.0.7 ansible_port=2222
[web]
web[01:03].example.org
[db]
db1
[eu:children]
web
db
[eu:vars]
ansible_user = "ops"
[db:vars]
ansible_port=22
"""
YAML = """\
all:
  vars: {ansible_user: root}
  hosts:
    bastion: {ansible_host: 192.0.2.1}
  children:
    web:
      hosts: {"web[1:2]": {}, web9: {ansible_port: 2022}}
      vars: {ansible_user: www}
    site:
      children: {web: {}}
"""


def names(pattern: str | list[str], **more: object) -> list[str]:
    return [host.name for host in resolve_hosts(pattern, **more)]  # type: ignore[arg-type]  # passed through


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("web[1-3],db1,!web2", ["db1", "web1", "web3"]),
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


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "empty"),
        ("web1,nope*", "no host matches"),
        ("web[1-3", "not a pattern"),
        ("web[3-1]", "not a pattern"),
        ("web1!web1", "leaves no host"),
        ("web[1-9999999]", "at most 100,000"),
        ("web[1-999],db[1-999]-[1-999]", "at most 100,000"),
        ("-oProxyCommand=x", "names no host"),
        ("web 1", "not a target"),
        ("http//x", "not a target"),
        ("web1+docker://app", "not a target"),
    ],
)
def test_mistakes(pattern: str, message: str, tmp_path: Path) -> None:
    empty = tmp_path / "config"
    empty.write_text("Host *\n")
    with pytest.raises(ConfigError, match=message):
        resolve_hosts(pattern, ssh_config=str(empty))


def test_no_pattern_is_no_host() -> None:
    with pytest.raises(ConfigError, match="no hosts were given"):
        resolve_hosts([])


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.ini"
    path.write_text(INI)
    return path


def test_an_inventory_of_ansible(inventory: Path) -> None:
    read = read_inventory(inventory)
    assert {host.name: str(host.target) for host in resolve_hosts("@eu", read)} == {
        "db1": "ssh://ops@10.0.0.7:2222",
        "web01.example.org": "ssh://deploy@web01.example.org",
        "web02.example.org": "ssh://deploy@web02.example.org",
        "web03.example.org": "ssh://deploy@web03.example.org",
    }
    assert len(names("@all", inventory=read)) == 4
    assert names("@eu!@db", inventory=read) == [f"web0{number}.example.org" for number in (1, 2, 3)]
    assert names("web*,!web02.example.org", inventory=read) == ["web01.example.org", "web03.example.org"]
    assert len(names([], inventory=read)) == 4
    with pytest.raises(ConfigError, match="no host matches '@nope'") as caught:
        resolve_hosts("@nope", read)
    assert "@eu" in caught.value.hint


def test_an_inventory_in_yaml(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(YAML)
    read = read_inventory(path)
    assert {host.name: str(host.target) for host in resolve_hosts([], read)} == {
        "bastion": "ssh://root@192.0.2.1",
        "web1": "ssh://www@web1",
        "web2": "ssh://www@web2",
        "web9": "ssh://www@web9:2022",
    }
    assert names("@site", inventory=read) == ["web1", "web2", "web9"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a", "web1\n[x:what]\n", "line 2.*not hosts, children or vars"),
        ("a", "web1 'x\n", "line 1"),
        ("a", "[x:vars]\nuser\n", "line 2.*NAME=VALUE"),
        ("a", "web[3:1]\n", r"\[3:1\] in .* is not a range"),
        ("a", "web[a:10]\n", "is not a range"),
        ("a", "web[1:9:0]\n", "is not a range"),
        ("a", "web[1:999999999]\n", "more than 100,000 hosts"),
        ("a.yml", "a: [", "invalid YAML"),
        ("a.yml", "[a, b]", "not a mapping"),
        ("a.yml", "all: {hosts: [a]}", "not a mapping"),
    ],
)
def test_mistakes_in_an_inventory(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_inventory(tmp_path / name)


def test_a_group_may_not_hang_on_itself(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("[a]\nweb1\n[a:children]\nb\n[b:children]\na\n")
    assert names("@a", inventory=read_inventory(path)) == ["web1"]


def test_a_wrong_port_names_its_host(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("web1 ansible_port=ssh\n")
    with pytest.raises(ConfigError, match="web1: ansible_port 'ssh'"):
        resolve_hosts([], read_inventory(path))


def test_an_address_of_an_inventory_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("web1 ansible_host=-oProxyCommand=x\n")
    with pytest.raises(ConfigError, match="names no host"):
        resolve_hosts([], read_inventory(path))


def test_wildcards_match_the_ssh_configuration(tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.write_text("Host web3\n")
    config = tmp_path / "config"
    config.write_text(f'Include {more}\nHost web1 web2 *.example.org !web9\n  HostName 10.0.0.1\nhost "db1"\n')
    assert ssh_config_hosts(str(config)) == ["web1", "web2", "db1", "web3"]
    assert names("web*", ssh_config=str(config)) == ["web1", "web2", "web3"]
    assert ssh_config_hosts(str(tmp_path / "none")) == []


def test_names_are_folded() -> None:
    assert fold_names(["web1", "web3", "web2", "db1"]) == "db1,web[1-3]"
    assert fold_names(["ssh://[::1]:22"]) == "ssh://[::1]:22"


def test_names_are_listed_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ClusterShell.NodeSet", None)
    assert fold_names(["web1", "web2"]) == "web1,web2"
