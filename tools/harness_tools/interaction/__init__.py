"""Interaction with the user: questions, a to-do list, memories, skills, and ``compact``."""

from __future__ import annotations

from typing import Any

from harness.toolkit import Arguments, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.registry import COMPACT

from .notebook import Forget, Recall, Remember, TodoWrite
from .questions import AskUserQuestion
from .skills import Skill

__all__ = [
    "tools",
]


# -- ``compact``.


DESCRIPTION = """\
Replace the older messages of this conversation with a summary, if most of their content is no longer needed. \
First write down what a later step needs verbatim."""


class _Arguments(Arguments):
    pass


class Compact(Tool[_Arguments]):
    """``compact``."""

    def __init__(self) -> None:
        super().__init__(COMPACT, DESCRIPTION, _Arguments, Traits(packs=("interaction",)))

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        if ctx.compactor is None:
            return ToolResult.failure(
                "no_compactor", "this conversation cannot be compacted: it is not managed by an agent"
            )
        done = await ctx.compactor.compact(ctx.session_id)
        if done is None:
            return ToolResult.failure("nothing_to_compact", "there is too little to compact; continue")
        text = f"{done.before} messages became {done.after}"
        return ToolResult.of(text, data={"before": done.before, "after": done.after})


# -- The tools of the pack.


def tools() -> list[Tool[Any]]:
    """Return one of each tool."""
    return [AskUserQuestion(), TodoWrite(), Remember(), Recall(), Forget(), Skill(), Compact()]
