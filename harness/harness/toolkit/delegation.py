"""Sub-agents that tools start: their types, including those declared in files, and how they run."""

from __future__ import annotations

import os
import re
import uuid
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import anyio

from ..context import ExecutionContext
from ..errors import HarnessError, ToolError
from ..settings_schema import suggest
from .contract import A, Services, Tool
from .events import Event, EventBus, JobExited, JobStarted, SubagentCompleted, SubagentStarted
from .executor import Executor
from .hosts.session import FleetSession
from .interfaces import AgentType, ReadVersions, SpawnRequest, SpawnResult
from .middleware import CostBudget
from .operator_files import (
    FileRefusedError,
    FrontMatter,
    FrontMatterError,
    OperatorDirectory,
    operator_directories,
    read_operator_file,
    split_front_matter,
)
from .registry import Registry, without_compact
from .session.file_versions import ReadTracker, SessionReads
from .tool_profiles import AdaptedTool
from .values import Advice, Json, JsonObject, ToolResult

if TYPE_CHECKING:
    from .contract import ToolContext

__all__ = [
    "AgentType",
    "AgentTypeFiles",
    "AgentTypeList",
    "SpawnRequest",
    "SpawnResult",
    "SpawnTool",
    "agent_directories",
    "run_agent",
    "show_types",
    "tools_of",
    "type_key",
    "without_spawn_tools",
]


# -- Sub-agents: requests, limits, and the cleanup of what they leave running.
# A :class:`~harness.toolkit.executor.Spawner` provides the model. It receives an executor that already applies all
# limits of the sub-agent: its tools, depth, session, call budget, and its pane on a terminal.


SPAWN = "task"
NOT_FOR_SUBAGENTS = frozenset({"todo_write"})
"""The to-do list is the user's: it shows what the first agent does."""
OWN = re.compile(r"[0-9a-f]{12}")
"""The random end of an agent's session id, which no model chooses."""
END_LIMIT = 15.0
"""Maximum seconds for ending the jobs and the pane of a sub-agent."""

R = TypeVar("R", bound=Registry)


class SpawnTool(Tool[A]):
    """A tool that starts agents and whose description lists their types."""

    @abstractmethod
    def with_types(self, types: Sequence[AgentType]) -> SpawnTool[A]:
        """Return the same tool with additional types."""


def show_types(registry: R, types: Sequence[AgentType]) -> R:
    """Return the tools, with additional agent types in the description of the tool that starts agents."""
    chosen = registry.filter(lambda _: True)
    for tool in registry.list() if types else ():
        own = tool.own
        if isinstance(own, SpawnTool):
            shown = own.with_types(types)
            faced = tool.with_own(shown) if isinstance(tool, AdaptedTool) else shown
            chosen.register(faced, registry.source_of(tool.name) or "", replace=True)
    return chosen


def without_spawn_tools(registry: R) -> R:
    """Return the tools without those that start agents, which would not work here."""
    return registry.filter(lambda tool: tool.own.name != SPAWN)


async def run_agent(request: SpawnRequest, ctx: ToolContext) -> ToolResult:
    """Run a sub-agent and return its final message; a failure names its session, so that it can be resumed.

    Raises:
        ToolError: no model for sub-agents is configured.
    """
    parent = ctx.executor
    if not isinstance(parent, Executor) or parent.spawner is None:
        raise ToolError("sub-agents are unavailable: no model is configured", code="execution_failed")
    if ctx.depth >= parent.max_agent_depth:
        return ToolResult.failure(
            "depth_limit", f"agents at depth {ctx.depth} cannot start agents: do the task yourself"
        )
    if request.resume and not _is_own(request.resume, ctx.session_id):
        return ToolResult.failure("unknown_session", f"{request.resume!r} is not an agent that was started here")
    if request.backend and parent.hosts is not None:
        text = "agents of a session on many hosts work on its hosts: omit backend, and name the hosts in the prompt"
        return ToolResult.failure("invalid_args", text)
    try:
        registry = tools_of(request, parent.registry, may_spawn=ctx.depth + 1 < parent.max_agent_depth)
    except ValueError as error:
        return ToolResult.failure("unknown_tool", str(error))
    session = request.resume or f"{ctx.session_id}.{uuid.uuid4().hex[:12]}"
    return await _watched(replace(request, session_id=session), ctx, parent, registry)


