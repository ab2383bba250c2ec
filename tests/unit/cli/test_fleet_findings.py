"""Findings of many hosts: equal ones are one line, and so are many ways to pass one check."""

from __future__ import annotations

import time
from collections.abc import Sequence

from harness.backend import Finding, fail, ok
from harness.cli.commands.fleet.views import _merge_findings, _merge_ok
from harness.fleets import HostOutcome


def found(host: str, *findings: Finding) -> HostOutcome[Sequence[Finding]]:
    return HostOutcome(host, f"ssh://{host}", findings)


def test_equal_findings_of_hosts_are_one_line_without_their_names() -> None:
    outcomes = [found(name, ok("connection", f"ssh://{name} as root"), ok("jobs", "2")) for name in ("a", "b")]
    outcomes.append(found("c", ok("connection", "ssh://c as root"), fail("tmux", "none on c", "install it on c")))
    lines = [(line.finding.message, line.finding.fix, line.names) for line in _merge_findings(outcomes)]
    assert lines == [
        ("HOST as root", "", ["a", "b", "c"]),
        ("2", "", ["a", "b"]),
        ("none on c", "install it on c", ["c"]),
    ]


def test_many_ways_to_pass_a_check_are_one_line() -> None:
    names = ["a", "b", "c", "d"]
    outcomes = [found(name, ok("jobs", f"{place}"), fail("x", f"{place}", "")) for place, name in enumerate(names)]
    few, many = _merge_ok(_merge_findings(outcomes[:3])), _merge_ok(_merge_findings(outcomes))
    assert [line.texts for line in few] == [1] * 6
    assert [(line.finding.check, line.texts, line.names) for line in many] == [
        ("jobs", 4, names),
        *(("x", 1, [name]) for name in names),
    ]


def test_the_findings_of_thousands_of_hosts_are_merged_at_once() -> None:
    outcomes = [found(f"h{place}", ok("jobs", f"{place}"), ok("disk", f"{place} GiB")) for place in range(4000)]
    lines = _merge_findings(outcomes)
    begun = time.process_time()
    assert [(line.finding.check, line.texts) for line in _merge_ok(lines)] == [("jobs", 4000), ("disk", 4000)]
    assert time.process_time() - begun < 5  # comparing each line with each takes longer
