"""A fleet of simulated hosts in a process of its own: its processor time and memory, and whether its summary is right.

``python -m tests.bench.fleet_child COUNT FORKS`` prints one JSON document.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import Counter
from pathlib import Path

import anyio

import harness
from harness.errors import ConnectError, ConnectionLost
from harness.fleets import HostOutcome, merge_outcomes
from harness.results import ShellResult, Status

from .simulated_hosts import Plan, simulated_hosts

LOGIN, COMMAND = 0.2, 0.1
"""Seconds of a login and of a command, in the mean."""


def kind_of(outcome: HostOutcome[ShellResult]) -> str:
    """Return what became of a host, as the plan names it."""
    if isinstance(outcome.error, ConnectionLost):
        return "lost"
    if isinstance(outcome.error, ConnectError):
        return "down"
    assert outcome.result is not None, outcome
    if outcome.result.status is Status.UNKNOWN:
        return "unknown"
    return "ok" if outcome.result.ok else "failed"


def resident() -> int:
    """Bytes of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


async def main(count: int, forks: int) -> dict[str, float | bool | int]:
    plan = Plan.draw(count, login=LOGIN, command=COMMAND, seed=1)
    hosts = plan.hosts
    with simulated_hosts(Plan.draw(10, login=0, command=0.001, seed=1)):  # what is imported on first use
        async with harness.fleet(plan.hosts[:10]) as fleet:
            await fleet.gather("true")
    names = dict(plan.kinds)
    before = resident()
    with simulated_hosts(plan):
        async with harness.fleet(hosts) as fleet:
            described = resident()
            cpu, began = time.process_time(), time.monotonic()
            found = await fleet.gather("true", forks=forks)
            first, first_wall = time.process_time() - cpu, time.monotonic() - began
            correct = {name: kind_of(outcome) for name, outcome in found.items()} == names
            groups = merge_outcomes(found.values())
            correct &= Counter(len(group.hosts) for group in groups) == Counter(filter(None, plan.counts().values()))
            open_ones = sum(kind not in {"down"} for kind in names.values())
            del found, groups
            idle = resident()
            cpu, began = time.process_time(), time.monotonic()
            async for _, outcome in fleet.run_shell("true", forks=forks):
                correct &= kind_of(outcome) == names[outcome.host]
            live, live_wall = time.process_time() - cpu, time.monotonic() - began
    return {
        "correct": correct,
        "open": open_ones,
        "described": (described - before) / count,
        "idle": (idle - before) / count,
        "first_cpu": first / count * 1e3,
        "live_cpu": live / count * 1e3,
        "first_wall": first_wall,
        "live_wall": live_wall,
    }


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, int(sys.argv[1]), int(sys.argv[2]))))
