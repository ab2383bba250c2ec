"""Answer a program that asks, then look at the screen. Usage: interactive.py [TARGET]"""

import sys

import anyio

import harness


async def main(target: str) -> None:
    async with harness.connect(target, tmux=True) as ctx:
        asking = await ctx.run_shell("printf 'Remove it? '; read answer; echo you said $answer", wait=1.0)
        assert asking.job_id is not None
        print(asking.status, "and the screen ends with:", (await ctx.capture_pane()).rstrip().splitlines()[-1])

        await ctx.send_keys(literal_text="no", enter=True)
        done = await ctx.wait(asking.job_id)
        print(done.status, done.exit_code)
        print("An operator types:", *ctx.attach_command)


anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "local:")
