"""The MCP server for one client: tools and resources through one executor."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from anyio import to_thread
from mcp.server import NotificationOptions, Server
from mcp.server.context import ServerRequestContext
from mcp.server.runner import serve_loop
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError

from ...errors import HarnessError
from ...system.background_tasks import BackgroundTasks, open_background_tasks
from ...toolkit.events import Event, ToolCallProgress
from ...toolkit.executor import Executor
from ...toolkit.values import CallOutcome, Json, Text, ToolCall
from .elicitation import ClientApprover
from .protocol_types import handle_note, log_uri, plain, result_of, running_job, tool_of
from .resources import (
    DESCRIBE,
    JOBS,
    LOG_TEMPLATE,
    MEMORIES,
    SCREEN_TEMPLATE,
    TODOS,
    CoalescedEvent,
    ResourceAddress,
    Subscriptions,
    parse_uri,
    resource_tools,
    screen_uri,
)
from .roots import ClientRoots
from .runbooks import Runbook, RunbookError, find_runbooks

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream
    from mcp.shared.message import SessionMessage

__all__ = [
    "AT_ONCE",
    "WAITING",
    "CallDispatcher",
    "ClientSession",
    "OpenExecutor",
    "Progress",
    "open_session",
]


# -- Tool calls of one client


AT_ONCE = 16
"""Maximum concurrent calls of one client."""
WAITING = 256
"""Maximum calls of one client that wait to start; more are refused."""
INTERVAL = 0.075
"""Minimum seconds between two progress notifications."""
HEARTBEAT = 10.0
"""Seconds after which a call without output sends progress: many clients then extend their timeout."""
SHOWN = 2_000
"""Maximum characters of new output in one notification."""
LAST_WORDS = 1.0
"""Maximum seconds that the last notification may delay the result."""
BUSY = -32000
MAX_COMPLETIONS = 100
"""Maximum values of a completion, by the protocol."""
log = logging.getLogger("harness.mcp")


class Progress:
    """Sends a call's output to the client as progress notifications at a limited rate."""

    def __init__(self, call_id: str, client: ServerSession) -> None:
        self._call_id = call_id
        self._client = client
        self._started = time.monotonic()
        self._told = 0.0
        self._text = ""
        self._left_out = 0
        self._more = anyio.Event()

    def listen(self, event: Event) -> None:
        """Record output of the call."""
        if isinstance(event, ToolCallProgress) and event.call_id == self._call_id:
            longer = self._text + event.text
            self._left_out += max(0, len(longer) - SHOWN)
            self._text = longer[-SHOWN:]
            self._more.set()

    async def run(self) -> None:
        """Send notifications until the call ends."""
        while True:
            with anyio.move_on_after(HEARTBEAT):
                await self._more.wait()
                await anyio.sleep(INTERVAL)
            await self._tell(self._take() or f"running for {time.monotonic() - self._started:.0f} s")

    async def finish(self) -> None:
        """Send the rest, unless the client is too slow to receive it."""
        if self._text:
            with anyio.move_on_after(LAST_WORDS):
                await self._tell(self._take())

    def _take(self) -> str:
        left_out = f"[... {self._left_out} characters left out ...]" if self._left_out else ""
        text, self._text, self._left_out, self._more = left_out + self._text, "", 0, anyio.Event()
        return text

    async def _tell(self, message: str) -> None:
        self._told = max(round(time.monotonic() - self._started, 3), self._told + 0.001)  # it must increase
        await self._client.report_progress(self._told, message=plain(message))


