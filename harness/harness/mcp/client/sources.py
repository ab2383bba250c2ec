"""The tools of MCP servers in a registry: from stored definitions at first, and kept up to date."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from ...errors import ConfigError
from ...system.background_tasks import open_background_tasks
from ...toolkit.registry import Registry
from .configuration import ServerConfig
from .definitions import (
    DefinitionStore,
    KnownTools,
    ToolDefinition,
    changed_tools,
    is_nameable,
    local_name,
    state_directory,
)
from .session import Connection, RestartPolicy, ServerState, Supervisor, open_connection
from .tool import ArgumentSchema, DisabledTool, RemoteTool, SchemaError, usable_schema

__all__ = ["McpSources", "Notice", "open_sources", "source_name"]

logger = logging.getLogger(__name__)

OfferedTool = RemoteTool | DisabledTool

Notice = Callable[[str], None]
"""Called with a message for the operator: about a changed or unusable tool, or an unavailable server."""


def source_name(server: str) -> str:
    """Return the name of the registry source for a server's tools."""
    return f"mcp:{server}"


@dataclass(slots=True)
class _Source:
    """One server: its record, its supervisor, and its tools in the registry."""

    config: ServerConfig
    known: KnownTools
    supervisor: Supervisor
    latest: tuple[ToolDefinition, ...]
    listed: anyio.Event
    tools: tuple[OfferedTool, ...] = ()
    disabled: frozenset[str] = frozenset()
    checked: set[str] = field(default_factory=set)
    """The digests of definitions with verified schemas, because verification is slow."""


