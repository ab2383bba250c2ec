"""A program whose calls dashboards show and approve. Usage: announced.py [TARGET]"""

import sys

import anyio

import harness
from harness.live import announce, share_approver, show_calls
from harness.toolkit import ToolCall, open_executor


# --8<-- [start:announce]
async def main(target: str) -> None:
    async with announce("python") as announcement, harness.connect(target) as execution:
        approver = share_approver(announcement)  # without a connected dashboard, what asks is denied
        async with open_executor(execution, approver=approver) as executor:
            with show_calls(announcement, executor, approver):
                outcome = await executor.call(ToolCall("run_shell", {"command": "touch /tmp/approved-example"}))
                print(outcome.status)
    # --8<-- [end:announce]


anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "local:")
