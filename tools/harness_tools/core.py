"""The base set of tools, and ``time``."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Literal

from pydantic import Field

from harness.toolkit import Arguments, Tool, ToolContext, ToolResult, Traits

from .edit import Edit
from .files import ReadFile, WriteFile
from .shell import RunShell
from .terminal import CapturePane, SendKeys

__all__ = [
    "time_text",
    "tools",
]


# -- ``time``: the clock of harness's machine.


Format = Literal["epoch", "epoch_ms", "epoch_ns", "iso", "rfc2822", "date", "time"]
EPOCHS = {"epoch": 1, "epoch_ms": 10**3, "epoch_ns": 10**9}


def time_text(seconds: float, form: Format) -> str:
    """Format a time since the epoch, in UTC. Pure."""
    if form in EPOCHS:
        whole, part = divmod(seconds, 1)  # separate: a float cannot hold nanoseconds of such a number
        return str(int(whole) * EPOCHS[form] + int(part * EPOCHS[form]))
    moment = datetime.fromtimestamp(seconds, UTC)
    if form == "iso":
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if form == "rfc2822":
        return format_datetime(moment)
    return moment.strftime("%Y-%m-%d" if form == "date" else "%H:%M:%S")


class _Arguments(Arguments):
    format: Format = Field("epoch", description="output format, in UTC")


class Time(Tool[_Arguments]):
    """``time``."""

    def __init__(self) -> None:
        text = "Return the current time of harness's machine, not of the target."
        super().__init__("time", text, _Arguments, Traits(parallelizable=True, packs=("core",)))

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        return ToolResult.of(time_text(ctx.clock(), args.format))


# -- The base set.


def tools() -> list[Tool[Any]]:
    """Return one of each tool."""
    return [RunShell(), ReadFile(), WriteFile(), Edit(), CapturePane(), SendKeys(), Time()]
