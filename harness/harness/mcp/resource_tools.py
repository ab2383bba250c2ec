"""The tools behind the resources. They are offered under addresses only, never in the list of tools."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import anyio
from pydantic import Field

from ..errors import OutputDropped, UnsupportedOperation
from ..joblists import asked_for
from ..results import Status
from ..toolkit.context import ToolContext
from ..toolkit.contract import Arguments, OutputLimit, tool
from ..toolkit.notebook import MemoryScope, Notebook, memory_json, place_of, todos_json
from ..toolkit.registry import Registry
from ..toolkit.values import Category, Json, ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["PAGE", "PAGE_LIMIT", "page_of", "resource_tools"]

PAGE = 32 << 10
"""Bytes of a log in one page."""
PAGE_LIMIT = 60 << 10
JOBS_SHOWN = 200
MEMORIES_SHOWN = 200
FIRST_WAIT = 1.0
"""Seconds that a page of a running job waits for its first byte: what is kept on the target takes its time to come."""
NEXT_WAIT = 0.15
"""Seconds of silence after which a page of a running job is taken for complete."""
WHOLE = OutputLimit(64 << 10, 0)


class Nothing(Arguments):
    """List the jobs of the target."""


class Describe(Arguments):
    """Describe the target and its session."""


class Todos(Arguments):
    """List the things to do of the session."""


class Memories(Arguments):
    """List what is written down for the session, its directory, its target and everything."""


class JobLog(Arguments):
    """Read a page of a job's output."""

    job_id: str
    offset: int = Field(0, ge=0, description="the first byte")
    limit: int = Field(PAGE, ge=1, le=PAGE_LIMIT, description="bytes at most")


class PaneScreen(Arguments):
    """Look at the screen of a pane."""

    pane: str


@tool(Nothing, name="resource_jobs", category=Category.FILE_READ, parallelizable=True, limit=WHOLE)
async def jobs(args: Nothing, ctx: ToolContext) -> ToolResult:
    """The jobs that somebody asked for, the newest last."""
    found = asked_for(await ctx.execution.jobs())
    shown: list[Json] = [cast(Json, asdict(job) | {"status": str(job.status)}) for job in found[-JOBS_SHOWN:]]
    return ToolResult.of(f"{len(found)} jobs", data={"jobs": shown, "left_out": max(0, len(found) - JOBS_SHOWN)})


@tool(Describe, name="resource_describe", category=Category.FILE_READ, parallelizable=True, limit=WHOLE)
async def describe(args: Describe, ctx: ToolContext) -> ToolResult:
    """The target in words and numbers."""
    execution = ctx.execution
    about = execution.capabilities
    data: dict[str, Json] = {
        "target": str(execution.target),
        "identity": execution.identity,
        "description": execution.describe(),
        "terminal": execution.has_terminal,
        "user": about.user,
        "home": about.home,
        "system": about.system,
        "panes": [],
    }
    if execution.has_terminal:
        data["panes"] = [pane.name for pane in await execution.list_panes()]
        data["attach_command"] = list(execution.attach_command_read_only)
    return ToolResult.of(execution.describe(), data=data)


@tool(Todos, name="resource_todos", parallelizable=True, limit=WHOLE)
async def todos(args: Todos, ctx: ToolContext) -> ToolResult:
    """The list as the session wrote it last."""
    found = await notebook_of(ctx).todos(ctx.session_id)
    return ToolResult.of(f"{len(found)} things to do", data={"todos": todos_json(found)})


@tool(Memories, name="resource_memories", parallelizable=True, limit=WHOLE)
async def memories(args: Memories, ctx: ToolContext) -> ToolResult:
    """The memories, the newest first, and how many older ones there are."""
    found = await notebook_of(ctx).memories([place_of(scope, ctx) for scope in MemoryScope])
    newest = sorted(found, key=lambda memory: -memory.number)[:MEMORIES_SHOWN]
    shown: list[Json] = [memory_json(memory) for memory in newest]
    data: Json = {"memories": shown, "left_out": len(found) - len(newest)}
    return ToolResult.of(f"{len(found)} memories", data=data)


def notebook_of(ctx: ToolContext) -> Notebook:
    """The notebook of a call.

    Raises:
        UnsupportedOperation: the session has none.
    """
    if ctx.notebook is None:
        raise UnsupportedOperation("this session writes nothing down", target=ctx.execution.target)
    return ctx.notebook


@tool(PaneScreen, name="resource_screen", category=Category.FILE_READ, parallelizable=True, limit=WHOLE)
async def pane_screen(args: PaneScreen, ctx: ToolContext) -> ToolResult:
    """What a person would see there now."""
    if not ctx.execution.has_terminal:
        raise UnsupportedOperation(
            "there are no panes", target=ctx.execution.target, hint="start the server with --tmux"
        )
    return ToolResult.of(await ctx.execution.capture_pane(pane=args.pane))


@tool(JobLog, name="resource_log", category=Category.FILE_READ, parallelizable=True, limit=WHOLE)
async def job_log(args: JobLog, ctx: ToolContext) -> ToolResult:
    """A page that begins at ``offset``; ``next_offset`` of the data is where the next one begins."""
    job = await ctx.execution.job(args.job_id)
    running = job.status is Status.RUNNING
    offset, data, whole = await _from(ctx, args, running=running)
    text, used = page_of(data, args.limit)
    ended = not running and whole and used == len(data)
    return ToolResult.of(
        text,
        data={
            "offset": offset,
            "next_offset": offset + used,
            "end_of_log": ended,
            "status": str(job.status),
            "exit_code": job.exit_code,
        },
    )


async def _from(ctx: ToolContext, args: JobLog, *, running: bool) -> tuple[int, bytes, bool]:
    """What there is from ``offset``, one byte more than the limit at most; a running job is not waited for.

    Returns:
        Where it begins, which is later when bytes were not kept; the bytes; and whether that is all that there is.
    """
    offset = args.offset
    while True:
        found = bytearray()
        output = cast("AsyncGenerator[bytes, None]", ctx.execution.follow(args.job_id, offset=offset))
        try:
            with anyio.move_on_after(FIRST_WAIT if running else None) as patience:
                async with aclosing(output):
                    async for chunk in output:
                        found += chunk
                        if len(found) > args.limit:
                            break
                        if running:
                            patience.deadline = anyio.current_time() + NEXT_WAIT
        except OutputDropped as gap:
            if found or gap.end == gap.start:
                return offset, bytes(found), gap.end == gap.start
            offset = gap.end
        else:
            return offset, bytes(found), len(found) <= args.limit


def page_of(data: bytes, limit: int) -> tuple[str, int]:
    """The text of a page and how many bytes it takes. Pure.

    A page that is cut ends with a line where it can, so that no secret is half on one and half on the next; and no
    character is cut in two.
    """
    if len(data) <= limit:
        end = _whole_characters(data, len(data))
    else:
        line = data.rfind(b"\n", 0, limit)
        end = line + 1 if line >= 0 else _whole_characters(data, limit)
    return data[:end].decode("utf-8", "replace"), end


def _whole_characters(data: bytes, end: int) -> int:
    """``end``, or up to three bytes less when a character's last bytes are still to come."""
    for back in range(1, min(4, end) + 1):
        byte = data[end - back]
        if byte & 0xC0 != 0x80:
            size = 1 if byte < 0x80 else 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 4
            return end - back if byte >= 0xC0 and back < size and end - back > 0 else end
    return end


def resource_tools() -> Registry:
    """A registry of them, apart from the tools that are offered."""
    return Registry([jobs, describe, todos, memories, pane_screen, job_log], source="resources")
