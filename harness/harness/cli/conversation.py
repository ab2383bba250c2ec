"""The conversation of an operator's agent: start or resume it, and check its target."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from ..context import ExecutionContext
from ..errors import ConfigError, HarnessError
from ..settings import CommandLineChoices
from ..system.background_tasks import open_background_tasks
from ..system.private_files import write_new_file
from ..target import FLEET_SCHEME

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..agent.models import ModelProfile, ModelTable
    from ..agent.opening import HumanHandlers
    from ..agent.project_instructions import InstructionFiles
    from ..agent.settings import AgentSettings
    from ..agent.storage import (
        ConversationLog,
        ConversationStore,
        ConversationSummary,
        NewConversation,
        StoredConversation,
    )
    from ..agent.sub_agents import Subagents
    from ..agent.trace import Observer
    from ..live.announcement import Announcement
    from ..live.sessions.approvals import SharedApprover
    from ..mcp.client.sources import McpSources
    from ..notifications.notifier import Notifier
    from ..toolkit.assembly import Toolkit
    from ..toolkit.values import JsonObject

__all__ = [
    "ConversationStart",
    "OpenConversation",
    "check_identity",
    "check_target",
    "choices_for",
    "has_target",
    "open_conversation",
    "stored_choices",
    "stored_model",
    "works_on_many_hosts",
    "write_new",
]


# -- The target of a resumed conversation: its own, unless the command line overrides it. Pure.


WHERE = ("target", "ssh", "container", "engine", "image")
PATHS = ("config_file", "identity", "ssh_config")
SWITCHES = ("tmux", "dedicated_connection")
STORED_NAMES = {"dedicated_connection": "fresh_connection"}
"""Choices that were renamed: conversations keep the stored name."""
IMAGE = "image"
HOSTS = "hosts"
"""The stored option with the hosts of a conversation on many hosts."""
HERE = "omit the target, or give --allow-other-target to resume the conversation on this one"


def stored_choices(choices: CommandLineChoices) -> JsonObject:
    """Return the options stored with a conversation, which reach its target again from any directory."""
    said = {name: value for name, value in asdict(choices).items() if value not in (None, ())}
    whole = {name: os.path.abspath(os.path.expanduser(said[name])) for name in PATHS if name in said}
    lists = {name: list(value) for name, value in said.items() if isinstance(value, tuple)}
    return {STORED_NAMES.get(name, name): value for name, value in {**said, **whole, **lists}.items()}


def choices_for(
    summary: ConversationSummary, given: CommandLineChoices, *, here: bool, on_hosts: bool = False
) -> CommandLineChoices:
    """Return the command line's choices, completed from those of the conversation.

    With ``here``, nothing is taken from the conversation; with a target on the command line, only the tmux session is;
    ``on_hosts`` says that it names hosts. The choices of a conversation on many hosts have no target: see
    ``stored_target``.

    Raises:
        ConfigError: The conversation was in a temporary container, which was removed.
    """
    tmux = given.tmux if given.tmux is not None or given.pane is not None else summary.tmux or False
    if here or on_hosts or has_target(given):
        return replace(given, tmux=given.tmux if here else tmux)
    kept = _kept(summary.options)
    if works_on_many_hosts(summary):
        kept = {name: value for name, value in kept.items() if name not in WHERE}
    elif kept.get(IMAGE) is not None:
        raise ConfigError(
            f"conversation {summary.session_id} was in a temporary container, which was removed",
            hint="give another target and --allow-other-target to resume it there",
        )
    elif not any(name in kept for name in WHERE):
        kept["target"] = summary.target
    said = {
        item.name: value
        for item in fields(CommandLineChoices)
        if (value := getattr(given, item.name)) not in (None, ())
    }
    pane = given.pane or (summary.pane or None if tmux is not False else None)
    return CommandLineChoices(**{**kept, **said, "tmux": tmux, "pane": pane})


def has_target(choices: CommandLineChoices) -> bool:
    """Return whether the command line chooses a target."""
    return any(getattr(choices, name) is not None for name in WHERE)


def works_on_many_hosts(summary: ConversationSummary) -> bool:
    """Return whether a conversation works on the hosts of a fleet."""
    return summary.target.startswith(f"{FLEET_SCHEME}:")


def _kept(options: Mapping[str, object]) -> dict[str, Any]:
    """Return the stored choices of valid types."""
    found: dict[str, Any] = {}
    for item in fields(CommandLineChoices):
        value = options.get(STORED_NAMES.get(item.name, item.name))
        if isinstance(item.default, tuple):
            if isinstance(value, list) and all(isinstance(one, str) for one in value):
                found[item.name] = tuple(value)
        elif isinstance(value, str) or (isinstance(value, bool) and item.name in SWITCHES):
            found[item.name] = value
    return found


def stored_model(models: ModelTable, summary: ConversationSummary) -> tuple[ModelProfile | None, str]:
    """Return the conversation's model profile, or None and the reason (empty if it had no model)."""
    if not summary.model:
        return None, ""
    try:
        return models.profile(summary.model), ""
    except ConfigError:
        return None, f"the conversation's model {summary.model} is not configured any more"


