"""Runs a command on many hosts with ``harness.fleet``; prints the milliseconds of each round as JSON."""

import json
import sys
import time

import anyio

import harness
from harness.config import Config
from harness.fleets import Host
from harness.target import Target


async def main(order: dict) -> list[float]:
    config = Config(ssh_engine=order["engine"], ssh_config=order["ssh_config"])
    hosts = [Host(name, Target.parse(f"ssh://{name}")) for name in order["names"]]
    values = []
    async with harness.fleet(hosts, config=config) as fleet:
        for _ in range(order["rounds"]):
            began = time.perf_counter()
            found = await fleet.gather(order["command"], forks=order["forks"], max_output=order["max_output"])
            assert not [outcome for outcome in found.values() if outcome.failed]
            values.append((time.perf_counter() - began) * 1e3)
    return values


print(json.dumps(anyio.run(main, json.load(sys.stdin))))
