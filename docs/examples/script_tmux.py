"""Add a window with a log to the session of a target, with libtmux."""

import sys

import anyio
from anyio import to_thread

import harness


async def main(target: str) -> None:
    async with harness.connect(target, tmux=True) as ctx:
        await ctx.run_shell("echo ready")
        async with ctx.libtmux() as session:
            window = await to_thread.run_sync(lambda: session.new_window("log", window_shell="tail -f /dev/null"))
            print(window.window_name, [pane.pane_id for pane in await to_thread.run_sync(lambda: window.panes)])
        async with ctx.libtmux(pane="main") as pane:
            print("\n".join(await to_thread.run_sync(pane.capture_pane)))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "local:")