def check_identity(summary: ConversationSummary, identity: str) -> None:
    """Check that the target is the conversation's own, and not another one of the same name.

    Raises:
        ConfigError: The target is another one.
    """
    if identity != summary.identity:
        raise ConfigError(
            f"conversation {summary.session_id} belongs to {summary.identity}, not to {identity}",
            hint="give --allow-other-target to resume it on this target",
        )


def check_target(summary: ConversationSummary, target: object, tmux: bool | str, *, here: bool) -> None:
    """Check that target and tmux session are those of the conversation.

    Raises:
        ConfigError: The target or the tmux session is another one.
    """
    if here:
        return
    if str(target) != summary.target:
        raise ConfigError(f"conversation {summary.session_id} belongs to {summary.target}, not to {target}", hint=HERE)
    if isinstance(tmux, str) and summary.tmux and tmux != summary.tmux:
        raise ConfigError(
            f"conversation {summary.session_id} belongs to tmux session {summary.tmux!r}, not to {tmux!r}",
            hint="omit --tmux, or give --allow-other-target",
        )


# -- An open conversation: an agent with an operator, stored as it proceeds.


logger = logging.getLogger(__name__)

MOVED = (
    "[This conversation continues on another target: it was {}, and now it is {}. Look before you rely on the past.]"
)


@dataclass(frozen=True, slots=True)
class ConversationStart:
    """The parameters of a conversation to open."""

    profile: ModelProfile
    settings: AgentSettings
    handlers: HumanHandlers
    session_id: str = ""
    """The ID of the conversation to resume; empty for a new one."""
    here: bool = False
    """Whether to move the stored conversation to this target."""
    tool_profile: str | None = None
    cwd: str | None = None
    """The directory in which files and commands start, if it is not the target's."""
    project: Path | None = None
    """The directory here whose ``AGENTS.md`` is read; None for the current one."""
    tmux: str = ""
    """The tmux session; empty without one."""
    options: JsonObject = field(default_factory=dict)
    """How the target was chosen; stored with a new conversation."""
    models: ModelTable | None = None
    """The models that sub-agents may use."""
    config_file: str | None = None
    """The file of ``--config``, whose targets sub-agents may use."""
    observers: Sequence[Observer] = ()
    servers: McpSources | None = None
    """The MCP servers whose current tools are offered."""
    announcement: Announcement | None = None
    """Shows the conversation in dashboards, which may then answer its approval requests."""
    notifier: Notifier | None = None
    """Notifies of the conversation's events, if it is announced."""


@dataclass
class OpenConversation:
    """A conversation that is open until :attr:`left` is set."""

    agent: Agent
    files: InstructionFiles
    """The instruction files that were read."""
    resumed: StoredConversation | None = None
    in_flight: str = ""
    """Notice for the operator: calls in flight when the earlier harness exited, or why nothing is stored."""
    running: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The jobs that an earlier harness left running for this conversation: their hosts (empty on one target), IDs and
    commands."""
    left: anyio.Event = field(default_factory=anyio.Event)
    closed: anyio.Event = field(default_factory=anyio.Event)


@asynccontextmanager
async def open_conversation(
    begun: ConversationStart, execution: ExecutionContext, toolkit: Toolkit, store: ConversationStore | None
) -> AsyncIterator[OpenConversation]:
    """Open a new or stored conversation with its agent.

    Args:
        begun: The parameters of the conversation.
        execution: The target.
        toolkit: The tools.
        store: The stored conversations; None stores nothing.

    Yields:
        The open conversation.

    Raises:
        HarnessError: The conversation does not exist, another process uses it, or the target is closed.
    """
    from ..agent.models import open_model
    from ..agent.opening import ResumedConversation, open_agent
    from ..agent.operators import watched_by_operators
    from ..agent.project_instructions import read_instruction_files
    from ..agent.storage import MemoryLog
    from ..agent.stored_usage import spent_in
    from ..agent.trace import observed, watching

    async with AsyncExitStack() as stack:
        resumed, stored = None, None
        session_id, why = await _begun(begun, execution, store)
        log: ConversationLog = MemoryLog()
        if store is not None and session_id:
            log = await stack.enter_async_context(store.writing(session_id))
            (await stack.enter_async_context(open_background_tasks())).start_soon(_prune, store, begun.settings)
        if begun.session_id and store is not None:
            stored = await _stored(begun, execution, store)
            resumed = ResumedConversation(stored.messages, spent_in(stored))
            if stored.session.model != begun.profile.name:
                log.note("model", begun.profile.name)
        shared = _shared_approver(begun)
        files = await read_instruction_files(begun.settings, execution, begun.project, begun.cwd)
        told = files.added_to(begun.settings.instructions, toolkit.redactor)
        agent = await stack.enter_async_context(
            open_agent(
                execution,
                toolkit,
                begun.profile,
                settings=replace(begun.settings, instructions=told),
                handlers=begun.handlers if shared is None else replace(begun.handlers, approver=shared),
                log=log,
                session_id=session_id,
                resumed=resumed,
                tool_profile=begun.tool_profile,
                cwd=begun.cwd,
                spawner=await _subagents(begun, stored),
                open_one=observed(open_model, begun.observers),
            )
        )
        if begun.servers is not None:
            stack.enter_context(begun.servers.attached(agent.executor.registry))
        stack.enter_context(watching(agent.events, begun.observers))
        if begun.announcement is not None:
            from ..live.sessions.agent_session import show_agent

            session = stack.enter_context(show_agent(begun.announcement, agent, shared))
            if begun.notifier is not None:
                redact = toolkit.redactor.text
                stack.enter_context(begun.notifier.watching(session.state, agent.events, redact, session.read_end))
        await stack.enter_async_context(watched_by_operators(agent))
        if stored is None:
            yield OpenConversation(agent, files, in_flight=why)
        else:
            note, running = await _in_flight(stored, log, toolkit, agent)
            yield OpenConversation(agent, files, stored, note, running)


def _shared_approver(begun: ConversationStart) -> SharedApprover | None:
    """Return the conversation's approver as dashboards share it; None without dashboards."""
    if begun.announcement is None or begun.handlers.approver is None:
        return None
    from ..live.sessions.approvals import share_approver

    return share_approver(begun.announcement, begun.handlers.approver)


