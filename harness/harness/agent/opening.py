"""An agent from its parts: the executor of its session, its model, its log, and the tools that only agents use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from ..context import ExecutionContext
from ..deprecated_names import renamed_arguments, renamed_names
from ..errors import ConfigError, HarnessError
from ..extras import install_extra
from ..toolkit.assembly import Toolkit, ToolkitSettings
from ..toolkit.contract import Middleware
from ..toolkit.executor import Spawner
from ..toolkit.middleware import LoopDetector
from ..toolkit.permissions.approver import Approver
from ..toolkit.permissions.remembered_answers import TimedApproval
from ..toolkit.session.questions import Questioner
from .models import ModelProfile, OpenModel, open_model
from .settings import AgentSettings
from .storage import ConversationLog, JobNotes, MemoryLog
from .trace import Observer, observed, watching
from .usage import Usage

if TYPE_CHECKING:
    from ..toolkit.executor import Executor
    from ..toolkit.permissions.rules.settings import Mode
    from .agent import Agent
    from .turn import Transcript

__all__ = [
    "AGENTS",
    "HumanHandlers",
    "OpenOne",
    "ResumedConversation",
    "load_agent",
    "open_agent",
    "preload",
    "with_agent_pack",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, for_agents="with_agent_pack", rehearse="preload", People="HumanHandlers", Taken="ResumedConversation"
    )


# -- The tools that only agents are offered.


AGENTS = "agents"
"""The pack with ``task`` and ``tool_search``."""


def with_agent_pack(settings: ToolkitSettings) -> ToolkitSettings:
    """Return the settings with the agents pack, unless the operator has chosen the tools. Pure."""
    tools = settings.tools
    if tools.packs or tools.include or AGENTS in tools.extra_packs:
        return settings
    return replace(settings, tools=replace(tools, extra_packs=(*tools.extra_packs, AGENTS)))


# -- Opening an agent


OpenOne = Callable[[ModelProfile], AbstractAsyncContextManager[OpenModel]]


@dataclass(frozen=True, slots=True)
class HumanHandlers:
    """The handlers of approval requests and questions, and the approvals given in advance."""

    approver: Approver | None = None
    questioner: Questioner | None = None
    timed: TimedApproval | None = None


@dataclass(frozen=True, slots=True)
class ResumedConversation:
    """A conversation to resume: its messages as stored, and its usage."""

    messages: Sequence[str] = ()
    spent: Usage | None = None


def load_agent() -> None:
    """Import the agent's libraries, which takes a second or two; call it in a thread to keep a prompt responsive.

    Raises:
        ConfigError: a library is not installed.
    """
    try:
        from . import agent, turn  # noqa: F401  # the import is the work
    except ImportError as error:
        name = (error.name or "").partition(".")[0]
        raise ConfigError(
            f"the agent needs a library that is not installed: {name}", hint=install_extra("agent")
        ) from None


def preload(agent: Agent) -> None:
    """Prepare what the agent's first request needs; call it in a thread while the agent is idle.

    Reads no keys and sends nothing.
    """
    from .messages.instructions import definitions
    from .models.provider_clients import load_libraries

    definitions(agent.executor.registry)
    load_libraries(agent.profile)


class _OpenModels:
    """The models of one agent, opened on first use and kept open until the agent is closed."""

    def __init__(self, stack: AsyncExitStack, open_one: OpenOne) -> None:
        self._stack = stack
        self._open_one = open_one
        self._open: dict[ModelProfile, OpenModel] = {}
        self._one = anyio.Lock()

    async def open(self, profile: ModelProfile) -> OpenModel:
        async with self._one:
            if profile not in self._open:
                self._open[profile] = await self._stack.enter_async_context(self._open_one(profile))
            return self._open[profile]


@renamed_arguments(people="handlers", taken="resumed")
@asynccontextmanager
async def open_agent(
    execution: ExecutionContext,
    toolkit: Toolkit,
    profile: ModelProfile,
    *,
    settings: AgentSettings | None = None,
    handlers: HumanHandlers | None = None,
    log: ConversationLog | None = None,
    session_id: str = "",
    resumed: ResumedConversation | None = None,
    tool_profile: str | None = None,
    cwd: str | None = None,
    spawner: Spawner | None = None,
    middleware: tuple[Middleware, ...] = (),
    open_one: OpenOne = open_model,
    observers: Sequence[Observer] = (),
) -> AsyncIterator[Agent]:
    """Open an agent on a target; its turns run in :meth:`Agent.turn` or :meth:`Agent.serve`.

    Args:
        execution: the execution context of the target.
        toolkit: the tools, permissions and audit log.
        profile: the model to start with.
        settings: the ``[agent]`` settings; by default :class:`AgentSettings`.
        handlers: the operator's handlers; without them, calls that need approval are denied.
        log: where the conversation is stored; by default in memory.
        session_id: the id of the conversation to resume; empty starts a new one.
        resumed: the stored conversation to resume.
        tool_profile: the tool profile: names and formats of the tools.
        cwd: the directory in which files and commands start, as for :meth:`Toolkit.executor`.
        spawner: runs sub-agents; a :class:`.sub_agents.Subagents` is given the agent as their parent.
        middleware: more middleware around tool calls, inside the agent's own.
        open_one: opens the model of a profile.
        observers: receive events, and requests to and responses of models: a trace, telemetry.

    Yields:
        The open agent.

    Raises:
        ConfigError: a setting is wrong.
        HarnessError: the target is not available, or a stored message is damaged.
    """
    await to_thread.run_sync(load_agent)
    from .agent import Agent, AgentCompactor
    from .sub_agents import Parent, set_parent
    from .turn import Gate, GatedApprover

    settings, handlers, log = settings or AgentSettings(), handlers or HumanHandlers(), log or MemoryLog()
    resumed = resumed or ResumedConversation()
    gate, compactor = Gate(), AgentCompactor()
    async with AsyncExitStack() as stack:
        models = _OpenModels(stack, observed(open_one, observers))
        executor = await stack.enter_async_context(
            toolkit.executor(
                execution,
                approver=GatedApprover(handlers.approver, gate) if handlers.approver is not None else None,
                questioner=handlers.questioner,
                timed=handlers.timed,
                profile=tool_profile,
                session_id=session_id,
                agent_id="agent",
                model=profile.model,
                cwd=cwd,
                spawner=spawner,
                compactor=compactor,
                middleware=(gate, LoopDetector(), *middleware),
            )
        )
        mode = toolkit.settings.permissions.mode
        agent = compactor.agent = Agent(
            executor,
            _transcript(log, toolkit, resumed),
            log,
            gate,
            settings=settings,
            instructions=_instructions(executor, mode, settings),
            profile=profile,
            open_model=models.open,
            spent=resumed.spent,
        )
        of_agent = (lambda: agent.profile, models.open, agent.charge, agent.over)
        set_parent(spawner, Parent(*of_agent, gate, log, lambda: agent.settings, mode))
        with _heard(agent, log, observers):
            yield agent


def _transcript(log: ConversationLog, toolkit: Toolkit, resumed: ResumedConversation) -> Transcript:
    from .messages.history import loaded
    from .turn import Transcript

    try:
        messages = [loaded(text) for text in resumed.messages]
    except ValueError as error:
        what = "a message of the stored conversation is damaged and cannot be sent to a model"
        raise HarnessError(
            what, hint="harness resume ID --export FILE saves what is left, --delete removes it"
        ) from error
    return Transcript(log, toolkit.redactor, messages)


def _instructions(executor: Executor, mode: Mode, settings: AgentSettings) -> str:
    from .messages.instructions import instructions

    return instructions(executor.execution, executor.registry, mode, settings.instructions)


@contextmanager
def _heard(agent: Agent, log: ConversationLog, observers: Sequence[Observer]) -> Iterator[None]:
    """Send events to the agent, its log and its observers inside the block, then close the agent."""
    events = agent.events
    with watching(events, observers), events.listening(JobNotes(log).heard), events.listening(agent.heard):
        try:
            yield
        finally:
            agent.close()