def _is_own(session: str, parent: str) -> bool:
    """Return whether the session id belongs to an agent that this session could have started. Pure."""
    return session.startswith(f"{parent}.") and OWN.fullmatch(session.removeprefix(f"{parent}.")) is not None


def tools_of(request: SpawnRequest, offered: R, *, may_spawn: bool) -> R:
    """Return the tools of a sub-agent: those of its parent that its type and the request allow. Pure.

    Args:
        request: the type and the requested tools.
        offered: the parent's tools.
        may_spawn: its depth is below the limit, so it may start agents itself.

    Raises:
        ValueError: a name is unknown or not available at this depth, or no tool is left.
    """
    below = offered if may_spawn else without_spawn_tools(offered)
    left = without_compact(below.filter(lambda tool: tool.own.name not in NOT_FOR_SUBAGENTS))
    for names, usual in ((request.kind.tools, request.kind.usual), (request.tools, frozenset[str]())):
        if names is not None:
            wanted = _own_names(names, usual, left, request.kind.declared_at if names is request.kind.tools else "")
            left = left.filter(lambda tool, wanted=wanted: tool.own.name in wanted)  # type: ignore[misc]  # bound now
    if not left.list():
        raise ValueError(f"no tools are left for an agent of type {request.kind.name}")
    return left


def _own_names(names: Iterable[str], usual: frozenset[str], registry: Registry, origin: str) -> frozenset[str]:
    found = set()
    for name in names:
        tool = registry.get(name)
        if tool is not None:
            found.add(tool.own.name)
        elif name not in usual:
            where = f"{origin}: " if origin else ""
            raise ValueError(f"{where}{registry.unknown(name).text}; a sub-agent only has tools of its parent")
    return frozenset(found)


async def _watched(request: SpawnRequest, ctx: ToolContext, parent: Executor, registry: Registry) -> ToolResult:
    """Run a sub-agent between its start and end events."""
    prompt = ctx.redactor.text(request.prompt)
    agent = request.agent_id
    ctx.publish(SubagentStarted(agent_id=agent, prompt=prompt, kind=request.kind.name, title=request.description))
    started = anyio.current_time()
    left: list[str] = []
    result = ToolResult.failure("cancelled", "cancelled")
    try:
        result = await _ran(request, ctx, parent, registry, left)
    finally:
        ctx.publish(SubagentCompleted(agent_id=agent, is_error=result.is_error))
        await _tell(parent, request, is_error=result.is_error)
    return _reported(result, request, anyio.current_time() - started, left)


async def _ran(
    request: SpawnRequest, ctx: ToolContext, parent: Executor, registry: Registry, left: list[str]
) -> ToolResult:
    assert parent.spawner is not None
    try:
        with anyio.move_on_after(request.timeout):
            async with _child(request, ctx, parent, registry, left) as child:
                said = await parent.spawner.spawn(request, child)
                return _said(said)
    except anyio.get_cancelled_exc_class():
        raise
    except Exception as error:  # whatever failed, the agent has ended, and the result names its session
        what = error.message if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
        return ToolResult.failure("agent_failed", f"the agent failed: {what}")
    return ToolResult.failure(
        "timeout", f"the agent timed out after {request.timeout:g} s; it may have changed something"
    )


def _said(said: SpawnResult) -> ToolResult:
    text = said.text.strip() or "(no final message)"
    usage: JsonObject = {"usage": dict(said.usage)} if said.usage else {}
    if said.is_error:
        return ToolResult.failure("agent_failed", text, metadata=usage)
    return ToolResult.of(text, metadata=usage)


