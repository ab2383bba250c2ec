"""The agent that an editor starts: its requests, its sessions, and the target, which is opened for the first one."""

from __future__ import annotations

import functools
import importlib.util
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import acp
import anyio
from acp.exceptions import RequestError
from acp.schema import (
    AgentCapabilities,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerAcp,
    McpServerHttp,
    McpServerSse,
    McpServerStdio,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
)

from ..agent.messages.marked_text import marked
from ..errors import HarnessError
from ..mcp.client.channel import plain
from ..system.background_tasks import BackgroundTasks, open_background_tasks, single_error
from ..target import FLEET_SCHEME
from .session import EditorApprover, EditorSession
from .tool_calls import Place, clean
from .transport import StdioTransport

if TYPE_CHECKING:
    from acp.interfaces import Client

    from ..agent.agent import Agent

__all__ = ["EditorServer", "OpenAgents", "OpenTarget", "SessionStart", "prompt_text", "serve_editor"]

MAX_SESSIONS = 32
MAX_NOTICES = 64
"""Maximum notices for a turn; of more, the last ones are kept."""
MAX_TURNS = 16
"""Maximum turns of a session that wait."""
MAX_PROMPT_CHARS = 400_000
"""Maximum characters of a prompt; few models accept more."""
INVALID_REQUEST, INVALID_PARAMS, FAILED = -32600, -32602, -32603
log = logging.getLogger("harness.acp")

P = ParamSpec("P")
R = TypeVar("R")


EditorServer = McpServerStdio | McpServerHttp | McpServerSse | McpServerAcp
"""An MCP server that an editor names."""


@dataclass(frozen=True, slots=True)
class SessionStart:
    """What a session is opened with."""

    directory: str
    """The directory of the editor's project, on the editor's machine."""
    approver: EditorApprover
    servers: tuple[EditorServer, ...] = ()
    """The MCP servers that the editor wants its agent to use."""
    conversation: str = ""
    """The ID of the stored conversation to resume; empty for a new one."""
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_NOTICES))
    """What the editor's user is told with the next turn; the opener adds to it."""


OpenAgents = Callable[[SessionStart], AbstractAsyncContextManager["Agent"]]
"""Opens the agent of a session."""
OpenTarget = Callable[[], AbstractAsyncContextManager[OpenAgents]]
"""Opens the target and what all sessions share."""


