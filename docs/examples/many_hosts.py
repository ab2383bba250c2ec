"""Run a command on many hosts and print the outcomes as they come."""

import sys

import anyio

import harness


async def main(hosts: str) -> None:
    async with harness.fleet(hosts) as fleet:
        async for host, outcome in fleet.run_shell("echo ready"):
            print(host, outcome.result.stdout.strip() if outcome.result else outcome.error)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "local:")
