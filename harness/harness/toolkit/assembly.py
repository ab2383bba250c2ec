"""Builds everything that a call passes through from the settings: for the command line, servers and agents.

::

    async with open_executor(execution, load_toolkit_settings(), approver=mine) as executor:
        outcome = await executor.call(ToolCall("run_shell", {"command": "uptime"}))

A program with several sessions opens one :class:`Toolkit` and creates an executor from it for each session.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from ..context import ExecutionContext
from ..errors import HarnessError, ToolError
from ..fleets import Fleet, FleetContext
from ..settings import CommandLineChoices, load_tables
from .audit import DiskFullAuditLog, Retention, SqliteAuditLog, is_disk_full, open_audit_log, retention_of
from .catalog import Catalogue, ToolSettings, agent_depth, load_catalogue, offered, tool_settings_of
from .contract import Hook, Middleware, Services
from .delegation import show_types, without_spawn_tools
from .events import Event, EventBus, JobExited, JobStarted
from .executor import Executor, Spawner
from .hooks.command import hooks_of
from .hooks.dispatch import HookInvocation, Hooks, RegisteredHook, notifying
from .hosts.offered_tools import fleet_registry
from .hosts.session import FleetSession
from .interfaces import Compactor
from .middleware import RejectRedactedText
from .permissions.approver import Approver
from .permissions.paths.target_paths import tools_start
from .permissions.policy import RulePolicy, SecretGuard
from .permissions.remembered_answers import TimedApproval
from .permissions.rules.settings import PermissionSettings, settings_of
from .permissions.rules.store import RuleFile, rule_file_path
from .plugins import HOOKS, find, load_hooks
from .redaction.redactor import PatternRedactor
from .registry import FixedSource, Registry, ToolSource, without_compact
from .result_cache import ResultCache
from .session.file_versions import ReadTracker
from .session.job_watch import watched_jobs
from .session.notebook import MemoryStore, Notebook, StoreNotebook, TodoStore
from .session.notebook_stores import SqliteNotebook
from .session.output_store import OutputStore
from .session.questions import Questioner
from .web_settings import WebSettings, web_settings_of

__all__ = ["Toolkit", "ToolkitSettings", "load_toolkit_settings", "open_executor", "open_toolkit"]

log = logging.getLogger(__name__)

END_LIMIT = 5.0
"""Seconds that the hooks of a session's end may take."""


@dataclass(frozen=True, slots=True)
class ToolkitSettings:
    """The settings of all steps between a call and its outcome."""

    tools: ToolSettings = field(default_factory=ToolSettings)
    permissions: PermissionSettings = field(default_factory=PermissionSettings)
    retention: Retention = field(default_factory=Retention)
    hooks: tuple[RegisteredHook, ...] = ()
    web: WebSettings = field(default_factory=WebSettings)


def load_toolkit_settings(choices: CommandLineChoices | None = None) -> ToolkitSettings:
    """Return the toolkit's tables of the settings files.

    Raises:
        ConfigError: a file cannot be read, or one of the tables is invalid.
    """
    return ToolkitSettings(
        tools=tool_settings_of(load_tables("tools", choices)),
        permissions=settings_of(load_tables("permissions", choices)),
        retention=retention_of(load_tables("audit", choices)),
        hooks=hooks_of(load_tables("hooks", choices)),
        web=web_settings_of(load_tables("web", choices)),
    )