class CallDispatcher:
    """Runs the tool calls of one client."""

    def __init__(self, executor: Executor, approver: ClientApprover, roots: ClientRoots) -> None:
        self._executor = executor
        self._approver = approver
        self._roots = roots
        self._turns = anyio.CapacityLimiter(AT_ONCE)

    async def call(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Handle ``tools/call``.

        Raises:
            MCPError: too many calls are waiting.
        """
        if self._turns.statistics().tasks_waiting >= WAITING:
            raise MCPError(code=BUSY, message=f"{WAITING} calls are waiting already; nothing was run")
        async with self._turns:
            with self._approver.asks(ctx):
                return await self._run(ctx, params)

    async def _run(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        call = ToolCall(params.name, params.arguments or {}, call_id=uuid.uuid4().hex)
        executor = await self._roots.executor()
        if (ctx.meta or {}).get("progress_token") is None:
            return self._result(await executor.call(call))
        with self._progress(call.call_id, ctx.session) as progress:
            async with open_background_tasks() as tasks:
                tasks.start_soon(progress.run)
                outcome = await executor.call(call)
            await progress.finish()
        return self._result(outcome)

    @contextmanager
    def _progress(self, call_id: str, client: ServerSession) -> Iterator[Progress]:
        progress = Progress(call_id, client)
        with self._executor.events.listening(progress.listen):
            yield progress

    def _result(self, outcome: CallOutcome) -> types.CallToolResult:
        if outcome.error is not None:
            log.warning("%s could not run: %s", outcome.call.name, outcome.error)
        if job_id := running_job(outcome):
            tools = [tool.name for tool in self._executor.registry.list()]
            note = Text(handle_note(job_id, tools))
            outcome = replace(outcome, result=replace(outcome.result, content=(*outcome.result.content, note)))
        return result_of(outcome)


# -- The server
#
# It supports protocol revisions with a handshake (up to 2025-11-25): what a client has read and what its user has
# allowed belongs to a session, which later revisions do not have. Clients that support both fall back.


OpenExecutor = Callable[[ClientApprover], AbstractAsyncContextManager[Executor]]
"""Opens the executor of a client's session, with its own record of read files and its own approvals."""

NOT_FOUND = -32002
REFUSED = -32000
LOGS_LISTED = 50
COALESCE = 0.05
"""Seconds for which changes of the registry are merged into one notification."""

Request = ServerRequestContext[Any, Any]


@dataclass(slots=True)
class _Client:
    """The session for notifications to the client; None until the handshake is finished."""

    session: ServerSession | None = None
    is_local: bool = False
    """Whether it runs on this machine: over HTTP, it may be elsewhere."""


class ClientSession:
    """The server of one client."""

    def __init__(self, executor: Executor, approver: ClientApprover, tasks: BackgroundTasks, version: str) -> None:
        self._executor = executor
        self._looking = replace(executor, registry=resource_tools())
        self._roots = ClientRoots(executor, tasks)
        self._calls = CallDispatcher(executor, approver, self._roots)
        self._approver = approver
        self._watched = Subscriptions(executor, tasks)
        self._client = _Client()
        self._server = self._make_server(version)

    def _make_server(self, version: str) -> Server[Any]:
        server: Server[Any] = Server(
            "harness",
            version=version,
            title="harness",
            instructions=_instructions(self._executor),
            on_list_tools=self._list_tools,
            on_call_tool=self._calls.call,
            on_list_resources=self._list_resources,
            on_list_resource_templates=_list_templates,
            on_read_resource=self._read,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._prompt,
            on_completion=self._complete,
        )
        server.add_notification_handler("notifications/initialized", types.NotificationParams, self._greeted)
        server.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, self._roots_changed
        )
        return server

    async def serve(
        self,
        incoming: ReadStream[SessionMessage | Exception],
        outgoing: WriteStream[SessionMessage],
        session_id: str | None = None,
    ) -> None:
        """Serve until the client disconnects; running calls are then cancelled, and recorded as such."""
        self._client.is_local = session_id is None
        options = self._server.create_initialization_options(NotificationOptions(tools_changed=True))
        await serve_loop(
            self._server, incoming, outgoing, lifespan_state={}, session_id=session_id, init_options=options
        )

    # -- tools

    async def _list_tools(self, ctx: Request, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool_of(tool) for tool in self._executor.registry.list()])

    async def _greeted(self, ctx: Request, params: types.NotificationParams) -> None:
        self._client.session = ctx.session
        if self._client.is_local:
            self._roots.ask(ctx.session)

    async def _roots_changed(self, ctx: Request, params: types.NotificationParams) -> None:
        if self._client.is_local:
            self._roots.ask(ctx.session)

    async def tell_of_tools(self, changed: CoalescedEvent) -> None:
        """Notify the client of changes of the registry, several at once in one notification."""
        while True:
            await changed.wait()
            await anyio.sleep(COALESCE)
            if self._client.session is not None:
                await self._client.session.send_tool_list_changed()

    # -- resources

    async def _look(self, place: ResourceAddress) -> CallOutcome:
        return await self._looking.call(ToolCall(place.tool, place.arguments))

    async def _list_resources(
        self, ctx: Request, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        with self._approver.asks(ctx):
            about = (await self._look(parse_uri(DESCRIBE))).result.data
            jobs = (await self._look(parse_uri(JOBS))).result.data
        found = [
            _resource(JOBS, "jobs", "The stored jobs of the target, with their state.", "application/json"),
            _resource(DESCRIBE, "describe", "The target, its session and its panes.", "application/json"),
            *(_notes() if self._executor.notebook is not None else ()),
            *(
                _resource(screen_uri(name), f"screen of {name}", "What is on the pane's screen.", "text/plain")
                for name in _strings(about, "panes")
            ),
            *(
                _resource(log_uri(job_id), f"output of job {job_id}", command[:200], "text/plain")
                for job_id, command in _newest(jobs)
            ),
        ]
        return types.ListResourcesResult(resources=found)

    async def _read(self, ctx: Request, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        place = _place(params.uri)
        with self._approver.asks(ctx):
            result = (await self._look(place)).result
        if result.is_error:
            missing = result.error_code in ("job_not_found", "pane_gone", "unsupported_operation")
            raise MCPError(code=NOT_FOUND if missing else REFUSED, message=plain(result.text), data={"uri": place.uri})
        data = result.data
        text = json.dumps(data, indent=1) if place.mime_type == "application/json" else result.text
        page = data if place.tool == "resource_log" and isinstance(data, dict) else {}
        self._watched.have_read(place, page.get("next_offset"))
        meta = {f"harness/{name}": value for name, value in page.items()} or None
        content = types.TextResourceContents(uri=place.uri, mime_type=place.mime_type, text=plain(text), _meta=meta)
        return types.ReadResourceResult(contents=[content])

    async def _subscribe(self, ctx: Request, params: types.SubscribeRequestParams) -> types.EmptyResult:
        place = _place(params.uri)
        if self._watched.full:
            raise MCPError(code=REFUSED, message="too many subscriptions; end one first")
        try:
            await self._watched.add(place, ctx.session.send_resource_updated)
        except HarnessError as error:
            raise MCPError(code=NOT_FOUND, message=plain(str(error)), data={"uri": place.uri}) from error
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Request, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._watched.remove(params.uri)
        return types.EmptyResult()

    async def _complete(self, ctx: Request, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Complete the ID of a job and the name of a pane in the addresses of resources."""
        place, argument = getattr(params.ref, "uri", ""), params.argument
        values: list[str] = []
        with self._approver.asks(ctx):
            if (place, argument.name) == (LOG_TEMPLATE, "id"):
                values = [job_id for job_id, _ in _newest((await self._look(parse_uri(JOBS))).result.data)]
            elif (place, argument.name) == (SCREEN_TEMPLATE, "name"):
                values = _strings((await self._look(parse_uri(DESCRIBE))).result.data, "panes")
        found = [plain(value) for value in values if value.startswith(argument.value)]
        shown = found[:MAX_COMPLETIONS]
        return types.CompleteResult(
            completion=types.Completion(values=shown, total=len(found), has_more=len(shown) < len(found))
        )

    # -- prompts

    async def _list_prompts(self, ctx: Request, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        found, problems = await _runbooks()
        for problem in problems:
            log.warning("%s", problem)
        return types.ListPromptsResult(prompts=[_prompt_of(one) for one in found.values()])

    async def _prompt(self, ctx: Request, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        found, _ = await _runbooks()
        try:
            if params.name not in found:
                raise RunbookError(f"there is no runbook {params.name}")
            text = found[params.name].filled(params.arguments or {})
        except RunbookError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=plain(error.message)) from None
        content = types.TextContent(text=plain(self._executor.services.redactor.text(text)))
        message = types.PromptMessage(role="user", content=content)
        return types.GetPromptResult(description=plain(found[params.name].description), messages=[message])


async def _runbooks() -> tuple[dict[str, Runbook], list[str]]:
    try:
        return await to_thread.run_sync(find_runbooks)
    except HarnessError as error:  # the settings cannot be read
        raise MCPError(code=REFUSED, message=plain(str(error))) from error


@asynccontextmanager
async def open_session(open_executor: OpenExecutor, version: str) -> AsyncIterator[ClientSession]:
    """Open the server of one client with its own executor."""
    approver = ClientApprover()
    async with open_executor(approver) as executor, open_background_tasks() as tasks:
        session = ClientSession(executor, approver, tasks, version)
        changed = CoalescedEvent()
        with executor.registry.watched(changed.set):
            tasks.start_soon(session.tell_of_tools, changed)
            yield session


def _instructions(executor: Executor) -> str:
    return (
        f"The tools work on {executor.execution.describe()}, not on the machine of this client. "
        "A command that takes long is left running and named as a job; it must not be started again. "
        f"Its output is the resource {LOG_TEMPLATE}."
    )


async def _list_templates(
    ctx: Request, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    log_page = types.ResourceTemplate(
        name="job_log",
        uri_template=LOG_TEMPLATE,
        description="A page of a job's output, by bytes; _meta contains the offset of the next one.",
        mime_type="text/plain",
    )
    screen = types.ResourceTemplate(
        name="pane_screen",
        uri_template=SCREEN_TEMPLATE,
        description="The current screen of a pane.",
        mime_type="text/plain",
    )
    return types.ListResourceTemplatesResult(resource_templates=[log_page, screen])


def _place(uri: str) -> ResourceAddress:
    try:
        return parse_uri(uri)
    except ValueError as error:
        raise MCPError(code=NOT_FOUND, message=str(error), data={"uri": uri}) from None


def _resource(uri: str, name: str, description: str, mime_type: str) -> types.Resource:
    return types.Resource(uri=uri, name=plain(name), description=plain(description), mime_type=mime_type)


def _notes() -> tuple[types.Resource, ...]:
    return (
        _resource(TODOS, "todos", "The to-do list of this session.", "application/json"),
        _resource(MEMORIES, "memories", "The memories of this session and target.", "application/json"),
    )


def _prompt_of(runbook: Runbook) -> types.Prompt:
    needed = [
        types.PromptArgument(name=name, description=plain(text), required=True)
        for name, text in runbook.arguments.items()
    ]
    return types.Prompt(name=runbook.name, description=plain(runbook.description), arguments=needed)


def _strings(data: Json, name: str) -> list[str]:
    found = data.get(name) if isinstance(data, dict) else None
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def _newest(data: Json) -> list[tuple[str, str]]:
    """Return the ids and commands of the newest jobs, the newest first."""
    found = data.get("jobs") if isinstance(data, dict) else None
    jobs = [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
    return [(str(job["job_id"]), str(job["command"])) for job in reversed(jobs[-LOGS_LISTED:])]