async def _subagents(begun: ConversationStart, stored: StoredConversation | None) -> Subagents:
    from ..agent.opening import load_agent

    await to_thread.run_sync(load_agent)
    from ..agent.sub_agents import NamedTargets, Subagents

    notes = stored.notes if stored is not None else ()
    return Subagents(begun.models, targets=NamedTargets(begun.config_file), notes=notes)


async def _stored(
    begun: ConversationStart, execution: ExecutionContext, store: ConversationStore
) -> StoredConversation:
    """Return the conversation to resume, moved to this target with ``here``.

    Raises:
        ConfigError: It belongs to another target.
    """
    stored = await store.load(begun.session_id)
    if begun.here:
        await store.move(begun.session_id, _place(begun, execution))
    else:
        check_identity(stored.session, execution.identity)
    return stored


async def _begun(
    begun: ConversationStart, execution: ExecutionContext, store: ConversationStore | None
) -> tuple[str, str]:
    """Return the conversation's ID, or an empty one and the reason if a new one cannot be stored."""
    if begun.session_id or store is None:
        return begun.session_id, ""
    try:
        return (await store.create(_place(begun, execution))).session_id, ""
    except HarnessError as error:  # an agent must work with a full disk, too
        return "", f"this conversation is not stored: {error}"


async def _prune(store: ConversationStore, settings: AgentSettings) -> None:
    """Remove conversations beyond the retention limits; a failure is only logged."""
    from ..agent.storage import ConversationRetention

    try:
        await store.prune(ConversationRetention(settings.conversations_max_age, settings.conversations_max_bytes))
    except HarnessError as error:
        logger.info("cannot remove old conversations: %s", error)


def _place(begun: ConversationStart, execution: ExecutionContext) -> NewConversation:
    from ..agent.storage import NewConversation

    return NewConversation(
        target=str(execution.target),
        identity=execution.identity,
        tmux=begun.tmux,
        pane=execution.pane or "",
        model=begun.profile.name,
        options=begun.options,
    )


async def _in_flight(
    stored: StoredConversation, log: ConversationLog, toolkit: Toolkit, agent: Agent
) -> tuple[str, Mapping[tuple[str, str], str]]:
    """Return the operator's notice of calls in flight, and the hosts, IDs and commands of jobs that may still run."""
    from ..agent.storage.recovery import in_flight, resume_messages
    from ..agent.stored_usage import is_running

    try:
        redact = toolkit.redactor.text
        found = await in_flight(stored, toolkit.ledger, agent.execution, is_running(stored), redact=redact)
    except HarnessError as error:
        return f"cannot find out which calls were in flight when harness exited: {error}", {}
    if stored.session.identity != agent.execution.identity:
        agent.notify_model(MOVED.format(stored.session.identity, agent.execution.identity))
    if found.model:
        agent.notify_model(found.model)
    resume_messages(found, log, agent.events)
    running = {("", job.job_id): job.command for job in found.running}
    return found.operator, running | dict.fromkeys(found.unknown, "")


# -- Files


def write_new(path: Path, document: str) -> None:
    """Write a document to a new file that only its owner can read, and block until it is on disk.

    Raises:
        HarnessError: The file exists or cannot be written.
    """
    try:
        write_new_file(path, f"{document}\n".encode("utf-8", "surrogateescape"))
    except OSError as error:
        hint = "name a new file" if isinstance(error, FileExistsError) else ""
        raise HarnessError(f"cannot write {path}: {(error.strerror or str(error)).lower()}", hint=hint) from error
