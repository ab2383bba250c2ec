"""A tool that changes a file, judged by what it touches. Usage: set_option_tool.py [TARGET]"""

import re
import sys

import anyio
from pydantic import Field

import harness
from harness.results import FileContent
from harness.toolkit import (
    ApprovalDecision,
    ApprovalRequest,
    ApprovalScope,
    Approver,
    Category,
    MutatingArguments,
    Subject,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    Traits,
    WriteOutcome,
    guarded_edit,
    open_executor,
)


# --8<-- [start:tool]
class SetOptionArguments(MutatingArguments):
    path: str = Field(description="a file with lines such as 'name = value'")
    name: str = Field(pattern=r"^\w+$")
    value: str


class SetOption(Tool[SetOptionArguments]):
    def __init__(self) -> None:
        traits = Traits(category=Category.FILE_WRITE, mutating=True)
        super().__init__("set_option", "Set one option of a file that you have read.", SetOptionArguments, traits)

    def subjects(self, args: SetOptionArguments) -> tuple[Subject, ...]:
        return (Subject("write", args.path),)

    async def run(self, args: SetOptionArguments, ctx: ToolContext) -> ToolResult:
        def changed(old: FileContent) -> bytes | ToolResult:
            line = re.compile(rf"^{args.name} = .*$", re.MULTILINE)
            text, count = line.subn(lambda match: f"{args.name} = {args.value}", old.text)
            return (
                text.encode() if count == 1 else ToolResult.failure("no_match", f"{args.name} is there {count} times")
            )

        done = await guarded_edit(ctx, args.path, changed)
        return ToolResult.of(f"set {args.name} in {done.path}") if isinstance(done, WriteOutcome) else done
        # --8<-- [end:tool]


class Everything(Approver):
    """Says yes; a program that people use asks them here."""

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        print("asked:", question.what)
        return ApprovalDecision(ApprovalScope.ONCE)


async def main(target: str) -> None:
    async with harness.connect(target) as execution, open_executor(execution, approver=Everything()) as executor:
        executor.registry.register(SetOption())
        await execution.write_file("example.conf", "max = 10\n")
        call = ToolCall("set_option", {"path": "example.conf", "name": "max", "value": "20", "why": "more users"})
        for step in (call, ToolCall("read_file", {"path": "example.conf"}), call):
            outcome = await executor.call(step)
            print(outcome.status, outcome.result.text.strip())
        await execution.remove("example.conf")


anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "local:")
