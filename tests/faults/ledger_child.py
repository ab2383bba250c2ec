"""A harness that makes calls one after the other, to be killed. Prints the number of each call that came back.

``ledger_child.py AUDIT EFFECTS FIRST``: call number n leaves the file ``EFFECTS/n``.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

import anyio
from tests.support.toolbox import PolicyOf, Reads, Trace, Words

from harness import connect
from harness.toolkit import (
    Arguments,
    Executor,
    MutatingArguments,
    Registry,
    Services,
    ToolCall,
    ToolContext,
    ToolResult,
)
from harness.toolkit import tool as make_tool
from harness.toolkit.audit import open_audit_log
from harness.toolkit.events import EventBus


class Leave(MutatingArguments):
    """Run a command."""

    command: str


class Look(Arguments):
    """Look at nothing."""

    number: int


@make_tool(Leave, mutating=True)
async def leave(args: Leave, ctx: ToolContext) -> ToolResult:
    done = await ctx.execution.run_shell(args.command)
    return ToolResult.of(done.stdout)


@make_tool(Look)
async def look(args: Look, ctx: ToolContext) -> ToolResult:
    return ToolResult.of(str(args.number))


async def main(audit: str, effects: str, first: str) -> None:
    async with connect("local:") as execution, open_audit_log(Path(audit)) as ledger:
        services = Services(PolicyOf(Trace()), ledger, Words(Trace()))
        executor = Executor(execution, Registry([leave, look]), services, EventBus("s1"), Reads(), "s1")
        print("ready", flush=True)  # noqa: T201  # how it talks
        for number in count(int(first)):
            await executor.call(ToolCall("leave", {"command": f"echo {number} > {effects}/{number}"}, f"w{number}"))
            await executor.call(ToolCall("look", {"number": number}, f"r{number}"))
            print(number, flush=True)  # noqa: T201  # how it talks


anyio.run(main, *sys.argv[1:])
