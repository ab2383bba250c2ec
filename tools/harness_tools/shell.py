"""Commands on the target."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, Field, field_validator

from harness.command import DEFAULT_TIMEOUT
from harness.toolkit import Category, MutatingArguments, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.shellresults import note_job, progress_of, shell_result

from .texts import Line, seconds_of

__all__ = ["RunShell", "patience"]

DESCRIPTION = """\
Run a shell command on the target and return its exit code, standard output and standard error. \
With a terminal it runs in the pane's own shell, where cd, variables and functions last; without one in a fresh sh. \
A command that is not waited for to its end goes on as a job."""


class _Arguments(MutatingArguments):
    command: Line = Field(
        description="shell text; many lines are one command", validation_alias=AliasChoices("command", "cmd")
    )
    wait: bool | float | str = Field(
        True,
        description="true: until it ends, two minutes at most; a number of seconds or a text such as 30s, 10m, 1h: "
        "that long at most; false: start it and return at once",
    )
    cwd: Line | None = Field(
        None,
        description="directory for this command alone",
        validation_alias=AliasChoices("cwd", "working_dir"),
    )
    pane: Line | None = Field(None, description="a pane's name or id, instead of the default one")

    @field_validator("wait")
    @classmethod
    def _clear(cls, wait: float | str) -> float | str:
        if isinstance(wait, bool):
            return wait
        if isinstance(wait, str) and wait.strip().lower() in ("true", "false"):
            return wait.strip().lower() == "true"
        if seconds_of(wait) <= 0:
            raise ValueError("it must be positive, or false")
        return wait


def patience(wait: float | str, handoff: float | None) -> tuple[float | str, Literal["keep"] | None]:
    """How long to wait, and what becomes of the command then: it is left running where nobody would wait longer. Pure.

    None leaves it to the target, as without a hand-off.
    """
    if handoff is None or wait is False:
        return wait, None
    seconds = DEFAULT_TIMEOUT if wait is True else seconds_of(wait)
    return (handoff, "keep") if seconds > handoff else (wait, None)


class RunShell(Tool[_Arguments]):
    """``run_shell``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.SHELL, mutating=True, aliases=("bash", "shell"), packs=("core",))
        super().__init__("run_shell", DESCRIPTION, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        return (Subject("command", args.command, args.cwd, args.pane),)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        wait, on_timeout = patience(args.wait, ctx.handoff)
        done = await ctx.execution.run_shell(
            args.command,
            wait=wait,
            on_timeout=on_timeout,
            cwd=args.cwd or ctx.cwd,
            pane=args.pane,
            on_output=progress_of(ctx),
        )
        note_job(done, ctx)
        return shell_result(done)
