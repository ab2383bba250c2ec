"""What the pipeline costs a call, with policy, ledger, audit and redaction on, beside the tool called by hand."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from harness.context import ExecutionContext
from harness.testing.memory import MemoryBackend, memory_context
from harness.toolkit import Arguments, Category, FunctionTool, Registry, ToolCall, ToolContext, ToolResult, Traits
from harness.toolkit.assembly import Toolkit, ToolkitSettings, open_toolkit
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings

from .model import Line, Row, at_most, median_of
from .timing import Action, program, run_program, take_turns
from .world import Size, World

__all__ = ["toolkit_pipeline_row"]

LOOK, CHANGE = "a call that only reads", "a call that changes something"
BY_HAND = "the tool by hand"
IMPORT, ONE_TOOL = "import harness.toolkit with all its names", "import what declares a tool"
PYDANTIC, LEDGER = "import pydantic and declare one model", "import harness.toolkit.audit"
ALL, PYTHON = "load every tool, as harness tools list does", "python -c pass"
PROGRAMS = {
    IMPORT: "from harness.toolkit import *",
    ONE_TOOL: "from harness.toolkit import Arguments, Category, ToolContext, ToolResult, tool",
    PYDANTIC: "import pydantic\nclass A(pydantic.BaseModel, defer_build=True): x: int = 1",
    LEDGER: "import harness.toolkit.audit",
    ALL: "from harness.toolkit.catalog import load_catalogue; load_catalogue()",
    PYTHON: "pass",
}
REASON = "most of it is pydantic: see the line for one model"


class Nothing(Arguments):
    """Do nothing."""

    text: str = "x"


async def _nothing(args: Nothing, ctx: ToolContext) -> ToolResult:
    return ToolResult.of("active (running) since Monday\n" * 20)


def _tools() -> Registry:
    look = Traits(category=Category.NONE, parallelizable=True)
    change = Traits(category=Category.PLUGIN, mutating=True)
    return Registry(
        [
            FunctionTool("look", "Look.", Nothing, look, _nothing),
            FunctionTool("change", "Change.", Nothing, change, _nothing),
        ]
    )


async def toolkit_pipeline_row(world: World, size: Size) -> Row:
    """Calls of tools that do nothing, on a target in memory; and importing the toolkit."""
    lines = [*await _calls(world, size, "on the disk")]
    shared = Path("/dev/shm")
    if shared.is_dir():
        lines += await _calls(world, size, "in memory", shared / world.user)
    sides = {name: program([sys.executable, "-c", text]) for name, text in PROGRAMS.items()}
    for text in PROGRAMS.values():
        run_program([sys.executable, "-c", text])
    lines += await take_turns(sides, size.pick(25, 3), warm_up=2)
    group = "in memory" if shared.is_dir() else "on the disk"
    own = median_of(lines, IMPORT) - median_of(lines, PYTHON)
    checks = (
        at_most("a call that only reads: at most 1 ms", median_of(lines, LOOK, group), 1),
        at_most("a call that changes something, without fsync: at most 3 ms", median_of(lines, CHANGE, group), 3),
        at_most("importing the toolkit, without Python's own start: at most 100 ms", own, 100, reason=REASON),
    )
    notes = (
        "The ledger is in memory once, where fsync costs nothing, and on the disk once, as it is in use.",
        "The tools do nothing and the target is in memory: all that is measured is the pipeline's.",
    )
    return Row("toolkit-pipeline", "The pipeline of tools", tuple(lines), checks, notes)


async def _calls(world: World, size: Size, group: str, state: Path | None = None) -> list[Line]:
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(state or world.directory / "toolkit-state")
    settings = ToolkitSettings(permissions=PermissionSettings(mode=Mode.AUTO))
    try:
        async with open_toolkit(settings) as toolkit:
            return await _measured(toolkit, memory_context(MemoryBackend()), size, group)
    finally:
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before


async def _measured(toolkit: Toolkit, execution: ExecutionContext, size: Size, group: str) -> list[Line]:
    toolkit = replace(toolkit, registry=_tools())
    async with toolkit.executor(execution, registry=toolkit.registry) as executor:

        def calling(name: str) -> Action:
            async def action() -> None:
                outcome = await executor.call(ToolCall(name))
                assert not outcome.result.is_error, outcome

            return action

        async def by_hand() -> None:
            await _nothing(Nothing(), None)  # type: ignore[arg-type]  # it does not look at its context

        sides: dict[str, Action] = {BY_HAND: by_hand, LOOK: calling("look"), CHANGE: calling("change")}
        return await take_turns(sides, size.pick(500, 20), group=group)
