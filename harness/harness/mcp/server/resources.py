"""The resources of the MCP server, and subscriptions: jobs and their output, panes, notes, and their tools."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import anyio
from pydantic import Field

from ...errors import HarnessError, OutputDropped, UnsupportedOperation
from ...results import Job, Status, without_helpers
from ...system.background_tasks import BackgroundTasks, open_background_tasks
from ...toolkit.contract import Arguments, OutputLimit, ToolContext, tool
from ...toolkit.events import Event, JobExited, JobStarted, TodoChanged, ToolCallCompleted
from ...toolkit.executor import Executor
from ...toolkit.registry import Registry
from ...toolkit.session.notebook import (
    Memory,
    MemoryLocation,
    MemoryScope,
    Notebook,
    Todo,
    memory_json,
    place_at,
    place_of,
    todos_json,
)
from ...toolkit.values import Category, Json, JsonObject, ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = [
    "DESCRIBE",
    "JOBS",
    "LIMIT",
    "LOG_TEMPLATE",
    "MEMORIES",
    "PAGE",
    "PAGE_LIMIT",
    "SCREEN_TEMPLATE",
    "TODOS",
    "CoalescedEvent",
    "ResourceAddress",
    "Subscriptions",
    "page_of",
    "parse_uri",
    "resource_tools",
    "screen_uri",
]


# -- The tools that read resources, which are not in the list of tools


PAGE = 32 << 10
"""Default bytes of one page of a log."""
PAGE_LIMIT = 60 << 10
JOBS_SHOWN = 200
MEMORIES_SHOWN = 200
FIRST_WAIT = 1.0
"""Seconds that a page of a running job waits for the first byte, which has to be fetched from the target."""
NEXT_WAIT = 0.15
"""Seconds without output after which a page of a running job is complete."""
WHOLE = OutputLimit(64 << 10, 0)


class NoArguments(Arguments):
    """List the jobs of the target."""


class Describe(Arguments):
    """Describe the target and its session."""


class Todos(Arguments):
    """Return the to-do list of the session."""


class Memories(Arguments):
    """List the memories of the session, its directory, its target, and for everything."""


class JobLog(Arguments):
    """Read a page of a job's output."""

    job_id: str
    offset: int = Field(0, ge=0, description="the first byte")
    limit: int = Field(PAGE, ge=1, le=PAGE_LIMIT, description="bytes at most")


class PaneScreen(Arguments):
    """Look at the screen of a pane."""

    pane: str


@tool(NoArguments, name="resource_jobs", category=Category.FILE_READ, parallelizable=True, limit=WHOLE)
async def jobs(args: NoArguments, ctx: ToolContext) -> ToolResult:
    """Return the jobs, without those of helper commands, the newest last."""
    found = without_helpers(await ctx.execution.jobs())
    shown: list[Json] = [cast(Json, asdict(job) | {"status": str(job.status)}) for job in found[-JOBS_SHOWN:]]
    return ToolResult.of(f"{len(found)} jobs", data={"jobs": shown, "left_out": max(0, len(found) - JOBS_SHOWN)})


@tool(Describe, name="resource_describe", category=Category.FILE_READ, parallelizable=True, limit=WHOLE)
async def describe(args: Describe, ctx: ToolContext) -> ToolResult:
    """Return the description of the target, as text and data."""
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
    """Return the session's current to-do list."""
    found = await notebook_of(ctx).todos(ctx.session_id)
    return ToolResult.of(f"{len(found)} things to do", data={"todos": todos_json(found)})


@tool(Memories, name="resource_memories", parallelizable=True, limit=WHOLE)
async def memories(args: Memories, ctx: ToolContext) -> ToolResult:
    """Return the memories, the newest first, and the number of omitted older ones."""
    found = await notebook_of(ctx).memories([place_of(scope, ctx) for scope in MemoryScope])
    newest = sorted(found, key=lambda memory: -memory.number)[:MEMORIES_SHOWN]
    shown: list[Json] = [memory_json(memory) for memory in newest]
    data: Json = {"memories": shown, "left_out": len(found) - len(newest)}
    return ToolResult.of(f"{len(found)} memories", data=data)


