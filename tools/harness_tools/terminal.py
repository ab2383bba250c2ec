"""The terminal: what is on a pane's screen, and keys for what runs in it."""

from __future__ import annotations

from typing import Literal

import anyio
from pydantic import AliasChoices, Field, field_validator, model_validator

from harness.results import Job, Status
from harness.toolkit import (
    Arguments,
    Category,
    Json,
    MutatingArguments,
    OutputLimit,
    Subject,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
)
from harness.toolkit.jobpanes import pane_of_job
from harness.toolkit.shellresults import note_job, shell_result
from harness.toolkit.values import Advice

from .background import JobId
from .texts import Duration, Line, seconds_of

__all__ = ["CapturePane", "SendKeys", "keys_text"]

SCREEN = OutputLimit(8_000, 8_000)
"""The end of a screen says what happens now."""
LONGEST = 600.0
"""Seconds that a call waits at most before it looks or types, whatever number was meant."""
TARGET = AliasChoices("pane", "target")
JOB = AliasChoices("bash_id", "shell_id", "job_id")
NO_ALTERNATE = "[notice: there is no alternate screen; this is the screen itself]"
LINE_TIMEOUT = 1.0
"""Seconds in which a line that runs as a command may end before the call returns."""
NEEDS = ("tmux",)
_LOOK = Advice("; capture_pane shows what came of it", tools=("capture_pane",))


LONGEST_MS = 1 << 30
"""What is longer is as much too long, and may be no number that can be divided."""


def _pause(delay: float | str | None, delay_ms: int | None) -> float:
    if delay is not None:
        return seconds_of(delay)
    return min(delay_ms or 0, LONGEST_MS) / 1000


def keys_text(literal: str, keys: tuple[str, ...], *, enter: bool) -> str:
    """What is typed, as the policy reads it: named keys in angle brackets, ``<lt>`` for a typed one. Pure."""
    names = (*keys, *(("Enter",) if enter else ()))
    return literal.replace("<", "<lt>") + "".join(f"<{name}>" for name in names)


class _Delayed(Arguments):
    pane: Line | None = Field(
        None, description="a pane's name or tmux's id, instead of the default one", validation_alias=TARGET
    )
    bash_id: JobId | None = Field(None, description="the job whose pane is meant", validation_alias=JOB)
    delay: Duration | None = Field(None, description="wait this long first: seconds, or a text such as 2s; 10m at most")
    delay_ms: int | None = Field(None, ge=0, description="the same in milliseconds")

    @model_validator(mode="after")
    def _one_delay(self) -> _Delayed:
        if self.delay is not None and self.delay_ms is not None:
            raise ValueError("delay and delay_ms contradict each other")
        if self.pause > LONGEST:
            raise ValueError("it waits for 10m at most: call it again for more")
        if self.bash_id is not None and self.pane is not None:
            raise ValueError("pane and bash_id contradict each other")
        return self

    @property
    def pause(self) -> float:
        """Seconds to wait first."""
        return _pause(self.delay, self.delay_ms)


class _Capture(_Delayed):
    start: int | Literal["-"] | None = Field(
        None, description="first line: 0 is the top of the screen, -5 is five lines above it, - is the oldest"
    )
    end: int | Literal["-"] | None = Field(None, description="last line; - is the bottom of the screen")
    join_wrapped_lines: bool = Field(True, description="a line that was too long for the screen is one again")
    preserve_trailing_spaces: bool = False
    include_escape_sequences: bool = Field(False, description="keep colours")
    escape_non_printable: bool = Field(False, description=r"show what cannot be printed as \ooo")
    include_alternate_screen: bool = Field(False, description="what a full-screen program hides")

    @field_validator("start", "end", mode="before")
    @classmethod
    def _number(cls, line: object) -> object:
        is_number = isinstance(line, str) and line.strip().removeprefix("-").isdecimal()
        return int(str(line)) if is_number else line


class CapturePane(Tool[_Capture]):
    """``capture_pane``."""

    def __init__(self) -> None:
        text = "Show what is on the screen of a tmux pane now, or after a delay: for programs that are still running."
        traits = Traits(
            category=Category.SHELL,
            parallelizable=True,
            requires=NEEDS,
            aliases=("capture-pane", "tmux_capture_pane"),
            packs=("core", "panes"),
            limit=SCREEN,
        )
        super().__init__("capture_pane", text, _Capture, traits)

    async def run(self, args: _Capture, ctx: ToolContext) -> ToolResult:
        pane = args.pane
        if args.bash_id is not None:
            job = await ctx.execution.job(args.bash_id)
            if job.status is not Status.RUNNING:  # its pane shows other things now
                return _screen(await ctx.execution.capture_pane(job_id=job.job_id, delay=args.pause))
            pane = job.pane
            if pane is None:
                return no_pane(job)
        return await self._captured(args, pane, ctx)

    async def _captured(self, args: _Capture, pane: str | None, ctx: ToolContext) -> ToolResult:
        if args.include_alternate_screen:
            text = await _capture(replace_end(args), pane, ctx, alternate=True, delay=args.pause)
            if text:
                return _screen(text if args.end is not None else text.rstrip("\n") + "\n")
            return _screen(await _capture(args, pane, ctx), NO_ALTERNATE)
        return _screen(await _capture(args, pane, ctx, delay=args.pause))


