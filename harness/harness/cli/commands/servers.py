"""``harness servers``: list the configured MCP servers, show and accept their tools."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ...errors import ConfigError, HarnessError
from ..completed_names import complete_server
from ..exits import FAILED
from ..options import command, group
from ..output import note, print_json, readable, table, warn
from ..runtime import CliSession, session_of
from ..streams import Interruption, run_async

if TYPE_CHECKING:
    from ...mcp.client.configuration import ServerConfig
    from ...mcp.client.definitions import KnownTools
    from ...mcp.client.sources import McpSources
    from ...toolkit import Registry

__all__ = ["recorded_tools", "servers", "servers_of", "with_recorded", "with_servers"]

LIBRARY_VERBOSE = 3
MARGIN = 5.0
"""Seconds beyond a server's own timeouts after which harness stops waiting for its tools."""


def servers_of(session: CliSession, tool: str = "") -> tuple[ServerConfig, ...]:
    """Return the configured servers that are not disabled; with ``tool``, those that may have a tool of that name.

    Raises:
        ConfigError: The settings are invalid.
    """
    from ...mcp.client.configuration import load_servers

    found = load_servers(session.invocation.choices)
    for text in found.refused:
        warn(text, as_json_document=session.json)
    used = tuple(server for server in found.servers if not server.disabled)
    return tuple(server for server in used if not tool or tool.startswith(f"{server.name}_"))


@asynccontextmanager
async def with_servers(
    session: CliSession,
    configs: tuple[ServerConfig, ...],
    registry: Registry,
    *,
    fresh: bool = False,
    wait: bool = True,
    names: tuple[str, ...] | None = None,
    notice: Callable[[str], None] | None = None,
) -> AsyncIterator[McpSources | None]:
    """Start servers and register their tools; entered once each server has listed them, failed or timed out.

    Args:
        session: The command's session.
        configs: The servers to start.
        registry: The registry that gets their tools.
        fresh: Ignore the tools recorded in an earlier run, and start every server before its first call.
        wait: False enters at once; tools are registered later.
        names: The names of all servers, if ``configs`` are only some of them.
        notice: Called with what the operator is told; None writes it to standard error.

    Yields:
        The open servers; None without ``configs``.
    """
    if not configs:
        yield None
        return
    configs = tuple(replace(server, lazy=server.lazy and not fresh) for server in configs)
    from ...mcp.client.sources import open_sources

    _quiet(session)
    told = notice or partial(warn, as_json_document=session.json)
    async with open_sources(registry, configs, names=names, notice=told) as sources:
        limit = max(server.start_timeout + server.timeout for server in configs) + MARGIN
        if wait:
            await (sources.wait_settled(limit) if fresh else sources.wait_listed(limit))
        yield sources


def recorded_tools(session: CliSession) -> tuple[Registry, tuple[str, ...]]:
    """Return the tools that servers listed in an earlier run, as models see them, without starting a server.

    Returns:
        The tools, and the names of the servers without a record.

    Raises:
        ConfigError: The settings are invalid.
    """
    from ...toolkit import Registry

    configs = servers_of(session)
    if not configs:
        return Registry(), ()
    from ...mcp.client.definitions import DefinitionStore, state_directory
    from ...mcp.client.sources import open_sources

    store, registry, found = DefinitionStore(state_directory(os.environ)), Registry(), list[Registry]()
    recorded = tuple(replace(server, lazy=True) for server in configs if store.load(server).definitions)
    names = tuple(server.name for server in configs)

    async def main(interruption: Interruption) -> int:
        async with open_sources(registry, recorded, names=names, notice=lambda text: None):
            found.append(registry.filter(lambda tool: True))
        return 0

    run_async(main)
    listed = {server.name for server in recorded}
    return found[0], tuple(name for name in names if name not in listed)


def with_recorded(session: CliSession, registry: Registry) -> Registry:
    """Return a registry's tools and those that servers listed in an earlier run; omit servers whose names conflict.

    Raises:
        ConfigError: The settings are invalid.
    """
    recorded, _ = recorded_tools(session)
    whole = registry.filter(lambda tool: True)
    for source in recorded.sources:
        with suppress(ValueError):
            whole.add_source(source, [tool for tool in recorded.list() if recorded.source_of(tool.name) == source])
    return whole


