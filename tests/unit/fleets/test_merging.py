"""Equal outcomes are one group; others are shown as their difference."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("connect to host {} port 22: No route to host", "connect to host HOST: No route to host"),
        ("Connection reset by {} port 2222", "Connection reset by HOST"),
        ("Could not resolve hostname {}: Name or service not known", "resolve hostname HOST: Name or service"),
        ("the login was refused: root@{}: Permission denied (publickey)", "refused: root@HOST: Permission denied ("),
        ("Permission denied for user root on host {}", "Permission denied for user root on host HOST"),
        ("it is now ssh-ed25519 SHA256:a+/{}=", "it is now ssh-ed25519 SHA256:..."),
        ("the key is not recorded for {}", "the key is not recorded for HOST"),
        ("the host key has changed (if expected: ssh-keygen -R '[{}]:2222', then", "ssh-keygen -R HOST, then"),
        ("the recorded key is in /home/me/.ssh/known_hosts:{}", "the recorded key is in /home/me/.ssh/known_hosts"),
    ],
)
@pytest.mark.parametrize(
    "places", [("10.0.0.1", "10.0.0.22"), ("gate1.example.org", "gate2.example.org"), ("17", "18")]
)
def test_equal_errors_of_hosts_with_addresses_of_their_own_are_one_group(
    text: str, shared: str, places: tuple[str, str]
) -> None:
    if text.startswith(("it is now", "the recorded key")):
        places = ("17", "18")  # a fingerprint and a line number have no dots
    outcomes: list[HostOutcome[ShellResult]] = [
        HostOutcome(name, f"ssh://{name}", error=ConnectError(text.replace("{}", place), target=f"ssh://{name}"))
        for name, place in zip("ab", places, strict=True)
    ]
    (group,) = merge_outcomes(outcomes)
    assert group.hosts == ["a", "b"]
    assert shared in group.text
    assert not any(place in group.text for place in places)


def test_what_is_true_of_every_host_stays_in_the_text_of_their_errors() -> None:
    text = "connect to host gate.example.org port 22: Connection refused"
    outcomes: list[HostOutcome[ShellResult]] = [
        HostOutcome(name, f"ssh://{name}", error=ConnectError(text)) for name in "abc"
    ]
    assert [group.text for group in merge_outcomes(outcomes)] == [text]
    (alone,) = merge_outcomes([unreachable("web1")])
    assert alone.text == "cannot connect to web1"
    other = ConnectError("connect to host gate2 port 22: Connection refused")
    outcomes.append(HostOutcome("d", "ssh://d", error=other))
    assert [group.text for group in merge_outcomes(outcomes)] == ["connect to host HOST: Connection refused"]


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