def _reported(result: ToolResult, request: SpawnRequest, seconds: float, left: list[str]) -> ToolResult:
    """Return the result with the facts about the run. Pure."""
    ended: list[Json] = list(left)
    facts: dict[str, Json] = {
        "session_id": request.session_id,
        "agent_id": request.agent_id,
        "subagent_type": request.kind.name,
        "seconds": round(seconds, 3),
        "ended_jobs": ended,
        **result.metadata,
    }
    notes = [f"[jobs that it had left running were killed: {', '.join(left)}]"] if left else []
    again = Advice(f'; resume="{request.session_id}" continues it', ("resume",))
    if result.is_error:
        notes.append(f"[its session is {request.session_id}{again.text}]")
    text = "\n".join([result.text, *notes])
    if result.is_error:
        return ToolResult.failure(result.error_code, text, data=facts, metadata=facts, advice=(again,))
    return ToolResult.of(text, data=facts, metadata=facts)


async def _tell(parent: Executor, request: SpawnRequest, *, is_error: bool) -> None:
    """Notify the operator's hooks of the end of a sub-agent."""
    from .hooks.dispatch import tell_hooks

    told = replace(parent, agent_id=request.agent_id)
    await tell_hooks(told, "subagent_stop", END_LIMIT, subagent_type=request.kind.name, is_error=is_error)


# -- The executor of a sub-agent.


@asynccontextmanager
async def _child(
    request: SpawnRequest, ctx: ToolContext, parent: Executor, registry: Registry, left: list[str]
) -> AsyncIterator[Executor]:
    """Open the executor of a sub-agent; jobs that it leaves running are killed and added to ``left``."""
    events = EventBus(request.session_id)
    async with _place(request, parent) as execution:
        if request.backend:
            registry = await registry.available(execution)
        jobs = _Jobs(parent)
        with events.listening(jobs.heard), _forwarded(events, ctx):
            try:
                yield replace(
                    parent,
                    execution=execution,
                    registry=registry,
                    services=_services(request, parent),
                    events=events,
                    reads=_reads(parent.reads, request.session_id, execution),
                    hosts=_hosts(parent, request.session_id),
                    session_id=request.session_id,
                    agent_id=request.agent_id,
                    depth=ctx.depth + 1,
                    model=request.model or parent.model,
                    cwd=parent.cwd if execution.identity == parent.execution.identity else None,
                    handoff=None,  # its model waits as long as the arguments say
                    compactor=None,
                    _running={},
                )
            finally:
                left += await jobs.end(execution, events)


def _services(request: SpawnRequest, parent: Executor) -> Services:
    """Return the parent's services, with the same policy and audit log, and a call budget."""
    budget = CostBudget(request.calls, lambda call, ctx: 1, unit="calls")
    return replace(parent.services, middleware=(budget, *parent.services.middleware))


def _reads(reads: ReadVersions, session_id: str, execution: ExecutionContext) -> ReadVersions:
    """Return the read versions of the sub-agent: empty, or those from before it was resumed."""
    tracker = reads.tracker if isinstance(reads, SessionReads) else ReadTracker()
    return tracker.of(session_id, execution)


def _hosts(parent: Executor, session_id: str) -> FleetSession | None:
    """Return the hosts of a session on a fleet, with the read versions of the sub-agent."""
    if parent.hosts is None:
        return None
    return parent.hosts.with_reads(lambda execution: _reads(parent.reads, session_id, execution))


@contextmanager
def _forwarded(events: EventBus, ctx: ToolContext) -> Iterator[None]:
    """Publish all events of the sub-agent on the parent's bus, with the call that started it."""

    def forward(event: Event) -> None:
        ctx.events.publish(replace(event, parent_call=event.parent_call or ctx.call_id))

    with events.listening(forward):
        yield


