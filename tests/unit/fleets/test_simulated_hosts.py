"""A thousand simulated hosts: every outcome is right, and an idle host takes little memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter

from tests.bench.fleet_child import kind_of
from tests.bench.simulated_hosts import Plan, simulated_hosts

import harness
from harness.fleets import merge_outcomes

MAX_IDLE = 11_000
"""Bytes of an idle host, with the simulation."""


async def test_every_host_has_the_outcome_that_was_drawn_for_it() -> None:
    plan = Plan.draw(1000, login=0.001, command=0.001, seed=7)
    assert all(plan.counts().values())
    with simulated_hosts(plan):
        async with harness.fleet(plan.hosts) as fleet:
            for _ in range(2):
                outcomes = await fleet.gather("true", forks=200)
                assert {name: kind_of(outcome) for name, outcome in outcomes.items()} == plan.kinds
                sizes = Counter(len(group.hosts) for group in merge_outcomes(outcomes.values()))
                assert sizes == Counter(plan.counts().values())


async def test_a_limit_of_failures_leaves_the_other_hosts_out() -> None:
    plan = Plan.draw(1000, login=0.001, command=0.001, seed=7)
    with simulated_hosts(plan):
        async with harness.fleet(plan.hosts) as fleet:
            outcomes = await fleet.gather("true", forks=20, max_fail=10)
    failed = [outcome for outcome in outcomes.values() if outcome.failed and not outcome.left_out]
    assert len(outcomes) == 1000
    assert 10 <= len(failed) < 10 + 20  # those that ran already end
    assert any(outcome.left_out for outcome in outcomes.values())


async def test_an_idle_host_takes_little_memory() -> None:
    plan = Plan.draw(300, login=0, command=0.001, seed=7)
    hosts = plan.hosts
    with simulated_hosts(plan):
        async with harness.fleet(hosts[:5]) as fleet:  # what is made once
            await fleet.gather("true")
        gc.collect()
        tracemalloc.start()
        try:
            async with harness.fleet(hosts) as fleet:
                await fleet.gather("true")
                gc.collect()
                used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert used / len(hosts) < MAX_IDLE
