"""A function around every call of a tool. Usage: own_hooks.py [TARGET]"""

import sys

import anyio

import harness
from harness.toolkit import HookInvocation, HookResult, Hooks, Matcher, ToolCall, open_executor


# --8<-- [start:hooks]
def keep_out(occasion: HookInvocation) -> HookResult:
    return HookResult("deny", "keep out of it")


async def main(target: str) -> None:
    hooks = Hooks()
    hooks.on("pre_tool", keep_out, Matcher(paths=("/etc/shadow*",)))
    hooks.on("session_end", lambda occasion: print("the end"))
    async with harness.connect(target) as execution, open_executor(execution, hooks=hooks) as executor:
        for path in ("/etc/shadow", "/etc/passwd"):
            outcome = await executor.call(ToolCall("read_file", {"path": path}))
            print(outcome.status, path)
    # --8<-- [end:hooks]


anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "local:")