def replace_end(args: _Capture) -> _Capture:
    """The same up to the bottom of the screen: then an empty answer means that there is no such screen."""
    return args if args.end is not None else args.model_copy(update={"end": "-"})


async def _capture(
    args: _Capture, pane: str | None, ctx: ToolContext, *, alternate: bool = False, delay: float = 0.0
) -> str:
    return await ctx.execution.capture_pane(
        pane=pane,
        start=args.start,
        end=args.end,
        join_wrapped_lines=args.join_wrapped_lines,
        preserve_trailing_spaces=args.preserve_trailing_spaces,
        include_escape_sequences=args.include_escape_sequences,
        escape_non_printable=args.escape_non_printable,
        include_alternate_screen=alternate,
        delay=delay,
    )


def _screen(text: str, notice: str = "") -> ToolResult:
    shown = text if text.strip() else "(the screen is empty)"
    data: Json = {"screen": text, "notice": notice}
    return ToolResult.of(f"{shown.rstrip()}\n{notice}" if notice else shown, data=data)


def no_pane(job: Job) -> ToolResult:
    """The answer for a job that no pane shows, or none any more."""
    ended = job.status is not Status.RUNNING
    why = "has ended" if ended else "runs in no pane"
    way = Advice("; bash_output has its output", tools=("bash_output",))
    return ToolResult.failure("no_pane", f"job {job.job_id} {why}{way.text}", advice=(way,))


class _Send(_Delayed, MutatingArguments):
    literal_text: Line | None = Field(None, description="typed first, letter by letter")
    keys: tuple[Line, ...] = Field((), description="then these, by tmux's names: C-c, Up, F1, Escape")
    enter: bool = Field(False, description="then Enter")

    @model_validator(mode="after")
    def _something(self) -> _Send:
        if not (self.literal_text or self.keys or self.enter):
            raise ValueError("nothing to type: give literal_text, keys or enter")
        return self


class SendKeys(Tool[_Send]):
    """``send_keys``."""

    def __init__(self) -> None:
        text = (
            "Type into a tmux pane: to answer a program that asks, or to interrupt it. To run a command use run_shell, "
            "which returns its output and exit code."
        )
        traits = Traits(
            category=Category.SHELL,
            mutating=True,
            requires=NEEDS,
            aliases=("send-keys", "tmux_send_keys"),
            packs=("core", "panes"),
        )
        super().__init__("send_keys", text, _Send, traits)

    def subjects(self, args: _Send) -> tuple[Subject, ...]:
        pane = args.pane if args.bash_id is None else pane_of_job(args.bash_id)
        return (Subject("keys", keys_text(args.literal_text or "", args.keys, enter=args.enter), pane=pane),)

    async def run(self, args: _Send, ctx: ToolContext) -> ToolResult:
        if args.pause:
            await anyio.sleep(args.pause)
            verdict = await ctx.permitted(self.subjects(args))  # what reads the keys may be something else now
            if not verdict.allowed:
                return ToolResult.failure("denied", f"not typed after the delay: {verdict.reason}")
        pane = args.pane
        if args.bash_id is not None:
            job = await ctx.execution.job(args.bash_id)
            if job.status is not Status.RUNNING or job.pane is None:  # a shell would take them for a command
                return no_pane(job)
            pane = job.pane
        if ctx.notes.keys_command is not None:
            return await _run_line(ctx.notes.keys_command, ctx)
        await ctx.execution.send_keys(args.keys, literal_text=args.literal_text, enter=args.enter, pane=pane)
        return ToolResult.of(f"typed{_LOOK.text}", advice=(_LOOK,))


async def _run_line(command: Subject, ctx: ToolContext) -> ToolResult:
    """Run the line that was judged as a command: typed, a line editor could make another command of it."""
    done = await ctx.execution.run_shell(command.text, pane=command.pane, wait=LINE_TIMEOUT, on_timeout="keep")
    note_job(done, ctx)
    if done.status is Status.UNKNOWN:
        return shell_result(done, ctx=ctx)
    outcome = "runs" if done.exit_code is None else f"ended with exit code {done.exit_code}"
    return ToolResult.of(f"typed: it {outcome} as job {done.job_id}{_LOOK.text}", advice=(_LOOK,))