def notebook_of(ctx: ToolContext) -> Notebook:
    """Return the notebook of a call's session.

    Raises:
        UnsupportedOperation: the session has none.
    """
    if ctx.notebook is None:
        raise UnsupportedOperation("this session has no notebook", target=ctx.execution.target)
    return ctx.notebook


@tool(PaneScreen, name="resource_screen", category=Category.FILE_READ, parallelizable=True, limit=WHOLE)
async def pane_screen(args: PaneScreen, ctx: ToolContext) -> ToolResult:
    """Return the current screen of a pane."""
    if not ctx.execution.has_terminal:
        raise UnsupportedOperation(
            "there are no panes", target=ctx.execution.target, hint="start the server with --tmux"
        )
    return ToolResult.of(await ctx.execution.capture_pane(pane=args.pane))


@tool(JobLog, name="resource_log", category=Category.FILE_READ, parallelizable=True, limit=WHOLE)
async def job_log(args: JobLog, ctx: ToolContext) -> ToolResult:
    """Return a page that starts at ``offset``; ``next_offset`` of the data is the start of the next page."""
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
    """Return output from ``offset``, at most one byte more than the limit, without waiting for a running job.

    Returns:
        The offset of the first byte, which is later if output was dropped; the bytes; and whether that is all.
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
    """Return the text of a page and its number of bytes. Pure.

    A truncated page ends at the end of a line if possible, so that no secret is split over two pages; no character is
    split.
    """
    if len(data) <= limit:
        end = _whole_characters(data, len(data))
    else:
        line = data.rfind(b"\n", 0, limit)
        end = line + 1 if line >= 0 else _whole_characters(data, limit)
    return data[:end].decode("utf-8", "replace"), end


def _whole_characters(data: bytes, end: int) -> int:
    """Return ``end``, or up to three bytes less if the last character is incomplete."""
    for back in range(1, min(4, end) + 1):
        byte = data[end - back]
        if byte & 0xC0 != 0x80:
            size = 1 if byte < 0x80 else 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 4
            return end - back if byte >= 0xC0 and back < size and end - back > 0 else end
    return end


def resource_tools() -> Registry:
    """Return a registry of these tools, separate from the offered ones."""
    return Registry([jobs, describe, todos, memories, pane_screen, job_log], source="resources")


# -- Addresses of resources. Pure.
#
# Each address represents a call of one of the tools above, so that reading is checked by the policy, redacted and
# recorded like every other call.


SCHEME = "harness"
JOBS = "harness://jobs"
DESCRIBE = "harness://describe"
TODOS = "harness://todos"
MEMORIES = "harness://memories"
LOG_TEMPLATE = "harness://job/{id}/log{?offset,limit}"
SCREEN_TEMPLATE = "harness://pane/{name}/screen"


@dataclass(frozen=True, slots=True)
class ResourceAddress:
    """The tool and the arguments that an address represents, and the type of the content."""

    uri: str
    tool: str
    arguments: JsonObject
    mime_type: str = "application/json"


def screen_uri(pane: str) -> str:
    """Return the address of a pane's screen."""
    return f"harness://pane/{quote(pane, safe='')}/screen"


def parse_uri(uri: str) -> ResourceAddress:
    """Parse the address of a resource.

    Raises:
        ValueError: the resource does not exist.
    """
    try:
        parts = urlsplit(uri)
        words = [parts.netloc, *(unquote(word, errors="strict") for word in parts.path.split("/")[1:])]
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
    except ValueError:
        raise ValueError(_unknown(uri)) from None
    if parts.scheme != SCHEME or parts.fragment:
        raise ValueError(_unknown(uri))
    match words:
        case ["jobs"] if not query:
            return ResourceAddress(uri, "resource_jobs", {})
        case ["describe" | "todos" | "memories" as name] if not query:
            return ResourceAddress(uri, f"resource_{name}", {})
        case ["pane", name, "screen"] if name and not query:
            return ResourceAddress(uri, "resource_screen", {"pane": name}, "text/plain")
        case ["job", job_id, "log"] if job_id:
            return ResourceAddress(uri, "resource_log", {"job_id": job_id, **_page(uri, query)}, "text/plain")
    raise ValueError(_unknown(uri))


