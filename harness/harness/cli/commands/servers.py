"""``harness servers``: the MCP servers whose tools are offered, and which of their tools were accepted."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ...errors import ConfigError, HarnessError
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
"""Seconds that a server may take beyond its own limits until nobody waits for its tools any more."""


def servers_of(session: CliSession, tool: str = "") -> tuple[ServerConfig, ...]:
    """The configured servers that are not disabled; with ``tool`` those that may have the tool of that name.

    Raises:
        ConfigError: the settings are wrong.
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
) -> AsyncIterator[McpSources | None]:
    """Start servers and put their tools into a registry; entered when each has listed them or was given up.

    ``fresh``: what is known from an earlier run does not do, and no server waits for its first call. Without ``wait``
    it is entered at once, and tools come later. ``names`` are those of all servers, where ``configs`` are only some.
    """
    if not configs:
        yield None
        return
    configs = tuple(replace(server, lazy=server.lazy and not fresh) for server in configs)
    from ...mcp.client.sources import open_sources

    _quiet(session)
    async with open_sources(
        registry, configs, names=names, notice=lambda text: warn(text, as_json_document=session.json)
    ) as sources:
        limit = max(server.start_timeout + server.timeout for server in configs) + MARGIN
        if wait:
            await (sources.wait_settled(limit) if fresh else sources.wait_listed(limit))
        yield sources


def recorded_tools(session: CliSession) -> tuple[Registry, tuple[str, ...]]:
    """The tools that servers listed in an earlier run, as models see them. No server is started.

    Returns:
        The tools, and the names of the servers that have no record yet.

    Raises:
        ConfigError: the settings are wrong.
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
    """The tools of a registry, and those that servers listed in an earlier run; a server with a taken name is left out.

    Raises:
        ConfigError: the settings are wrong.
    """
    recorded, _ = recorded_tools(session)
    whole = registry.filter(lambda tool: True)
    for source in recorded.sources:
        with suppress(ValueError):
            whole.add_source(source, [tool for tool in recorded.list() if recorded.source_of(tool.name) == source])
    return whole


def _quiet(session: CliSession) -> None:
    """The library logs a traceback for what a server does wrong; what matters of it is in our own messages."""
    if session.invocation.verbose < LIBRARY_VERBOSE:
        for name in ("client", "mcp.client", "mcp.shared"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _with_one(session: CliSession, name: str, work: Callable[[McpSources], Coroutine[Any, Any, int]]) -> int:
    """Start one server and do something with it."""
    from ...toolkit import Registry

    configs = servers_of(session)
    chosen = tuple(server for server in configs if server.name == name)
    if not chosen:
        known = ", ".join(server.name for server in configs) or "none"
        raise ConfigError(f"there is no server {name!r}", hint=f"there are: {known}")

    async def main(interruption: Interruption) -> int:
        with interruption.reaches():
            names = tuple(server.name for server in configs)
            async with with_servers(session, chosen, Registry(), fresh=True, names=names) as sources:
                assert sources is not None
                return await work(sources)
        return 0  # cancelled, for which the caller has a code

    return run_async(main)


# -- list


@command("list")
@click.option("--check", is_flag=True, help="Start each server and say how it is.")
@click.pass_context
def list_servers(ctx: click.Context, check: bool) -> int:
    """List the servers and what is known of them; nothing is started without --check."""
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
        "pinned": bool(isinstance(reach, StdioLaunch) and reach.pin),
        "pin_tools": server.pin_tools,
        "origin": server.origin,
    }


def _show(session: CliSession, facts: list[dict[str, Any]], check: bool) -> None:
    if session.json:
        print_json(facts)
        return
    headers = ("NAME", "STATE", "TOOLS", "CHANGED", "RUNS", "FROM")
    shown = [(one, one["state"] or ("" if check else "not asked")) for one in facts]
    table(
        headers,
        [
            (one["name"], state, str(len(one["tools"])), " ".join(one["changed"]), one["runs"], one["origin"])
            for one, state in shown
        ],
    )


# -- show and accept


@command("show")
@click.argument("name")
@click.pass_context
def show(ctx: click.Context, name: str) -> int:
    """Start a server and print what it says of its tools, also of those that wait to be accepted."""
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
    """The name by which models, rules and ``tools call`` know a tool, then what rules see of it."""
    marks = [f"{server}/{tool['name']}", *(["changed, waits to be accepted"] if tool["changed"] else [])]
    return f"{tool['tool'] or 'not offered'} ({readable('; '.join(marks))}): {readable(str(tool['description']))}"


@command("accept")
@click.argument("name")
@click.argument("tools", nargs=-1, metavar="[TOOL]...")
@click.pass_context
def accept(ctx: click.Context, name: str, tools: tuple[str, ...]) -> int:
    """Accept tools of a server as they are now: those that are named, or all that changed. See them first with show."""
    session = session_of(ctx)

    async def work(sources: McpSources) -> int:
        _need(sources, name)
        changed = sources.changed(name)
        texts = {item.name: item.description for item in sources.definitions(name)}
        there = {local: remote for remote, local in sources.tool_names(name).items()}
        chosen = {tool if tool in texts else there.get(tool, tool) for tool in tools}
        if unknown := sorted(chosen - texts.keys()):
            listed = ", ".join(sorted(there)) or "none"
            raise ConfigError(f"server {name!r} has no tool {unknown[0]!r}", hint=f"there are: {listed}")
        accepted = {tool: texts[tool] for tool in changed if not chosen or tool in chosen}
        await sources.accept(name, chosen or None)
        if session.json:
            print_json({"server": name, "accepted": accepted})
        else:
            lines = [f"accepted: {tool}: {text}" for tool, text in accepted.items()]
            note(*lines or ["nothing waited to be accepted"])
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
    "The MCP servers whose tools are offered: list them, show and accept their tools.",
)