@dataclass(frozen=True, slots=True)
class Toolkit:
    """The services that all sessions of a process share."""

    settings: ToolkitSettings
    registry: Registry
    known: Registry
    """All tools including the opt-in ones, under their own names."""
    ledger: SqliteAuditLog | DiskFullAuditLog
    redactor: PatternRedactor
    results: ResultCache
    reads: ReadTracker
    rules: RuleFile
    outputs: OutputStore
    hooks: tuple[Hook, ...] = ()
    """The hooks of plugins; those of the settings are created for each session."""
    problems: tuple[str, ...] = ()
    """One sentence for each plugin or declaration that could not be loaded."""
    notebook: Notebook | None = None

    @asynccontextmanager
    async def executor(
        self,
        execution: ExecutionContext | Fleet,
        *,
        approver: Approver | None = None,
        registry: Registry | None = None,
        profile: str | None = None,
        timed: TimedApproval | None = None,
        session_id: str = "",
        agent_id: str = "",
        model: str = "",
        cwd: str | None = None,
        spawner: Spawner | None = None,
        questioner: Questioner | None = None,
        compactor: Compactor | None = None,
        hooks: Hooks | None = None,
        middleware: tuple[Middleware, ...] = (),
    ) -> AsyncIterator[Executor]:
        """Open an executor for one session on one target, or on the hosts of a fleet.

        Args:
            execution: the target. On a fleet, tools for files and commands have the argument ``hosts``, and sub-agents
                work on the same hosts.
            approver: decides approval requests; None denies them.
            registry: the tools to offer; the default is those that the target can serve.
            profile: offer the tools of this profile, or with ``none`` harness's own; the default is from the
                settings. Ignored with ``registry``.
            timed: approvals given in advance.
            session_id: empty creates a new one.
            cwd: the directory in which files and commands start; the default is that of plain commands, or the home
                directory of a login.
            spawner: provides the model of sub-agents; without it no tool for them is offered.
            questioner: asks the user the questions of a tool; None: there is no user to ask.
            compactor: can compact the conversation; without it no tool for it is offered by default.
            hooks: the program's own hooks, which run after those of the settings. One
                :class:`.hooks.dispatch.Hooks` may serve several sessions; hooks that are added later only apply to
                later sessions.
            middleware: code around every call, outermost first.

        Raises:
            ConfigError: unknown profile.
        """
        execution = FleetContext(execution) if isinstance(execution, Fleet) else execution
        session = session_id or uuid.uuid4().hex
        events = EventBus(session)
        cwd = cwd or tools_start(execution)
        if not isinstance(execution, FleetContext):  # of a fleet, each host when it is connected
            await self._settle(execution)
        policy = self._policy(execution, approver, timed)
        chosen = registry if registry is not None else await self._offered(execution, compactor, profile)
        if isinstance(execution, FleetContext):
            chosen = fleet_registry(chosen, execution.fleet)
        depth = agent_depth(self.settings.tools, profile) if spawner is not None else 0
        chosen = (
            show_types(chosen, spawner.types()) if spawner is not None and depth > 0 else without_spawn_tools(chosen)
        )
        occasion = HookInvocation("session_start", execution.identity, session, agent_id, cwd)
        own = hooks.registered if hooks is not None else ()
        hosts = self._fleet_session(execution, session)

        watched = watched_jobs(execution, events, hosts.connected if hosts is not None else None)
        async with self._hooks(occasion, own, events) as running, watched:
            with events.listening(partial(self._heard, execution, hosts)):
                yield Executor(
                    execution=execution,
                    registry=chosen,
                    services=self._services(policy, running, middleware),
                    events=events,
                    reads=self.reads.of(session, execution),
                    session_id=session,
                    agent_id=agent_id,
                    max_agent_depth=depth,
                    model=model,
                    cwd=cwd,
                    spawner=spawner,
                    questioner=questioner,
                    notebook=self.notebook,
                    compactor=compactor,
                    hosts=hosts,
                )

    def _policy(
        self, execution: ExecutionContext, approver: Approver | None, timed: TimedApproval | None
    ) -> RulePolicy:
        inventory = execution.fleet.inventory if isinstance(execution, FleetContext) else None
        settings = self.settings.permissions
        return RulePolicy(settings, approver=approver, file=self.rules, timed=timed, inventory=inventory)

    def _heard(self, execution: ExecutionContext, hosts: FleetSession | None, event: Event) -> None:
        host = event.host if isinstance(event, JobStarted | JobExited) else ""
        self.results.heard(event, hosts.identity(host) if hosts is not None and host else execution.identity)

    def _fleet_session(self, execution: ExecutionContext, session: str) -> FleetSession | None:
        if not isinstance(execution, FleetContext):
            return None
        return FleetSession(execution.fleet, partial(self.reads.of, session), self._settle)

    async def _offered(self, execution: ExecutionContext, compactor: Compactor | None, profile: str | None) -> Registry:
        shown = self.registry if profile is None else offered(self.settings.tools, self.known, profile)
        available = shown if isinstance(execution, FleetContext) else await shown.available(execution)
        return available if compactor is not None else without_compact(available)

    @asynccontextmanager
    async def _hooks(
        self, start: HookInvocation, own: tuple[RegisteredHook, ...], events: EventBus
    ) -> AsyncIterator[Hooks]:
        """Run the operator's and the program's hooks for one session, and notify them of its start and end."""
        async with Hooks((*self.settings.hooks, *own)) as hooks:
            await self._tell(hooks, start)
            try:
                async with notifying(hooks, events, start, self.redactor):
                    yield hooks
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(END_LIMIT):
                    await self._tell(hooks, replace(start, event="session_end"))

    async def _tell(self, hooks: Hooks, occasion: HookInvocation) -> None:
        try:
            await hooks.fire(occasion, self.redactor)
        except ToolError as error:
            log.warning("a hook of %s failed: %s", occasion.event, self.redactor.text(str(error)))

    def _services(self, policy: RulePolicy, hooks: Hooks, middleware: tuple[Middleware, ...]) -> Services:
        return Services(
            policy=policy,
            ledger=self.ledger,
            redactor=self.redactor,
            outputs=self.outputs,
            results=self.results,
            hooks=(hooks, *self.hooks, SecretGuard(policy)),
            middleware=(*middleware, RejectRedactedText()),
            web=self.settings.web,
        )

    async def _settle(self, execution: ExecutionContext) -> None:
        """Determine the outcome of calls from crashed processes; a failure stops nothing."""
        try:
            found = await self.ledger.reconcile(execution, self.redactor.text)
        except HarnessError as error:
            log.warning("outcomes of earlier calls could not be determined: %s", error)
            return
        new = sum(call.state != "unknown" for call in found.unclear)  # the others were reported earlier
        if new:
            log.warning("%d earlier call(s) on this target have an unknown outcome; see harness audit orphans", new)