class _Jobs:
    """The jobs that a sub-agent has left running."""

    def __init__(self, parent: Executor) -> None:
        self._hosts = parent.hosts
        self._running: dict[tuple[str, str], None] = {}

    def heard(self, event: Event) -> None:
        """Track jobs that the agent's own calls start; its sub-agents end their own jobs."""
        if event.parent_call:
            return
        if isinstance(event, JobStarted):
            self._running[event.host, event.job_id] = None
        elif isinstance(event, JobExited):
            self._running.pop((event.host, event.job_id), None)

    async def end(self, execution: ExecutionContext, events: EventBus) -> list[str]:
        """Kill the jobs and return those that were still running."""
        ended: list[str] = []
        with anyio.CancelScope(shield=True), anyio.move_on_after(END_LIMIT):
            async with anyio.create_task_group() as tasks:
                for host, job_id in tuple(self._running):
                    tasks.start_soon(self._end, host, job_id, execution, events, ended)
        return ended

    async def _end(
        self, host: str, job_id: str, execution: ExecutionContext, events: EventBus, ended: list[str]
    ) -> None:
        with suppress(HarnessError):
            if host and self._hosts is not None:
                execution = await self._hosts.connected(host)
            if (await execution.job(job_id)).status.value in ("running", "unknown"):
                exit_code = (await execution.kill(job_id)).exit_code
                ended.append(f"{job_id} on {host}" if host else job_id)
                events.publish(JobExited(job_id=job_id, exit_code=exit_code, host=host))


@asynccontextmanager
async def _place(request: SpawnRequest, parent: Executor) -> AsyncIterator[ExecutionContext]:
    """Open where the agent works: another target, its own pane or, without a terminal, the parent's context."""
    assert parent.spawner is not None
    async with AsyncExitStack() as stack:
        execution = parent.execution
        if request.backend:
            execution = await stack.enter_async_context(parent.spawner.open_target(request.backend))
        if execution.has_terminal:
            execution = await stack.enter_async_context(_pane(execution))
        yield execution


@asynccontextmanager
async def _pane(execution: ExecutionContext) -> AsyncIterator[ExecutionContext]:
    name = f"agent-{uuid.uuid4().hex[:8]}"
    try:
        await execution.create_pane(name)  # may have created it even if cancelled
        yield execution.in_pane(name)
    finally:
        # a pane that is already closed, or whose connection is lost, needs no cleanup
        with anyio.CancelScope(shield=True), anyio.move_on_after(END_LIMIT), suppress(HarnessError):
            await execution.kill_pane(name, force=True)


# -- Types of sub-agents declared in files: ``NAME.md`` in ``agents/`` next to the user's settings.
#
# A file contains a YAML front matter, followed by the instructions of the agent::
#
#     ---
#     description: reads logs and reports what went wrong
#     tools: read_file, grep, run_shell
#     model: fast
#     ---
#     You read logs. Report the first error, and what came before it.
#
# ``description`` is required. Without ``tools`` the type has all tools of its parent agent; it never has more.
# ``model`` is the name of a ``[models.NAME]`` profile. Any other key is an error, because it may be meant as a
# restriction. Files in ``.harness/agents/`` of the current directory are used if that directory is trusted.


KEYS = ("name", "description", "tools", "model")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MAX_FILE_BYTES = 40 << 10
MAX_FILES = 100
MAX_MODEL_CHARS = 200
NOT_TYPES = frozenset({"README.md"})


@dataclass(frozen=True, slots=True)
class AgentTypeList:
    """The types of all files, and one sentence with file and line for each file that cannot be used."""

    types: tuple[AgentType, ...] = ()
    problems: tuple[str, ...] = ()


def agent_directories() -> tuple[OperatorDirectory, ...]:
    """Return the user's and the project's directory. The first one with a type of a name takes precedence.

    Raises:
        ConfigError: the settings cannot be read, so it is unknown which directories are trusted.
    """
    return operator_directories("agents")