def reported(method: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Let a method answer with an error of the protocol when it fails."""

    @functools.wraps(method)
    async def called(*args: P.args, **values: P.kwargs) -> R:
        try:
            return await method(*args, **values)
        except HarnessError as error:
            raise RequestError(FAILED, clean(str(error))) from None

    return called


class EditorAgent:
    """Answers the requests of an editor; the SDK calls its methods.

    Args:
        open_target: Opens the target.
        tasks: Run what is used until the end.
        version: The version of harness.
    """

    def __init__(self, open_target: OpenTarget, tasks: AgentTasks, version: str) -> None:
        self._open_target = open_target
        self._tasks = tasks
        self._version = version
        self._sessions: dict[str, EditorSession] = {}
        self._opening = 0
        self._agents: OpenAgents | None = None
        self._one = anyio.Lock()
        self._name = ""

    def on_connect(self, conn: Client) -> None:
        """Remember the editor, to which requests and updates are sent."""
        self._client = conn

    @reported
    async def initialize(self, protocol_version: int, client_info: Implementation | None = None, **_: Any) -> Any:
        """Negotiate the version, and report what the agent can do."""
        name = plain(client_info.name)[:64].strip() if client_info is not None else ""
        self._name = name or "the editor"
        return InitializeResponse(
            protocol_version=acp.PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(embedded_context=True),
                mcp_capabilities=McpCapabilities(http=importlib.util.find_spec("mcp") is not None),
            ),
            auth_methods=[],
            agent_info=Implementation(name="harness", title="harness", version=self._version),
        )

    @reported
    async def new_session(self, cwd: str, mcp_servers: Sequence[object] | None = None, **_: Any) -> NewSessionResponse:
        """Open a session; its ID is that of its conversation."""
        session = await self._opened_session(cwd, mcp_servers)
        return NewSessionResponse(session_id=session.agent.session_id)

    @reported
    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[object] | None = None, **_: Any
    ) -> LoadSessionResponse:
        """Resume a stored conversation, and show what was said in it."""
        if not session_id:
            raise RequestError(INVALID_PARAMS, "sessionId must not be empty")
        if session_id in self._sessions:
            raise RequestError(INVALID_PARAMS, "the session is open already")
        session = await self._opened_session(cwd, mcp_servers, session_id)
        await session.show_past()
        return LoadSessionResponse()

    async def _opened_session(
        self, cwd: str, mcp_servers: Sequence[object] | None, conversation: str = ""
    ) -> EditorSession:
        if not self._name:
            raise RequestError(INVALID_REQUEST, "initialize must come first")
        if not cwd.startswith("/") or "\0" in cwd:
            raise RequestError(INVALID_PARAMS, "cwd must be an absolute path")
        if len(self._sessions) + self._opening >= MAX_SESSIONS:
            raise RequestError(INVALID_REQUEST, f"{MAX_SESSIONS} sessions are open already")
        servers = tuple(server for server in mcp_servers or () if isinstance(server, EditorServer))
        start = SessionStart(cwd, EditorApprover(self._name), servers, conversation)
        self._opening += 1
        try:
            agents = await self._opened_target()
            session: EditorSession = await started(self._tasks.sessions, self._serve_session, agents, start)
        finally:
            self._opening -= 1
        return session

    @reported
    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> PromptResponse:
        """Run a turn in a session."""
        session = self._session(session_id)
        if session.turns >= MAX_TURNS:
            raise RequestError(INVALID_REQUEST, f"{MAX_TURNS} prompts of this session are waiting already")
        return await self._run(session.accept(prompt_text(prompt)))

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Cancel the current turn of a session."""
        if (session := self._sessions.get(session_id)) is not None:
            session.cancel()

    def _session(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError(INVALID_PARAMS, "there is no such session")
        return session

    async def _run(self, work: Callable[[], Awaitable[R]]) -> R:
        """Run a turn in a task of its own, and return its result: the SDK cancels its own tasks without a cleanup."""
        ended = anyio.Event()
        results: list[R] = []
        errors: list[Exception] = []

        async def run() -> None:
            try:
                results.append(await work())
            except Exception as error:  # raised below, for the reply
                errors.append(error)
            finally:
                ended.set()

        self._tasks.turns.start_soon(run)
        await ended.wait()
        if errors:
            raise errors[0]
        if not results:
            raise RequestError(FAILED, "the agent ends")
        return results[0]

    async def _opened_target(self) -> OpenAgents:
        async with self._one:
            if self._agents is None:
                self._agents = await started(self._tasks.target, self._hold_target)
            return self._agents

    async def _hold_target(self, start: Start) -> None:
        async with self._open_target() as agents:
            start(agents)
            await anyio.sleep_forever()

    async def _serve_session(self, start: Start, agents: OpenAgents, wanted: SessionStart) -> None:
        async with agents(wanted) as agent, open_background_tasks() as tasks:
            session = wanted.approver.session = EditorSession(self._client, agent, _place_of(agent), wanted.notices)
            tasks.start_soon(session.send_updates)
            self._sessions[agent.session_id] = session
            try:
                start(session)
                await anyio.sleep_forever()
            finally:
                del self._sessions[agent.session_id]


# -- Tasks: turns end first, then sessions, then the target that they use.


@dataclass(frozen=True, slots=True)
class AgentTasks:
    """The tasks of an agent."""

    target: BackgroundTasks
    sessions: BackgroundTasks
    turns: BackgroundTasks


Start = Callable[[Any], None]
"""Reports the start of a task, with a value for its starter."""


async def started(tasks: BackgroundTasks, serve: Callable[..., Awaitable[None]], *args: Any) -> Any:
    """Start a task, and return the value that it reports; its first argument is a :data:`Start`.

    Raises:
        Exception: It failed before.
    """
    reported_start, values, errors = anyio.Event(), list[Any](), list[Exception]()

    def start(value: Any) -> None:
        values.append(value)
        reported_start.set()

    async def run() -> None:
        try:
            await serve(start, *args)
        except Exception as error:
            errors.append(single_error(error))
            if values:  # it had started, so that no caller waits for it
                log.warning("a session has ended: %s", errors[0])
        finally:
            reported_start.set()

    tasks.start_soon(run)
    await reported_start.wait()
    if values:
        return values[0]
    raise errors[0] if errors else RequestError(FAILED, "the agent ends")


def _place_of(agent: Agent) -> Place:
    execution = agent.execution
    hops = execution.target.hops
    is_local = len(hops) == 1 and hops[0].scheme == "local"
    home = "" if hops[0].scheme == FLEET_SCHEME else execution.capabilities.home
    return Place(agent.executor.cwd or home, home, is_local)


def prompt_text(blocks: Sequence[Any]) -> str:
    """Return a prompt of the editor as text; what it embeds is marked as data. Pure.

    Raises:
        RequestError: It is empty or too long, or has an image or audio.
    """
    parts = []
    for block in blocks:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "resource_link":
            parts.append(f"[{block.name}]({block.uri})")
        elif block.type == "resource" and hasattr(block.resource, "text"):
            parts.append(f"\n{block.resource.uri}:\n{marked(block.resource.text)}\n")
        else:
            raise RequestError(INVALID_PARAMS, f"prompts with {block.type} are not supported")
    text = "".join(parts).strip()
    if not text:
        raise RequestError(INVALID_PARAMS, "the prompt is empty")
    if len(text) > MAX_PROMPT_CHARS:
        raise RequestError(INVALID_PARAMS, f"the prompt has more than {MAX_PROMPT_CHARS} characters")
    return text


async def serve_editor(transport: StdioTransport, open_target: OpenTarget, version: str) -> None:
    """Serve an editor until it disconnects; running turns are then cancelled, and their commands interrupted."""
    async with (
        open_background_tasks() as target,
        open_background_tasks() as sessions,
        open_background_tasks() as turns,
    ):
        agent: Any = EditorAgent(open_target, AgentTasks(target, sessions, turns), version)
        await acp.run_agent(agent, transport)