class McpSources:
    """The MCP servers of a process, for one or more registries; created by :func:`open_sources`."""

    def __init__(self, store: DefinitionStore, names: tuple[str, ...], notice: Notice) -> None:
        self._registries: list[Registry] = []
        self._store = store
        self._names = names
        self._notice = notice
        self._sources: dict[str, _Source] = {}

    @property
    def states(self) -> Mapping[str, ServerState]:
        """The state of each server."""
        return {name: source.supervisor.state for name, source in self._sources.items()}

    @contextmanager
    def attached(self, registry: Registry) -> Iterator[None]:
        """Keep the tools in this registry, too, until the end of the block.

        A server whose tool names collide with existing ones is omitted with a notice.
        """
        for source in self._sources.values():
            try:
                registry.replace_source(source_name(source.config.name), source.tools)
            except ValueError as error:
                self._notice(str(_collision(source.config, error)))
        self._registries.append(registry)
        try:
            yield
        finally:
            self._registries.remove(registry)
            for name in self._sources:
                registry.remove_source(source_name(name))

    def restart(self, name: str) -> None:
        """Restart a server, even if it was given up; its calls in progress are aborted.

        Raises:
            ConfigError: unknown server.
        """
        self._source(name).supervisor.restart()

    def changed(self, name: str) -> tuple[str, ...]:
        """Return the server's names of its tools that are disabled because they changed."""
        return tuple(sorted(self._source(name).disabled))

    def tool_names(self, name: str) -> dict[str, str]:
        """Return the names of a server's usable tools: the server's names, and those for models.

        Raises:
            ConfigError: unknown server.
        """
        return {tool.remote_name: tool.name for tool in self._source(name).tools}

    def definitions(self, name: str) -> tuple[ToolDefinition, ...]:
        """Return a server's last listed tools, including disabled ones.

        Raises:
            ConfigError: unknown server.
        """
        return self._source(name).latest

    async def accept(self, name: str, tools: Iterable[str] | None = None) -> None:
        """Accept the current definitions of changed tools, and enable these tools.

        Args:
            name: the server.
            tools: the server's names of the tools; by default all.

        Raises:
            ConfigError: unknown server, or the record could not be stored.
        """
        source = self._source(name)
        wanted = None if tools is None else set(tools)
        chosen = [item for item in source.latest if wanted is None or item.name in wanted]
        await self._keep(source, lambda known: known.accepting(chosen))
        await self._publish(source)

    async def wait_listed(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until each server has listed its tools or was given up.

        Returns:
            False after the timeout.
        """
        with anyio.move_on_after(timeout):
            for source in self._sources.values():
                await source.listed.wait()
            return True
        return False

    async def wait_settled(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until each server is running, was given up, or awaits its first call.

        Returns:
            False after the timeout.
        """
        with anyio.move_on_after(timeout):
            for source in self._sources.values():
                while source.supervisor.state.state in {"starting", "waiting"}:
                    await source.supervisor.changed()
            return True
        return False

    def _source(self, name: str) -> _Source:
        if name not in self._sources:
            known = ", ".join(sorted(self._sources)) or "none"
            raise ConfigError(f"unknown server {name!r}", hint=f"there are: {known}")
        return self._sources[name]

    # -- lifecycle of one server, called by its task

    async def add(self, config: ServerConfig, environ: Mapping[str, str], rules: RestartPolicy | None) -> _Source:
        """Add a server with its stored tools."""
        known = await anyio.to_thread.run_sync(self._store.load, config)
        lazy = config.lazy and bool(known.definitions)
        supervisor = Supervisor(
            replace(config, lazy=lazy),
            partial(open_connection, config, environ),
            partial(self._listed, config.name),
            rules,
        )
        source = _Source(config, known, supervisor, known.definitions, anyio.Event())
        self._sources[config.name] = source
        disabled = self._disabled(source)
        source.checked |= {item.digest for item in known.definitions if item.name not in disabled}
        if known.definitions:
            source.listed.set()
            try:
                await self._publish(source)
            except ConfigError as error:
                self._notice(str(error))
        return source

    async def look_after(self, source: _Source) -> None:
        """Run a server until cancelled, and report when it is given up."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.supervisor.run)
            tasks.start_soon(self._report, source)

    async def _report(self, source: _Source) -> None:
        while True:
            state = await source.supervisor.changed()
            if state.state == "unavailable":
                source.listed.set()
                self._notice(f"server {source.config.name!r} is unavailable: {state.reason}")

    async def _listed(self, name: str, connection: Connection) -> None:
        source = self._sources[name]
        source.latest = await connection.definitions()
        source.known = await self._recorded(source)
        if not _is_first(source.known, source.config):
            self._tell_changes(source)
        await self._publish(source, _settled(source.known, source))
        usable = {tool.remote_name for tool in source.tools}
        kept = tuple(item for item in source.latest if item.name in usable)
        await self._keep(source, lambda known: replace(_settled(known, source), definitions=kept), required=False)
        if self._disabled(source) != source.disabled:  # the operator accepted a tool in the meantime
            await self._publish(source)
        source.listed.set()

    async def _recorded(self, source: _Source) -> KnownTools:
        """Return the current record, which another harness process may have changed."""
        found = await anyio.to_thread.run_sync(self._store.load, source.config)
        return found if found.seen else source.known

    def _tell_changes(self, source: _Source) -> None:
        for name in sorted(changed_tools(source.known, source.latest)):
            end = "it is disabled until it is accepted" if source.config.pin_tools else "its new definition is used"
            called = local_name(source.config.name, name, self._names)
            self._notice(f"the tool {called} of server {source.config.name!r} is new or has changed; {end}")

    async def _keep(
        self, source: _Source, change: Callable[[KnownTools], KnownTools], *, required: bool = True
    ) -> None:
        """Change the current record in the store, and the one in memory."""
        try:
            source.known = await anyio.to_thread.run_sync(self._store.update, source.config, change)
        except OSError as error:
            text = f"cannot store the tool definitions of server {source.config.name!r}: {error.strerror or error}"
            if required:
                raise ConfigError(text) from error
            self._notice(text)
            source.known = change(source.known)

    # -- tools

    def _disabled(self, source: _Source, known: KnownTools | None = None) -> frozenset[str]:
        return changed_tools(known or source.known, source.latest) if source.config.pin_tools else frozenset()

    async def _publish(self, source: _Source, known: KnownTools | None = None) -> None:
        source.disabled = disabled = self._disabled(source, known)  # now, because old tool objects may be in use
        made = await anyio.to_thread.run_sync(self._tools, source, disabled)
        for item in made:
            if isinstance(item, str):
                self._notice(item)
        tools = tuple(item for item in made if not isinstance(item, str))
        for registry in self._registries:
            try:
                registry.replace_source(source_name(source.config.name), tools)
            except ValueError as error:
                failure = _collision(source.config, error)
                if registry is self._registries[0]:
                    raise failure from error
                self._notice(str(failure))  # an attached registry must not stop the others
        source.tools = tools

    def _tools(self, source: _Source, disabled: frozenset[str]) -> list[OfferedTool | str]:
        """Return the tools, and notices about unusable ones. Verifying many schemas is slow."""
        twice = [name for name, count in Counter(item.name for item in source.latest).items() if count > 1]
        if twice:
            raise ConfigError(f"server {source.config.name!r} lists the tool {twice[0]!r} twice")
        return [self._tool(source, definition, definition.name in disabled) for definition in source.latest]

    def _tool(self, source: _Source, definition: ToolDefinition, disabled: bool) -> OfferedTool | str:
        config = source.config
        if not is_nameable(definition.name):
            return f"a tool of server {config.name!r} has an invalid name: {definition.name!r:.80}"
        name = local_name(config.name, definition.name, self._names)
        if disabled:
            return DisabledTool(name, definition, config)
        try:
            schema = usable_schema(definition.schema)
            if definition.digest not in source.checked:
                ArgumentSchema(schema).verify()
                source.checked.add(definition.digest)
        except SchemaError as error:
            return f"the tool {name} of server {config.name!r} cannot be used: {error}"
        return RemoteTool(name, definition, schema, source.supervisor, lambda tool: tool in source.disabled)


def _is_first(known: KnownTools, config: ServerConfig) -> bool:
    """Return whether the server's current list is its first one, and so accepted."""
    return not known.seen and not (known.damaged and config.pin_tools)


def _settled(known: KnownTools, source: _Source) -> KnownTools:
    """Return the record after a list: all of it is accepted, unless the tools are pinned."""
    pinned = source.config.pin_tools and not _is_first(known, source.config)
    return known if pinned else known.accepting(source.latest)


def _collision(config: ServerConfig, error: ValueError) -> ConfigError:
    return ConfigError(
        f"server {config.name!r}: its tools cannot be added: {error}",
        hint="give the server another name in the settings",
    )


def _check_names(registry: Registry, servers: Sequence[ServerConfig]) -> None:
    """Refuse servers of the same name, which is the name of their source in the registry."""
    for name, count in Counter(config.name for config in servers).items():
        if count > 1:
            origins = " and ".join(config.origin for config in servers if config.name == name)
            raise ConfigError(f"{count} servers have the name {name!r}: {origins}", hint="rename one of them")
        if source_name(name) in registry.sources:
            raise ConfigError(
                f"the tools of a server {name!r} are already registered", hint="rename one of the servers"
            )


def _log(text: str) -> None:
    logger.warning("%s", text)


@asynccontextmanager
async def open_sources(
    registry: Registry,
    servers: Iterable[ServerConfig],
    *,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
    rules: RestartPolicy | None = None,
    notice: Notice = _log,
    names: Iterable[str] | None = None,
) -> AsyncIterator[McpSources]:
    """Start the servers and add their tools to a registry; at the end, stop the servers and remove the tools.

    It does not wait for the servers: tools that are stored from an earlier run are added at once, the others when their
    server answers (:meth:`McpSources.wait_listed`).

    Args:
        registry: receives the tools.
        servers: the servers; disabled ones are ignored.
        environ: the variables for references in the settings; by default ``os.environ``.
        directory: the directory of the records; by default below the user's state directory.
        rules: the limits of restarts.
        notice: called with messages for the operator; by default they are logged.
        names: the names of all servers, on which the names of tools depend; by default those of ``servers``.

    Raises:
        ConfigError: two servers have the same name, or the registry already has tools of a server of that name.
    """
    env = dict(os.environ) if environ is None else environ
    used = [config for config in servers if not config.disabled]
    _check_names(registry, used)
    store = DefinitionStore(directory or state_directory(env))
    all_names = tuple(config.name for config in used) if names is None else tuple(names)
    sources = McpSources(store, all_names, notice)
    async with open_background_tasks() as tasks:
        with sources.attached(registry):
            for config in used:
                tasks.start_soon(sources.look_after, await sources.add(config, env, rules))
            yield sources