@asynccontextmanager
async def open_toolkit(
    settings: ToolkitSettings | None = None,
    *,
    catalogue: Catalogue | None = None,
    profile: str | None = None,
    tool_sources: Iterable[ToolSource] = (),
    variables: Mapping[str, str] | None = None,
    max_agent_depth: int | None = None,
    cache_max_results: int | None = None,
    cache_max_bytes: int | None = None,
    cache_max_age: float | None = None,
    todo_store: TodoStore | None = None,
    memory_store: MemoryStore | None = None,
) -> AsyncIterator[Toolkit]:
    """Open the services that all sessions share: tools, audit log, rules and caches.

    Args:
        settings: the default has no settings.
        catalogue: the tools if already loaded; ``tool_sources`` must then be empty.
        profile: offer the tools of this profile, or with ``none`` under harness's own names; the default is from the
            settings. Each session may choose another one.
        tool_sources: the program's own tools, which are offered with and without a profile. Each is fetched once; a
            tool without a category is treated as mutating.
        variables: the environment of commands. Values of variables with secret names, here and in the environment of
            this process, are redacted everywhere.
        max_agent_depth: agents at this depth cannot start others; the operator's agent is at depth 0. None uses the
            settings, then the profile.
        cache_max_results: maximum number of cached results of read-only calls; None uses the settings, as for the
            next two. ``Toolkit.results.stats`` has the statistics.
        cache_max_bytes: maximum total size of the cached results in bytes.
        cache_max_age: maximum age of a cached result in seconds.
        todo_store: stores the to-do lists of sessions; the default is the notebook in the user's state directory.
        memory_store: stores memories; the default is the same notebook.

    Raises:
        ConfigError: the settings or ``profile`` contain an unknown name, or the name of a source or tool is taken.
        HarnessError: the audit log cannot be written.
        ValueError: both ``catalogue`` and ``tool_sources`` are given.
    """
    settings = settings or ToolkitSettings()
    if profile is not None:
        settings = replace(settings, tools=replace(settings.tools, tool_profile=profile))
    given = {
        "max_agent_depth": max_agent_depth,
        "cache_max_results": cache_max_results,
        "cache_max_bytes": cache_max_bytes,
        "cache_max_age": cache_max_age,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settings = replace(settings, tools=replace(settings.tools, **changes))
    known = await _catalogue(catalogue, settings.tools, tuple(tool_sources), profile)
    hooks = await to_thread.run_sync(lambda: load_hooks(find(HOOKS, disabled=settings.tools.disabled_plugins)))
    problems = (*known.problems, *(f"{one.plugin.source}: {one.reason}" for one in hooks.failures))
    async with AsyncExitStack() as files:
        yield Toolkit(
            settings=settings,
            registry=known.registry,
            known=known.known,
            ledger=await _ledger(files, settings.retention),
            redactor=PatternRedactor.with_environment(
                {**os.environ, **(variables or {})},
                secrets=settings.web.secrets,
                patterns=settings.tools.redact_patterns,
            ),
            results=_results(settings.tools),
            reads=ReadTracker(settings.tools.allow_overwrite_after_partial_read),
            rules=RuleFile(rule_file_path()),
            outputs=OutputStore(),
            hooks=tuple(hook for _, hook in hooks.found),
            problems=problems,
            notebook=_notebook(todo_store, memory_store),
        )


def _notebook(todo_store: TodoStore | None, memory_store: MemoryStore | None) -> Notebook:
    if todo_store is None and memory_store is None:
        return SqliteNotebook()
    default = SqliteNotebook()  # opens its files on first use
    return StoreNotebook(
        todo_store if todo_store is not None else default, memory_store if memory_store is not None else default
    )


def _results(settings: ToolSettings) -> ResultCache:
    results = ResultCache(settings.cache_max_results, settings.cache_max_age, max_bytes=settings.cache_max_bytes)
    if not settings.cache:
        results.disable()
    return results


async def _catalogue(
    loaded: Catalogue | None, settings: ToolSettings, sources: Sequence[ToolSource], profile: str | None
) -> Catalogue:
    if loaded is None:
        fetched = [FixedSource(source.name, tuple(await source.tools())) for source in sources]
        return await to_thread.run_sync(partial(load_catalogue, settings, sources=fetched))
    if sources:
        raise ValueError("the catalogue is already loaded: pass the sources to load_catalogue")
    return loaded if profile is None else replace(loaded, registry=offered(settings, loaded.known, profile))


async def _ledger(files: AsyncExitStack, retention: Retention) -> SqliteAuditLog | DiskFullAuditLog:
    """Open the audit log; if the disk is full, return one that only permits read-only calls."""
    try:
        return await files.enter_async_context(open_audit_log(retention=retention))
    except HarnessError as error:
        if not is_disk_full(error):
            raise
        log.warning("%s; mutating calls are refused, and other calls are not recorded", error)
        return DiskFullAuditLog(error)


@asynccontextmanager
async def open_executor(
    execution: ExecutionContext | Fleet,
    settings: ToolkitSettings | None = None,
    *,
    approver: Approver | None = None,
    profile: str | None = None,
    tool_sources: Iterable[ToolSource] = (),
    session_id: str = "",
    agent_id: str = "",
    questioner: Questioner | None = None,
    spawner: Spawner | None = None,
    compactor: Compactor | None = None,
    hooks: Hooks | None = None,
    middleware: tuple[Middleware, ...] = (),
) -> AsyncIterator[Executor]:
    """Open an executor with its own services: :func:`open_toolkit` and :meth:`Toolkit.executor` combined."""
    async with (
        open_toolkit(settings, profile=profile, tool_sources=tool_sources) as toolkit,
        toolkit.executor(
            execution,
            approver=approver,
            session_id=session_id,
            agent_id=agent_id,
            questioner=questioner,
            spawner=spawner,
            compactor=compactor,
            hooks=hooks,
            middleware=middleware,
        ) as executor,
    ):
        yield executor
