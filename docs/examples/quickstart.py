"""Run commands on a target, in a tmux session. Usage: quickstart.py [TARGET]"""

import sys

import anyio

import harness


async def main(target: str) -> None:
    async with harness.connect(target, tmux=True) as ctx:
        await ctx.run_shell("cd /var/log")
        result = await ctx.run_shell("du -sh . 2>/dev/null | tail -1", timeout=30)
        print(result.status, result.exit_code, result.stdout, end="")

        failed = await ctx.run_shell("grep -q no-such-user /etc/passwd")
        print("a failed command is a result:", failed.exit_code)


anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "local:")
