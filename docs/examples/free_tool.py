"""A tool of ten lines, and a call of it. Usage: free_tool.py [TARGET]"""

import shlex
import sys

import anyio
from pydantic import Field

import harness
from harness.toolkit import Arguments, Category, ToolCall, ToolContext, ToolResult, open_executor, tool


# --8<-- [start:tool]
class Free(Arguments):
    """Tell how many kilobytes are free on the file system of a path."""

    path: str = Field("/", description="a file or directory of the target")


@tool(Free, category=Category.FILE_READ, parallelizable=True)
async def free(args: Free, ctx: ToolContext) -> ToolResult:
    done = await ctx.execution.run_shell(f"df -Pk -- {shlex.quote(args.path)}")
    return ToolResult.of(done.stdout.split()[-3]) if done.ok else ToolResult.failure("no_such_path", done.stderr)
    # --8<-- [end:tool]


async def main(target: str) -> None:
    async with harness.connect(target) as execution, open_executor(execution) as executor:
        executor.registry.register(free)
        for arguments in ({"path": "/"}, {"path": "/nowhere"}, {"pth": "/"}):
            outcome = await executor.call(ToolCall("free", arguments))
            print(outcome.status, outcome.result.text.strip())


anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "local:")
