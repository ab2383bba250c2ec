"""The hosts of a fleet that a pattern means, and whether a pattern means a host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ClusterShell import NodeSet

from harness.errors import ConfigError, UnsupportedOperation
from harness.fleets import Host, fleet, read_inventory, resolve_hosts
from harness.fleets.hosts import choose_hosts
from harness.fleets.inventories.inventory import Inventory
from harness.fleets.patterns import HostPatterns
from harness.fleets.session_context import FleetContext
from harness.target import Target
from harness.toolkit.permissions.rules.host_rules import HostRules
from harness.toolkit.permissions.rules.rule import Action, Rule

HOSTS = tuple(Host(name, Target.parse("local:")) for name in ("web1", "web2", "web3", "db1", "deploy@app1:2222"))


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    path = tmp_path / "hosts.ini"
    path.write_text("[web]\nweb[1:9]\n[db]\ndb[1:2]\n[other]\nother1\n")
    return read_inventory(path)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ("web1", "web2", "web3", "db1", "deploy@app1:2222")),
        ("web[1-3],!web2", ("web1", "web3")),
        ("db1,web1", ("db1", "web1")),
        ("web*", ("web1", "web2", "web3")),
        ("app1", ("deploy@app1:2222",)),
        ("deploy@app1:2222", ("deploy@app1:2222",)),
        ("@web", ("web1", "web2", "web3")),
        ("@web,!web[1-2]", ("web3",)),
        ("*&@db", ("db1",)),
    ],
)
def test_patterns_mean_hosts_of_the_fleet(pattern: str, expected: tuple[str, ...], inventory: Inventory) -> None:
    assert choose_hosts(pattern, HOSTS, inventory) == expected


@pytest.mark.parametrize(
    "pattern", ["web9", "web[1-4]", "@other", "@nothing", "x*", "root@web1", "local:", "", "!web9"]
)
def test_other_hosts_are_an_error_that_lists_the_hosts(pattern: str, inventory: Inventory) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_hosts(pattern, HOSTS, inventory)
    assert caught.value.hint.startswith("the hosts are ")
    assert "db1" in caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("@db", "db1", True),
        ("@db", "web1", False),
        ("@db", "root@db1", True),
        ("db*,web1", "web1", True),
        ("web[1-9],!web2", "web2", False),
        ("!@db", "web1", True),
        ("!@db", "db1", False),
        ("web*&@web", "web1", True),
        ("ssh://db1", "db1", True),
        ("@nothing,db1", "db1", True),
    ],
)
def test_whether_a_pattern_means_a_host(pattern: str, name: str, *, expected: bool, inventory: Inventory) -> None:
    patterns = HostPatterns(inventory, (), tuple, lambda name: name.port)
    assert patterns.matches(pattern, name) is expected


def test_a_group_that_is_not_known_is_an_error(inventory: Inventory) -> None:
    with pytest.raises(ConfigError, match="no host matches '@nothing'"):
        HostPatterns(inventory, (), tuple, lambda name: name.port).matches("@nothing", "web1")


async def test_the_context_of_a_fleet_runs_nothing_on_this_machine(tmp_path: Path) -> None:
    async with fleet(HOSTS[:3]) as opened:
        context = FleetContext(opened)
        assert (context.describe(), context.identity) == ("3 hosts: web[1-3]", "fleet://web[1-3]")
        assert await context.jobs() == []
        for call in (context.run_shell("true"), context.read_file("/etc/hosts"), context.stat("/")):
            with pytest.raises(UnsupportedOperation, match="this session works on many hosts"):
                await call


# -- groups that a program of this machine lists


@pytest.fixture
def group_program(tmp_path: Path) -> Iterator[Path]:
    """Groups of a program, into whose command ClusterShell pastes the name of the group; returns its directory."""
    path, shown = tmp_path / "groups.conf", "echo web1 web2"
    programs = f"map: echo $GROUP > /dev/null; {shown}\nall: {shown}\nlist: echo night-1\n"
    path.write_text(f"[Main]\ndefault: jobs\n\n[jobs]\n{programs}")
    NodeSet.set_std_group_resolver_config(str(path))
    yield tmp_path
    NodeSet.set_std_group_resolver(None)


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("pattern", ["@night-1", "@jobs:night-1", "@night*", "web[1-2]&@night-1", "@night.1"])
def test_the_groups_of_a_program_are_known(pattern: str, group_program: Path) -> None:
    assert choose_hosts(pattern, HOSTS) == ("web1", "web2")


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("name", ["x;{}", "x`{}`", "x$({})", "jobs:x|{}"])
@pytest.mark.parametrize("form", ["@{}", "web1,!@{}", "web1&@{}", "root@@{}"])
def test_a_name_that_would_be_a_command_in_the_program_of_groups_is_refused(
    name: str, form: str, group_program: Path
) -> None:
    ran = group_program / "ran"
    pattern = form.format(name.format(f"touch${{IFS}}{ran}"))
    rules = HostRules([Rule(Action.DENY, hosts=pattern)])
    undecided = rules.on("web1", Target.parse("ssh://web1")).undecided.rules
    messages = [_problem(lambda: choose_hosts(pattern, HOSTS)), _problem(lambda: resolve_hosts(pattern))]
    assert not ran.exists()
    assert all("is not the name of a group" in message for message in messages)
    assert len(undecided) == 1


def _problem(choose: Callable[[], object]) -> str:
    try:
        choose()
    except ConfigError as error:
        return error.message
    return ""
