"""Runs a command on many hosts with Fabric's ThreadingGroup; prints the milliseconds of each round as JSON."""

import json
import sys
import time

from fabric import Config, ThreadingGroup


def main(order: dict) -> list[float]:
    config = Config(runtime_ssh_path=order["ssh_config"])
    keys = {"key_filename": order["identity"], "look_for_keys": False, "allow_agent": False}
    values = []
    with ThreadingGroup(*order["names"], config=config, connect_kwargs=keys) as group:
        for _ in range(order["rounds"]):
            began = time.perf_counter()
            found = group.run(order["command"], hide=True)
            assert len(found) == len(order["names"]), found
            values.append((time.perf_counter() - began) * 1e3)
    return values


print(json.dumps(main(json.load(sys.stdin))))