def _page(uri: str, query: list[tuple[str, str]]) -> dict[str, int]:
    page: dict[str, int] = {}
    for name, value in query:
        if name not in ("offset", "limit") or name in page or not (value.isascii() and value.isdigit()):
            raise ValueError(f"{uri}: only offset and limit are supported, as numbers of bytes")
        page[name] = int(value)
    return page


def _unknown(uri: str) -> str:
    others = ", ".join((JOBS, DESCRIBE, TODOS, MEMORIES, LOG_TEMPLATE))
    return f"unknown resource {uri}; there are {others} and {SCREEN_TEMPLATE}"


# -- Subscriptions: the client is notified that a resource has changed, without its content.
#
# A job's log is followed on its existing stream; screens have none, so a subscribed screen is captured once a second.
# The capture is only compared; the client gets it by reading the resource, which is checked and recorded.


LIMIT = 64
"""Maximum subscriptions of one client."""
QUIET = 0.25
"""Minimum seconds between two notifications about one resource."""
SCREEN_EVERY = 1.0
JOBS_EVERY = 10.0
"""Seconds after which the list of jobs is compared even if this session has started and ended none."""
DESCRIBE_EVERY = 2.0
NOTES_EVERY = 10.0
"""Seconds after which notes are compared even if this session has written none."""
log = logging.getLogger("harness.mcp")

Notify = Callable[[str], Awaitable[None]]


class CoalescedEvent:
    """An event that merges all occurrences until it is waited for."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """Set the event."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for the event and reset it; later occurrences are for the next wait."""
        await self._event.wait()
        self._event = anyio.Event()


@dataclass(slots=True)
class _Watch:
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    begun: anyio.Event = field(default_factory=anyio.Event)
    error: HarnessError | None = None


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of an executor's session."""

    executor: Executor

    async def todos(self) -> tuple[Todo, ...]:
        """Return the to-do list."""
        return await self._notebook.todos(self.executor.session_id)

    async def memories(self) -> tuple[Memory, ...]:
        """Return the memories that are visible to the session."""
        session, execution = self.executor.session_id, self.executor.execution
        home, cwd = execution.capabilities.home, self.executor.cwd
        lasting = (place_at(scope, execution.identity, home, cwd) for scope in MemoryScope if scope != "session")
        return await self._notebook.memories([MemoryLocation(MemoryScope.SESSION, session_id=session), *lasting])

    @property
    def _notebook(self) -> Notebook:
        if self.executor.notebook is None:
            raise UnsupportedOperation("this session has no notebook", target=self.executor.execution.target)
        return self.executor.notebook


