"""Start a long command, watch it, and get its result from another connection. Usage: jobs.py [TARGET]"""

import sys

import anyio

import harness


async def main(target: str) -> None:
    async with harness.connect(target) as ctx:
        started = await ctx.run_shell("for n in 1 2 3; do echo step $n; sleep 0.2; done; exit 4", wait=False)
        assert started.job_id is not None
        print(started.status)

    async with harness.connect(target) as ctx:  # another connection, or another process, or another day
        async for chunk in ctx.follow(started.job_id):
            print(chunk.decode(), end="")
        done = await ctx.wait(started.job_id, timeout=60)
        print(done.status, done.exit_code)


anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "local:")
