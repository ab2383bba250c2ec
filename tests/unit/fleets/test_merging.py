"""Equal outcomes are one group; others are shown as their difference."""

from __future__ import annotations

from harness.errors import ConnectError
from harness.fleets import HostOutcome, merge_outcomes
from harness.fleets.merging import difference, error_text
from harness.results import ShellResult, Status


def ended(host: str, output: str, code: int = 0) -> HostOutcome[ShellResult]:
    result = ShellResult("x", Status.COMPLETED, code, output.encode())
    return HostOutcome(host, f"ssh://{host}", result)


def unreachable(host: str) -> HostOutcome[ShellResult]:
    return HostOutcome(host, f"ssh://{host}", error=ConnectError(f"cannot connect to {host}", target=f"ssh://{host}"))


def test_the_largest_group_is_first_and_hosts_keep_their_order() -> None:
    outcomes = [ended("c", "1"), ended("a", "2"), ended("b", "2"), ended("d", "2", code=3)]
    groups = merge_outcomes(outcomes)
    assert [group.hosts for group in groups] == [["a", "b"], ["c"], ["d"]]


def test_equal_errors_of_different_hosts_are_one_group() -> None:
    groups = merge_outcomes([unreachable("web1"), unreachable("web2"), ended("web3", "")])
    assert [group.hosts for group in groups] == [["web1", "web2"], ["web3"]]
    assert error_text(groups[0].outcome) == "cannot connect to HOST"


def test_only_whole_names_are_left_out_of_an_error() -> None:
    error = ConnectError("no route to a.example.org; a is the address of a-b", hint="ask its operator")
    outcome: HostOutcome[ShellResult] = HostOutcome("a", "ssh://a", error=error)
    assert error_text(outcome) == "no route to HOST.example.org; HOST is the address of a-b (ask its operator)"
    assert error_text(outcome, named=True) == "no route to a.example.org; a is the address of a-b (ask its operator)"


def test_a_difference_is_shown_where_it_is_shorter() -> None:
    lines = [f"line {number}" for number in range(20)]
    most, other = "\n".join(lines).encode(), "\n".join([*lines[:10], "new", *lines[11:]]).encode()
    assert difference(most, other) == ["@@ -10,3 +10,3 @@", " line 9", "-line 10", "+new", " line 11"]
    assert difference(most, b"x\n") is None
    assert difference(b"x\n", most) is None


def test_results_of_any_kind_are_grouped_by_what_they_have_in_common() -> None:
    outcomes = [HostOutcome(name, f"ssh://{name}", [name, size]) for name, size in (("a", 1), ("b", 2), ("c", 2))]
    groups = merge_outcomes(outcomes, key=lambda result: result[1])
    assert [group.hosts for group in groups] == [["b", "c"], ["a"]]
    numbers = [HostOutcome("a", "ssh://a", 1), HostOutcome("b", "ssh://b", 1)]
    assert [group.hosts for group in merge_outcomes(numbers)] == [["a", "b"]]