def type_key(name: str) -> str:
    """Return the name without case, hyphens and underscores, which are ignored in comparisons. Pure."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


class AgentTypeFiles:
    """The declaration files on this machine, read again on each use.

    Args:
        directories: returns the directories.
    """

    def __init__(self, directories: Callable[[], Sequence[OperatorDirectory]] = agent_directories) -> None:
        self._directories = directories

    def list(self) -> AgentTypeList:
        """Read all types; blocks. An invalid file does not affect the others."""
        found: dict[str, AgentType] = {}
        problems: list[str] = []
        try:
            directories = tuple(self._directories())
        except (HarnessError, OSError, RuntimeError) as error:  # no home directory, or a deleted working directory
            return AgentTypeList(problems=(f"the sub-agent types are unknown: {error}",))
        for path in _files(directories, problems):
            try:
                kind = _read(path)
            except FrontMatterError as error:
                where = f"{path}:{error.line}" if error.line else str(path)
                problems.append(f"{where}: {error}")
                continue
            earlier = found.setdefault(type_key(kind.name), kind)
            if earlier is not kind:
                problems.append(f"{path}:1: the type {earlier.name} is already declared in {earlier.declared_at}")
        return AgentTypeList(tuple(found[key] for key in sorted(found)), tuple(problems))


def _files(directories: Sequence[OperatorDirectory], problems: list[str]) -> Iterator[Path]:
    for root in directories:
        if not root.trusted:
            problems.append(f"{root.directory}: not read, because trusted_dirs in your settings does not cover it")
            continue
        try:
            names = sorted(
                name for name in os.listdir(root.directory) if name.endswith(".md") and name not in NOT_TYPES
            )
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"{root.directory}: {error.strerror or error}")
            continue
        if len(names) > MAX_FILES:
            problems.append(f"{root.directory}: only the first {MAX_FILES} of {len(names)} types are used")
        yield from (root.directory / name for name in names[:MAX_FILES])


def _read(path: Path) -> AgentType:
    """Read one type.

    Raises:
        FrontMatterError: the file cannot be used.
    """
    if not NAME.fullmatch(path.stem):
        raise FrontMatterError("its name must consist of lower-case letters, digits, - and _, at most 64")
    try:
        front = split_front_matter(read_operator_file(path, MAX_FILE_BYTES), path.name)
    except FileRefusedError as error:
        raise FrontMatterError(error.message) from error
    _check_keys(front)
    if "name" in front.values and front.text("name") != path.stem:
        raise FrontMatterError(
            f"its name {front.text('name')!r} differs from the file's name", line=front.line_of("name")
        )
    return AgentType(
        path.stem,
        front.description(),
        _tools(front),
        front.body,
        model=_model(front),
        declared_at=f"{path}:{front.line_of('tools')}",
    )


def _check_keys(front: FrontMatter) -> None:
    for key in front.values:
        if key not in KEYS:
            hint = suggest(str(key), KEYS) or f"there are: {', '.join(KEYS)}"
            raise FrontMatterError(f"unknown key {str(key)!r}; {hint}", line=front.line_of(key))


def _tools(front: FrontMatter) -> tuple[str, ...] | None:
    """Return the names of the tools, given as a list or separated by commas; None if the key is missing."""
    if "tools" not in front.values:
        return None
    value = front.values["tools"]
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise FrontMatterError(
            "tools is neither a list of names nor a comma-separated string", line=front.line_of("tools")
        )
    names = tuple(name.strip() for name in cast("list[str]", listed) if name.strip())
    if not names:
        raise FrontMatterError("tools is empty; remove it for all tools", line=front.line_of("tools"))
    return names


def _model(front: FrontMatter) -> str:
    if "model" not in front.values:
        return ""
    name = front.text("model")
    if len(name) > MAX_MODEL_CHARS:
        raise FrontMatterError(f"model is longer than {MAX_MODEL_CHARS} characters", line=front.line_of("model"))
    return name