class Subscriptions:
    """The subscriptions of one client."""

    def __init__(self, executor: Executor, tasks: BackgroundTasks) -> None:
        self._execution = executor.execution
        self._events = executor.events
        self._notes = Notes(executor)
        self._tasks = tasks
        self._watches: dict[str, _Watch] = {}
        self._had: dict[str, int] = {}

    def have_read(self, place: ResourceAddress, offset: object) -> None:
        """Record up to which byte the client has a job's output, where a later subscription starts."""
        if place.tool == "resource_log" and isinstance(offset, int):
            self._had[str(place.arguments["job_id"])] = offset

    @property
    def full(self) -> bool:
        """Return whether the maximum is reached."""
        return len(self._watches) >= LIMIT

    async def add(self, place: ResourceAddress, notify: Notify) -> None:
        """Watch a resource until :meth:`remove`; a second subscription to the same resource replaces the first.

        Every change after the return is reported.

        Raises:
            HarnessError: the resource is not available.
        """
        self.remove(place.uri)
        watch = self._watches[place.uri] = _Watch()
        self._tasks.start_soon(self._run, place, notify, watch)
        await watch.begun.wait()
        if watch.error is not None:
            raise watch.error

    def remove(self, uri: str) -> None:
        """Stop watching a resource; does nothing if it is not watched."""
        if (watch := self._watches.pop(uri, None)) is not None:
            watch.scope.cancel()

    async def _run(self, place: ResourceAddress, notify: Notify, watch: _Watch) -> None:
        try:
            with watch.scope:
                await self._watch(place, notify, watch)
        except HarnessError as error:
            watch.error = error
            log.info("%s is no longer watched: %s", place.uri, error)
        finally:
            watch.begun.set()
            if self._watches.get(place.uri) is watch:
                del self._watches[place.uri]

    async def _watch(self, place: ResourceAddress, notify: Notify, watch: _Watch) -> None:
        changes = self._changes(place)
        await anext(changes)
        watch.begun.set()
        signal = CoalescedEvent()
        async with open_background_tasks() as tasks:
            tasks.start_soon(_tell, signal, place.uri, notify)
            async for _ in changes:
                signal.set()
            await anyio.sleep(QUIET)  # to report the last change

    def _changes(self, place: ResourceAddress) -> AsyncIterator[None]:
        """Yield one item once the watch has started, and one for each change."""
        arguments = place.arguments
        if place.tool == "resource_log":
            job_id = str(arguments["job_id"])
            return self._log(job_id, self._had.get(job_id, 0))
        if place.tool == "resource_jobs":
            return self._compared(self._jobs, JOBS_EVERY, JobStarted, JobExited, ToolCallCompleted)
        if place.tool == "resource_todos":
            return self._compared(self._notes.todos, NOTES_EVERY, TodoChanged)
        if place.tool == "resource_memories":
            return self._compared(self._notes.memories, NOTES_EVERY, ToolCallCompleted)
        if place.tool == "resource_screen":
            return self._polled(lambda: self._execution.capture_pane(pane=str(arguments["pane"])), SCREEN_EVERY)
        return self._polled(self._description, DESCRIBE_EVERY)

    async def _log(self, job_id: str, offset: int) -> AsyncIterator[None]:
        """Yield for each part of the output after ``offset``, and at the end of the job."""
        job = await self._execution.job(job_id)
        yield
        if job.status is not Status.RUNNING:
            return
        while True:
            output = cast("AsyncGenerator[bytes, None]", self._execution.follow(job_id, offset=offset))
            try:
                async with aclosing(output):
                    async for _ in output:
                        yield
            except OutputDropped as gap:
                if gap.end == gap.start:
                    break
                offset = gap.end
            else:
                break
        yield

    async def _compared(
        self, look: Callable[[], Awaitable[object]], every: float, *kinds: type[Event]
    ) -> AsyncIterator[None]:
        """Compare after such an event, or after ``every`` seconds for changes by other programs; yield on a change."""
        changed = CoalescedEvent()

        def listen(event: Event) -> None:
            if isinstance(event, kinds):
                changed.set()

        with self._events.listening(listen):
            known = await look()
            yield
            while True:
                with anyio.move_on_after(every):
                    await changed.wait()
                before, known = known, await look()
                if known != before:
                    yield

    async def _polled(self, look: Callable[[], Awaitable[str]], every: float) -> AsyncIterator[None]:
        seen = hash(await look())
        yield
        while True:
            await anyio.sleep(every)
            before, seen = seen, hash(await look())
            if seen != before:
                yield

    async def _jobs(self) -> list[Job]:
        return without_helpers(await self._execution.jobs())

    async def _description(self) -> str:
        return self._execution.describe()


async def _tell(signal: CoalescedEvent, uri: str, notify: Notify) -> None:
    while True:
        await signal.wait()
        await notify(uri)
        await anyio.sleep(QUIET)
