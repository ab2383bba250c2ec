"""A delay proxy in a process of its own: ``python -m tests.bench.link HOST PORT SECONDS``, one way.

It prints its port, answers each line on stdin with the bytes carried so far, and ends with its stdin.
"""

from __future__ import annotations

import json
import sys

import anyio
import anyio.to_thread

from harness.testing.delay import delay_proxy


async def main(host: str, port: int, delay: float) -> None:
    async with delay_proxy(host, port, delay) as proxy:
        print(proxy.port, flush=True)
        while await anyio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps({"up": proxy.bytes_sent, "down": proxy.bytes_received}), flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
