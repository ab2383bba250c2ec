"""The terminal: what is on a pane's screen, and keys for what runs in it."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, Field, field_validator, model_validator

from harness.toolkit import (
    Arguments,
    Category,
    MutatingArguments,
    OutputLimit,
    Subject,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
)

from .texts import Duration, Line, seconds_of

__all__ = ["CapturePane", "SendKeys", "keys_text"]

SCREEN = OutputLimit(8_000, 8_000)
"""The end of a screen says what happens now."""
TARGET = AliasChoices("pane", "target")
NEEDS = ("tmux",)


def _pause(delay: float | str | None, delay_ms: int | None) -> float:
    if delay is not None:
        return seconds_of(delay)
    return (delay_ms or 0) / 1000


def keys_text(literal: str, keys: tuple[str, ...], *, enter: bool) -> str:
    """What is typed, as the policy reads it: named keys in angle brackets, ``<lt>`` for a typed one. Pure."""
    names = (*keys, *(("Enter",) if enter else ()))
    return literal.replace("<", "<lt>") + "".join(f"<{name}>" for name in names)


class _Delayed(Arguments):
    pane: Line | None = Field(
        None, description="a pane's name or tmux's id, instead of the default one", validation_alias=TARGET
    )
    delay: Duration | None = Field(None, description="wait this long first: seconds, or a text such as 2s")
    delay_ms: int | None = Field(None, ge=0, description="the same in milliseconds")

    @model_validator(mode="after")
    def _one_delay(self) -> _Delayed:
        if self.delay is not None and self.delay_ms is not None:
            raise ValueError("delay and delay_ms contradict each other")
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
            packs=("core",),
            limit=SCREEN,
        )
        super().__init__("capture_pane", text, _Capture, traits)

    async def run(self, args: _Capture, ctx: ToolContext) -> ToolResult:
        text = await ctx.execution.capture_pane(
            pane=args.pane,
            start=args.start,
            end=args.end,
            join_wrapped_lines=args.join_wrapped_lines,
            preserve_trailing_spaces=args.preserve_trailing_spaces,
            include_escape_sequences=args.include_escape_sequences,
            escape_non_printable=args.escape_non_printable,
            include_alternate_screen=args.include_alternate_screen,
            delay=args.pause,
        )
        return ToolResult.of(text if text.strip() else "(the screen is empty)")


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
            packs=("core",),
        )
        super().__init__("send_keys", text, _Send, traits)

    def subjects(self, args: _Send) -> tuple[Subject, ...]:
        return (Subject("keys", keys_text(args.literal_text or "", args.keys, enter=args.enter), pane=args.pane),)

    async def run(self, args: _Send, ctx: ToolContext) -> ToolResult:
        await ctx.execution.send_keys(
            args.keys, literal_text=args.literal_text, enter=args.enter, pane=args.pane, delay=args.pause
        )
        return ToolResult.of("typed; capture_pane shows what came of it")
