"""Rules about hosts: those that restrict hold under each name of a host that is known, others under its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.fleets import read_inventory, resolve_hosts
from harness.fleets.hosts import NamedTarget
from harness.target import Hop, Target
from harness.toolkit.permissions.host_questions import HOSTS, HostQuestion, merge_questions
from harness.toolkit.permissions.questions import ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.rules.host_rules import HostRules
from harness.toolkit.permissions.rules.rule import Action, Rule
from harness.toolkit.values import JsonObject, ToolCall

INVENTORY = """\
[web]
web1
backup ansible_host=10.0.0.5
forward ansible_host=10.0.0.5 ansible_port=2022
[db]
db1 ansible_host=10.0.0.5
db2:2222
"""
TABLES = {"app": NamedTarget("ssh://db1+docker://app")}


def applied(path: Path, action: Action, pattern: str, names: str) -> list[str]:
    """Return those of some hosts to which a rule applies."""
    path.write_text(INVENTORY)
    inventory = read_inventory(path)
    rules = HostRules([Rule(action, hosts=pattern)], inventory)
    hosts = resolve_hosts(names, inventory, targets=TABLES)
    assert not any(rules.on(host.name, host.target).undecided.rules for host in hosts)
    return [host.name for host in hosts if rules.on(host.name, host.target).rules.rules]


DB1 = "db1,root@db1,db1:2022,ssh://db1,ssh://DB1,ssh://10.0.0.5,backup,app,ssh://db1+docker://app"


@pytest.mark.parametrize("pattern", ["db1", "DB1", "@db", "db[1-2]", "d*1"])
def test_a_host_that_is_denied_is_denied_under_its_other_names(tmp_path: Path, pattern: str) -> None:
    others = "web1,forward"
    assert applied(tmp_path / "hosts.ini", Action.DENY, pattern, f"{DB1},{others}") == DB1.split(",")


def test_a_denied_address_or_port_is_that_of_the_inventory(tmp_path: Path) -> None:
    path, names = tmp_path / "hosts.ini", "web1,forward,backup,db1,db2"
    assert applied(path, Action.DENY, "10.0.0.5", names) == ["forward", "backup", "db1"]
    assert applied(path, Action.ASK, "10.0.0.5:2022", names) == ["forward"]
    assert applied(path, Action.DENY, "db2:2222", names) == ["db2"]
    assert applied(path, Action.DENY, "db1:22", names) == ["backup", "db1"]
    assert applied(path, Action.DENY, "db2:22", names) == []


@pytest.mark.parametrize(
    ("pattern", "url", "allows"),
    [
        ("k8s://shop/cart-0", "k8s://shop/cart-0/", True),
        ("k8s://shop/cart-0/", "k8s://shop/cart-0", True),
        ("k8s://shop/cart-0", "k8s://shop/cart%2D0", True),
        ("k8s://shop/cart-0", "k8s://shop/cart-0/web", False),
        ("k8s://shop/cart-0", "k8s://prod/shop/cart-0/", False),
        ("k8s://prod/shop/cart-0/", "k8s://prod/shop/cart-0/web", False),
        ("k8s://shop/cart-0/web", "k8s://prod/shop/cart-0/web", False),
        ("k8s://shop/cart-0", "k8s://SHOP/cart-0", False),
        ("k8s://shop/cart-0", "k8s://shop/cart-0/web+docker://x", False),
        ("chroot:///srv/a", "chroot:///srv//./%61/", True),
        ("lxc://stage", "lxc://st%61ge", True),
        ("stage", "exec://stage", False),
        ("stage", "exec://stage+docker://x", False),
        ("stage", "exec://stage+ssh://web9", False),
        ("docker://a", "docker://a+docker://b", False),
    ],
)
def test_no_spelling_of_a_url_escapes_a_rule(pattern: str, url: str, *, allows: bool) -> None:
    target = Target.parse(url)
    for action in Action:
        found = HostRules([Rule(action, hosts=pattern)]).on("", target).rules.rules
        assert bool(found) is (allows or action is not Action.ALLOW)
    assert not HostRules([Rule(Action.DENY, hosts="k8s://shop/cart,other")]).on("", target).rules.rules


def test_no_spelling_of_a_url_escapes_an_exclusion() -> None:
    rules = HostRules([Rule(Action.ALLOW, hosts="*,!k8s://shop/cart-0")])
    assert not rules.on("", Target.parse("k8s://shop/cart%2D0/")).rules.rules
    assert rules.on("", Target.parse("k8s://shop/cart-1")).rules.rules


def test_a_rule_that_allows_means_a_host_by_its_own_name_only(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    names = "db1,backup,app,ssh://db1+docker://app,ssh://10.0.0.5,ssh://DB1,web1,db2"
    assert applied(path, Action.ALLOW, "db1", names) == ["db1"]
    assert applied(path, Action.ALLOW, "10.0.0.5", names) == ["ssh://10.0.0.5"]
    assert applied(path, Action.ALLOW, "db2:2222", names) == ["db2"]


def test_an_exception_is_made_for_a_host_by_its_own_name(tmp_path: Path) -> None:
    path, names = tmp_path / "hosts.ini", "backup,db1,app,web1"
    assert applied(path, Action.DENY, "*,!db1", names) == ["backup", "app", "web1"]
    assert applied(path, Action.DENY, "!backup", names) == ["db1", "app", "web1"]


def test_a_port_in_a_rule_is_that_of_a_single_target() -> None:
    rules = HostRules([Rule(Action.DENY, hosts="db1:2222")])
    targets = ("ssh://db1:2222", "ssh://ann@db1:2222+docker://app", "ssh://db1")
    assert [bool(rules.on("", Target.parse(url)).rules.rules) for url in targets] == [True, True, False]


def test_a_program_of_the_settings_is_denied_by_its_name_and_allowed_by_its_url() -> None:
    targets = [Target.parse(url) for url in ("exec://stage", "ssh://web1+exec://stage", "exec://other")]
    denied, allowed = (HostRules([Rule(action, hosts="stage")]) for action in (Action.DENY, Action.ALLOW))
    assert [bool(denied.on("", target).rules.rules) for target in targets] == [True, True, False]
    assert [bool(allowed.on("", target).rules.rules) for target in targets] == [False, False, False]
    by_url = HostRules([Rule(Action.ALLOW, hosts="exec://stage")])
    assert [bool(by_url.on("", target).rules.rules) for target in targets] == [True, False, False]


@pytest.mark.parametrize(
    ("pattern", "url"),
    [("localhost", "local:"), ("docker://app", "docker://app"), ("db1", "ssh://db1"), ("box", "local:")],
)
def test_a_named_target_is_denied_by_its_name_and_by_what_it_is(pattern: str, url: str) -> None:
    assert HostRules([Rule(Action.DENY, hosts=pattern)]).on("box", Target.parse(url)).rules.rules


@pytest.mark.parametrize("names", ["db1", "root@db1,web[1-2]", "2001:db8::1"])
def test_a_call_on_no_host_is_meant_only_by_rules_about_all_hosts(names: str, tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text(INVENTORY)
    target = Target((Hop("fleet", names),))
    for pattern, wanted in (("db1", 0), ("@db", 0), ("*,!web1", 1)):
        found = HostRules([Rule(Action.DENY, hosts=pattern)], read_inventory(tmp_path / "hosts.ini")).on("", target)
        assert (len(found.rules.rules), len(found.undecided.rules)) == (wanted, 0)


# -- the request for many hosts


def question(arguments: JsonObject) -> ApprovalRequest:
    call = ToolCall("run_shell", arguments)
    return ApprovalRequest("1", call, "x", "asks", "ssh://web1", (ApprovalScope.ONCE, ApprovalScope.DENY_ONCE))


def test_a_request_has_the_arguments_that_would_run_as_far_as_they_are_the_same() -> None:
    made = ToolCall("run_shell", {HOSTS: "*", "command": "old"})
    both = [
        HostQuestion("a", question({"command": "new", "cwd": "/a"})),
        HostQuestion("b", question({"command": "new"})),
    ]
    assert merge_questions(both, made).call.arguments == {HOSTS: "*", "command": "new"}
    secret = [both[0], HostQuestion("b", question({}))]
    assert merge_questions(secret, made).call.arguments == {}
