"""The services of the prompt on an open target, opened while its surface already accepts input."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from ...context import ExecutionContext
from ...errors import HarnessError
from ...system.background_tasks import open_background_tasks
from ...toolkit.events import Event, JobStarted
from ...toolkit.permissions.remembered_answers import TimedApproval
from ...toolkit.values import ToolCall
from ...wording import counted
from ..conversation import ConversationStart, OpenConversation
from ..foreground_program import run_in_terminal
from ..runtime import CliSession, logs_shown
from .commands.base import HostSession, PromptActions
from .commands.table import completions
from .early_ui import PromptUI
from .editor import Suggestion
from .loop import Loop, PromptServices
from .markdown import LIBRARIES
from .surface import THEMES, Surface, one_line, theme_for
from .view import EventView

if TYPE_CHECKING:
    from ...agent.models import ModelProfile, ModelTable
    from ...agent.settings import AgentSettings
    from ...agent.trace import Observer
    from ...mcp.client.sources import McpSources
    from ...notifications.notifier import Notifier
    from ...settings import CommandLineChoices
    from ...toolkit.assembly import Toolkit
    from ...toolkit.events import EventBus
    from ...toolkit.redaction.redactor import Redactor
    from ...toolkit.registry import Registry
    from ...toolkit.values import JsonObject

__all__ = [
    "PromptActionsImpl",
    "PromptSession",
    "server_tools",
]


# -- Actions for slash commands: change the conversation, model or theme, lend the terminal, leave.


class PromptActionsImpl(PromptActions):
    """The prompt's actions for slash commands.

    Args:
        loop: The prompt's loop.
        surface: The prompt's surface.
        begun: Returns the parameters of a conversation with a model; None is the configured model.
        opened: Called with each conversation that was opened.
        color: Whether themes may use colors.
    """

    def __init__(
        self,
        loop: Loop,
        surface: Surface,
        begun: Callable[[ModelProfile | None], ConversationStart],
        opened: Callable[[OpenConversation], None],
        *,
        color: bool,
    ) -> None:
        self._loop = loop
        self._surface = surface
        self._begun = begun
        self._opened = opened
        self._color = color
        self._theme = surface.theme.name

    def leave(self) -> None:
        """See :class:`PromptActions`."""
        self._loop.leave()

    async def open_session(self, session_id: str | None) -> None:
        """See :class:`PromptActions`."""
        agent = self._loop.agent
        begun = self._begun(agent.profile if agent is not None else None)
        await self._open(replace(begun, session_id=session_id or "", here=False))

    async def use_model(self, profile: ModelProfile) -> None:
        """See :class:`PromptActions`."""
        await self._open(self._begun(profile))

    async def _open(self, begun: ConversationStart) -> None:
        self._opened(await self._loop.supplies.conversations.open(begun))
        self._loop.set_model_ready()

    async def attach(self, sessions: Sequence[HostSession]) -> None:
        """See :class:`PromptActions`."""
        failures: list[HarnessError] = []

        async def work() -> None:
            try:
                await (run_in_terminal(sessions[0].command) if len(sessions) == 1 else _show_clients(sessions))
            except HarnessError as error:
                failures.append(error)

        await self._surface.lend(work)
        if failures:
            raise failures[0]

    @property
    def themes(self) -> tuple[str, ...]:
        """See :class:`PromptActions`."""
        return tuple(THEMES)

    @property
    def theme(self) -> str:
        """See :class:`PromptActions`."""
        return self._theme

    def set_theme(self, name: str) -> None:
        """See :class:`PromptActions`."""
        self._theme = name
        self._surface.restyle(theme_for(name, color=self._color))


async def _show_clients(sessions: Sequence[HostSession]) -> None:
    """Show clients of several hosts side by side until the operator leaves them.

    Raises:
        HarnessError: tmux is missing on this machine, or cannot use the terminal.
    """
    from ..tiled_windows import check_attached, client_pane, open_tiled

    panes = [client_pane(one_line(session.host), session.command) for session in sessions]
    with ExitStack() as stack:
        attach = await to_thread.run_sync(stack.enter_context, open_tiled(panes, "harness"))
        if attach:
            check_attached(await run_in_terminal(attach))


# -- Tools of MCP servers, for the agent at the prompt.


MARGIN = 5.0


@asynccontextmanager
async def server_tools(
    choices: CommandLineChoices, registry: Registry, say: Callable[[str], None]
) -> AsyncIterator[McpSources | None]:
    """Start the configured MCP servers and register the tools that they list in time.

    Args:
        choices: The command line's choices.
        registry: The registry that gets the tools.
        say: Shows a notice.

    Yields:
        The open servers; None if none is configured.

    Raises:
        ConfigError: The settings are invalid.
    """
    from ...mcp.client.configuration import load_servers

    found = await to_thread.run_sync(load_servers, choices)
    for text in found.refused:
        say(text)
    configs = tuple(server for server in found.servers if not server.disabled)
    if not configs:
        yield None
        return
    from ...mcp.client.sources import open_sources

    for name in ("client", "mcp.client", "mcp.shared"):  # they log tracebacks for errors of servers
        logging.getLogger(name).setLevel(logging.CRITICAL)
    async with open_sources(registry, configs, notice=say) as sources:
        await sources.wait_listed(max(server.start_timeout + server.timeout for server in configs) + MARGIN)
        yield sources


# -- The prompt on an open target.


NO_MODEL = "no model is configured; !COMMAND and /help still work. To configure one: "
CLOSING = 10.0
"""Maximum number of seconds for closing the conversation."""


class PromptSession:
    """One prompt on one target.

    Args:
        leaves: Called when the operator leaves, before anything is closed.
        model: The name of the model profile; empty for the default.
        session_id: The ID of the conversation to resume; empty for a new one.
        here: Whether to resume it on this target, even if it belongs to another one.
        stored_options: How the target was chosen; stored with new conversations.
    """

    def __init__(
        self,
        session: CliSession,
        execution: ExecutionContext,
        facing: PromptUI,
        leaves: Callable[[], None],
        *,
        model: str,
        session_id: str,
        here: bool,
        stored_options: JsonObject,
    ) -> None:
        self._session = session
        self._stored_options = stored_options
        self._model = model
        self._session_id = session_id
        self._here = here
        self._execution = execution
        self._settings: AgentSettings | None = None
        self._models: ModelTable | None = None
        self._observers: Sequence[Observer] = ()
        self._servers: McpSources | None = None
        self._facing = facing
        self._timed = TimedApproval()
        self._surface = facing.surface
        words = None if facing.terminal == 1 else _to_stdout
        self._view = EventView(self._surface, words=words, state=self._state)
        self._loop = Loop(self._surface, self._view, execution, self._timed, self._front, leaves)
        self._failure: HarnessError | None = None
        self.last_words: list[str] = []

    def _front(self, loop: Loop) -> PromptActionsImpl:
        return PromptActionsImpl(
            loop, self._surface, self._begun, self._announce_conversation, color=self._facing.color
        )

    def _commands(self, text: str) -> Iterable[Suggestion]:
        context = self._loop.context
        return completions(text, context) if context is not None else ()

    # -- running

    async def run(self) -> None:
        """Run until the operator leaves.

        Raises:
            HarnessError: The services, or the conversation to resume, cannot be opened.
        """
        self._facing.commands = self._commands
        with logs_shown(self._warn):
            async with open_background_tasks() as listing, anyio.create_task_group() as tasks:
                self._facing.listing = listing
                tasks.start_soon(self._supply)
                tasks.start_soon(_warm_up)
                await self._loop.run()
                await self._close()
                tasks.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure

    async def _close(self) -> None:
        """Close the conversation, and collect the notices about what is kept or still running."""
        from ...agent.storage.values import is_session_id

        agent = self._loop.agent
        with anyio.move_on_after(CLOSING, shield=True):
            if agent is not None:
                await self._loop.supplies.conversations.close()
        if agent is not None and agent.state.spent.answers and is_session_id(agent.session_id):
            self.last_words.append(f"the conversation is kept: harness resume {agent.session_id}")
        if self._view.jobs:
            self.last_words.append(_running_jobs(self._view.jobs))

    # -- services

    async def _supply(self) -> None:
        try:
            async with self._opened() as supplies:
                self._facing.history.redacts(supplies.toolkit.redactor.text)
                self._loop.set_services(supplies)
                await self._converse(supplies)
                await anyio.sleep_forever()
        except HarnessError as error:
            self._failure = error
            self._loop.leave()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[PromptServices]:
        from ...agent.storage import ConversationStore
        from ...agent.trace.observer import link_news
        from .commands.base import Deadlines
        from .conversations import Conversations
        from .operator_commands import open_operator

        async with AsyncExitStack() as stack:
            toolkit = await self._toolkit(stack)
            stack.enter_context(link_news(self._back))
            operator = await stack.enter_async_context(open_operator(toolkit, self._execution, self._surface))
            if self._servers is not None:
                stack.enter_context(self._servers.attached(operator.executor.registry))
            stack.enter_context(operator.events.listening(self._heard_of_jobs))
            if (notifier := self._session.notifier) is not None:
                stack.enter_context(self._notifying(notifier, operator.events, toolkit.redactor))
            tasks = await stack.enter_async_context(open_background_tasks())
            models = await self._table()
            self._observers = await self._watching(stack, toolkit)
            store = ConversationStore()
            group = await stack.enter_async_context(anyio.create_task_group())
            yield PromptServices(
                toolkit=toolkit,
                operator=operator,
                deadlines=Deadlines(tasks),
                conversations=Conversations(self._execution, toolkit, store, self._view, group, self._loop.changed),
                models=models,
                store=store,
            )

    async def _toolkit(self, stack: AsyncExitStack) -> Toolkit:
        from ...agent.opening import with_agent_pack
        from ...toolkit.assembly import load_toolkit_settings, open_toolkit
        from ...toolkit.catalog import load_catalogue

        choices, variables = self._session.invocation.choices, dict(self._session.settings.config.env)
        settings = with_agent_pack(await to_thread.run_sync(load_toolkit_settings, choices))
        catalogue = await to_thread.run_sync(load_catalogue, settings.tools)
        self._servers = await stack.enter_async_context(server_tools(choices, catalogue.registry, self._warn))
        toolkit = await stack.enter_async_context(open_toolkit(settings, catalogue=catalogue, variables=variables))
        for problem in toolkit.problems:
            self._warn(problem)
        return toolkit

    async def _watching(self, stack: AsyncExitStack, toolkit: Toolkit) -> Sequence[Observer]:
        """Open the observers; none if the model settings are invalid."""
        from ..runtime import observers_of

        if self._settings is None:
            return ()
        opened = observers_of(self._session, self._settings, toolkit.redactor, self._execution)
        return await stack.enter_async_context(opened)

    def _notifying(self, notifier: Notifier, events: EventBus, redactor: Redactor) -> AbstractContextManager[None]:
        """Notify of the jobs that the operator's own commands left running."""
        from ...live.sessions.state import SessionState
        from ...live.sessions.target_access import TargetAccess

        access = TargetAccess(self._execution, redactor, lambda: None)
        state = SessionState(target=access.target)
        return notifier.watching(lambda: state, events, redactor.text, access.read_end)

    def _state(self) -> str:
        return self._execution.describe() if self._execution.has_terminal else ""

    def _back(self, target: str, seconds: float) -> None:
        self._warn(f"{target}: reconnected after {seconds:.1f} s")

    def _warn(self, text: str) -> None:
        self._view.note(text, "warn")

    async def _table(self) -> ModelTable | None:
        """Load the model settings; if they are invalid, show the error and return None."""
        from ...agent.models import load_models
        from ...agent.settings import load_agent_settings

        choices = self._session.invocation.choices
        try:
            self._settings = await to_thread.run_sync(load_agent_settings, choices)
            self._models = await to_thread.run_sync(load_models, choices)
        except HarnessError as error:
            self._view.note(str(error), "error")
            self._loop.set_model_ready(f"no model available: {error}")
            return None
        self._apply_agent_settings(self._settings)
        return self._models

    def _apply_agent_settings(self, settings: AgentSettings) -> None:
        self._view.show_reasoning = settings.show_reasoning
        if settings.theme:
            self._surface.restyle(theme_for(settings.theme, color=self._facing.color))

    # -- the conversation

    async def _converse(self, supplies: PromptServices) -> None:
        """Open the conversation, or show why that failed."""
        from ...agent.opening import preload

        try:
            profile = self._profile()
            if profile is None:
                if self._models is not None:
                    self._view.note(NO_MODEL + self._models.setup)
                    self._loop.set_model_ready(NO_MODEL + self._models.setup)
                return
            conversation = await supplies.conversations.open(self._begun(profile))
            self._taken_up(conversation)
        except HarnessError as error:
            if self._session_id:  # the operator asked for this conversation
                raise
            self._view.note(str(error), "error")
            self._loop.set_model_ready(f"no model available: {error}")
        else:
            self._loop.set_model_ready()
            await to_thread.run_sync(preload, conversation.agent, abandon_on_cancel=True)

    def _profile(self) -> ModelProfile | None:
        """Return the model of the first conversation; None if no model is configured.

        Raises:
            HarnessError: The chosen model does not exist.
        """
        if self._models is None:
            return None
        name = self._model or self._models.default
        return self._models.profile(name) if name else None

    def _begun(self, profile: ModelProfile | None) -> ConversationStart:
        from ...agent.opening import HumanHandlers
        from ...agent.settings import AgentSettings
        from .approvals import PromptApprover, PromptQuestioner

        chosen = profile or self._profile()
        if chosen is None:
            raise HarnessError("no model is configured", hint="/model PROVIDER:MODEL chooses one")
        settings = self._session.settings
        tmux = settings.tmux if isinstance(settings.tmux, str) else settings.config.session if settings.tmux else ""
        approver = PromptApprover(self._surface, self._changed, self._catch_up)
        return ConversationStart(
            profile=chosen,
            settings=self._settings or AgentSettings(),
            handlers=HumanHandlers(approver, PromptQuestioner(self._surface, self._catch_up), self._timed),
            session_id=self._session_id,
            here=self._here,
            tmux=tmux,
            options=self._stored_options,
            observers=self._observers,
            models=self._models,
            config_file=self._session.invocation.choices.config_file,
            servers=self._servers,
            announcement=self._session.announcement,
            notifier=self._session.notifier,
        )

    def _catch_up(self) -> None:
        self._loop.supplies.conversations.catch_up()

    def _heard_of_jobs(self, event: Event) -> None:
        """Show jobs that the operator's commands or an earlier conversation left running, also in the status line."""
        self._view.heard_of_jobs(event)
        self._loop.changed()

    def _changed(self, call: ToolCall) -> None:
        """Show the call as the operator changed it, and notify the model."""
        from .approvals import change_notice

        self._view.changed(call)
        if self._loop.agent is not None:
            redact = self._loop.supplies.toolkit.redactor.text
            self._loop.agent.notify_model(change_notice(call, redact))

    def _announce_conversation(self, conversation: OpenConversation) -> None:
        """Show that the conversation has changed."""
        if conversation.resumed is None:
            self._view.note(f"new conversation: {conversation.agent.session_id}")
        if self._timed.state == "all":
            self._timed.set("ask")
            self._view.note("approvals: calls ask again; advance approval ended with the previous conversation")
        for (host, job_id), command in list(self._view.jobs.items()):  # the previous conversation does not watch them
            self._loop.supplies.operator.events.publish(JobStarted(job_id=job_id, command=command, host=host))
        self._taken_up(conversation)

    def _taken_up(self, conversation: OpenConversation) -> None:
        """Show which conversation was resumed, and which files of instructions were read."""
        if conversation.resumed is not None:
            summary = conversation.resumed.session
            turns = counted(summary.turns, "turn")
            self._view.note(f"conversation {summary.session_id}: {summary.name or summary.title} ({turns})")
        if conversation.in_flight:
            self._view.note(conversation.in_flight, "warn")
        if names := conversation.files.names:
            self._view.note(f"instructions: {', '.join(names)}")
        for notice in conversation.files.notices:
            self._view.note(notice, "warn")


def _running_jobs(jobs: Mapping[tuple[str, str], str]) -> str:
    """Return the line about jobs that are left running."""
    named = [f"{job_id} ({command})" for (host, job_id), command in jobs.items() if not host]
    command = "harness jobs"
    if on_hosts := [(job_id, host) for host, job_id in jobs if host]:
        from ...toolkit.hosts.merging import jobs_on_hosts

        named.append(jobs_on_hosts(on_hosts))
        command = "harness jobs --hosts PATTERN"
    return f"still running in the background: {', '.join(named)} ({command})"


async def _warm_up() -> None:
    """Import the libraries that draw a response before there is one."""
    for name in LIBRARIES:
        await to_thread.run_sync(import_module, name)


def _to_stdout(text: str) -> None:
    """Write the model's text to standard output, which is not the terminal."""
    sys.stdout.write(text)
    sys.stdout.flush()
