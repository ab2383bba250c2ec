"""The hosts of a fleet that a pattern means, and whether a pattern means a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ConfigError, UnsupportedOperation
from harness.fleets import Host, fleet, read_inventory
from harness.fleets.chosen_hosts import choose_hosts
from harness.fleets.inventories.inventory import Inventory
from harness.fleets.patterns import HostPatterns
from harness.fleets.session_context import FleetContext
from harness.target import Target

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
