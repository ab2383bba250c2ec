"""A session of harness that dashboards show, in a process of its own: ``python -m tests.bench.view_session SOCKET``.

It prints its pane of tmux, and ends with its standard input.
"""

from __future__ import annotations

import subprocess
import sys

import anyio
from anyio import to_thread

from harness import Config, connect
from harness.live import announce, share_approver, show_calls
from harness.toolkit import open_executor


async def main(socket: str) -> None:
    config = Config(tmux_socket=socket, shell="/bin/sh")
    async with announce("python") as announcement, connect("local:", tmux="view", config=config) as execution:
        approver = share_approver(announcement)
        async with open_executor(execution, approver=approver) as executor:
            with show_calls(announcement, executor, approver):
                listing = ["tmux", "-L", socket, "list-panes", "-a", "-F", "#{pane_id}"]
                print(subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()[0], flush=True)
                await to_thread.run_sync(sys.stdin.read)


anyio.run(main, sys.argv[1])
