"""What thousands of hosts cost the controller: simulated hosts in memory, so that only harness itself is measured."""

from __future__ import annotations

import json
import subprocess
import sys

from .model import Check, Line, Row, at_least, at_most
from .world import ROOT, Size, World

__all__ = ["fleet_simulated_row"]

NOTE = (
    "Hosts are backends in memory with drawn delays; 1 % is down, 1 % loses the connection before and 1 % after the "
    "command was sent, 2 % fail. Processor time is that of harness with the simulation. Memory is that of a host whose "
    "connection is open and idle, without what ssh itself takes."
)
FRAMES = "each open connection is a task, and an idle task of anyio takes 3.9 KB alone"


async def fleet_simulated_row(world: World, size: Size) -> Row:
    """5,000 and 50,000 simulated hosts."""
    lines: list[Line] = []
    checks: list[Check] = []
    for count in (500,) if size.quick else (5_000, 50_000):
        argv = [sys.executable, "-m", "tests.bench.fleet_child", str(count), str(min(count // 5, 2_000))]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT, timeout=500)
        found = json.loads(done.stdout)
        group = f"{count:,} hosts"
        lines += [
            Line("first contact, processor time of a host", (found["first_cpu"],), "ms", group),
            Line("live round, processor time of a host", (found["live_cpu"],), "ms", group),
            Line("an idle host", (found["idle"] / 1024,), "KB", group),
            Line("first contact", (found["first_wall"],), "s", group),
            Line("live round", (found["live_wall"],), "s", group),
        ]
        checks += [
            at_most(f"{group}: at most 0.5 ms of processor time per host and command", found["live_cpu"], 0.5),
            at_most(f"{group}: at most 4 KB per idle host", found["idle"] / 1024, 4, "KB", FRAMES),
            at_least(f"{group}: every outcome is right", float(found["correct"]), 1, ""),
        ]
    return Row("fleet-simulated", "Many simulated hosts", tuple(lines), tuple(checks), (NOTE,))