def _quiet(session: CliSession) -> None:
    """Silence the MCP library, which logs tracebacks for errors of servers; harness reports these itself."""
    if session.invocation.verbose < LIBRARY_VERBOSE:
        for name in ("client", "mcp.client", "mcp.shared"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _with_one(session: CliSession, name: str, work: Callable[[McpSources], Coroutine[Any, Any, int]]) -> int:
    """Start one server, run ``work`` with it and return the exit code."""
    from ...toolkit import Registry

    configs = servers_of(session)
    chosen = tuple(server for server in configs if server.name == name)
    if not chosen:
        known = ", ".join(server.name for server in configs) or "none"
        raise ConfigError(f"unknown server {name!r}", hint=f"there are: {known}")

    async def main(interruption: Interruption) -> int:
        with interruption.reaches():
            names = tuple(server.name for server in configs)
            async with with_servers(session, chosen, Registry(), fresh=True, names=names) as sources:
                assert sources is not None
                return await work(sources)
        return 0  # cancelled; run_async returns the exit code

    return run_async(main)


# -- list


@command("list")
@click.option("--check", is_flag=True, help="Start each server and report its status.")
@click.pass_context
def list_servers(ctx: click.Context, check: bool) -> int:
    """List the configured servers; without --check, none is started."""
    from ...mcp.client.configuration import load_servers
    from ...mcp.client.definitions import DefinitionStore, state_directory
    from ...toolkit import Registry

    session = session_of(ctx)
    configs = load_servers(session.invocation.choices).servers
    used = servers_of(session)
    states: dict[str, str] = {}

    async def main(interruption: Interruption) -> int:
        with interruption.reaches():
            async with with_servers(session, used, Registry(), fresh=True) as sources:
                found = sources.states if sources is not None else {}
                states.update({name: _state(state.state, state.reason) for name, state in found.items()})
        return 0

    code = run_async(main) if check else 0
    store = DefinitionStore(state_directory(os.environ))
    names = tuple(server.name for server in used)
    facts = [_facts(server, store.load(server), states.get(server.name), names) for server in configs]
    _show(session, facts, check)
    return code or (FAILED if any(state != "ready" for state in states.values()) else 0)


def _state(state: str, reason: str) -> str:
    return state if state == "ready" or not reason else f"{state}: {reason}"


def _facts(server: ServerConfig, known: KnownTools, state: str | None, names: tuple[str, ...]) -> dict[str, Any]:
    from ...mcp.client.configuration import StdioLaunch
    from ...mcp.client.definitions import changed_tools, local_name

    reach = server.reach
    how = reach.command[0].text if isinstance(reach, StdioLaunch) else reach.url.text.partition("?")[0]
    changed = changed_tools(known, known.definitions) if server.pin_tools else ()
    return {
        "name": server.name,
        "runs": how,
        "state": "disabled" if server.disabled else state,
        "tools": [definition.name for definition in known.definitions],
        "tool_names": [local_name(server.name, definition.name, names) for definition in known.definitions],
        "changed": sorted(changed),
        "pinned": bool(isinstance(reach, StdioLaunch) and reach.program_sha256),
        "pin_tools": server.pin_tools,
        "origin": server.origin,
    }


def _show(session: CliSession, facts: list[dict[str, Any]], check: bool) -> None:
    if session.json:
        print_json(facts)
        return
    headers = ("NAME", "STATE", "TOOLS", "CHANGED", "RUNS", "FROM")
    shown = [(one, one["state"] or ("" if check else "not checked")) for one in facts]
    table(
        headers,
        [
            (one["name"], state, str(len(one["tools"])), " ".join(one["changed"]), one["runs"], one["origin"])
            for one, state in shown
        ],
    )


# -- show and accept


@command("show")
@click.argument("name", shell_complete=complete_server)
@click.pass_context
def show(ctx: click.Context, name: str) -> int:
    """Start a server and print its tools, including changed ones that are not accepted yet."""
    session = session_of(ctx)

    async def work(sources: McpSources) -> int:
        _need(sources, name)
        changed, names = sources.changed(name), sources.tool_names(name)
        found: list[dict[str, Any]] = [
            {"tool": names.get(item.name), **item.as_json(), "changed": item.name in changed}
            for item in sources.definitions(name)
        ]
        if session.json:
            print_json(found)
        for one in [] if session.json else found:
            click.echo(_tool_line(name, one))
        return 0

    return _with_one(session, name, work)


def _tool_line(server: str, tool: dict[str, Any]) -> str:
    """Return a line with a tool's name for models and rules, its name at the server, and its description."""
    marks = [f"{server}/{tool['name']}", *(["changed, not accepted yet"] if tool["changed"] else [])]
    return f"{tool['tool'] or 'not offered'} ({readable('; '.join(marks))}): {readable(str(tool['description']))}"


@command("accept")
@click.argument("name", shell_complete=complete_server)
@click.argument("tools", nargs=-1, metavar="[TOOL]...")
@click.pass_context
def accept(ctx: click.Context, name: str, tools: tuple[str, ...]) -> int:
    """Accept the current definitions of the named tools, or of all changed ones; 'show' prints them."""
    session = session_of(ctx)

    async def work(sources: McpSources) -> int:
        _need(sources, name)
        changed = sources.changed(name)
        texts = {item.name: item.description for item in sources.definitions(name)}
        there = {local: remote for remote, local in sources.tool_names(name).items()}
        chosen = {tool if tool in texts else there.get(tool, tool) for tool in tools}
        if unknown := sorted(chosen - texts.keys()):
            listed = ", ".join(sorted(there)) or "none"
            raise ConfigError(f"server {name!r} has no tool {unknown[0]!r}", hint=f"its tools: {listed}")
        accepted = {tool: texts[tool] for tool in changed if not chosen or tool in chosen}
        await sources.accept(name, chosen or None)
        if session.json:
            print_json({"server": name, "accepted": accepted})
        else:
            lines = [f"accepted: {tool}: {text}" for tool, text in accepted.items()]
            note(*lines or ["no changed tools to accept"])
        return 0

    return _with_one(session, name, work)


def _need(sources: McpSources, name: str) -> None:
    state = sources.states[name]
    if state.state != "ready":
        raise HarnessError(f"server {name!r} is unavailable: {state.reason or state.state}")


servers = group(
    "servers",
    "list",
    (list_servers, show, accept),
    "List the configured MCP servers, show and accept their tools.",
)
