"""``harness servers``: the MCP servers whose tools are offered, and which of their tools were accepted."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ..errors import ConfigError, HarnessError
from .commands import command, group
from .exits import FAILED
from .output import note, print_json, readable, table, warn
from .runtime import Session, session_of
from .streams import Interruption, run_async

if TYPE_CHECKING:
    from ..mcp.client_config import ServerConfig
    from ..mcp.client_store import Known
    from ..mcp.sources import McpSources
    from ..toolkit import Registry

__all__ = ["servers", "servers_of", "with_servers"]

LIBRARY_VERBOSE = 3
MARGIN = 5.0
"""Seconds that a server may take beyond its own limits until nobody waits for its tools any more."""


def servers_of(session: Session, tool: str = "") -> tuple[ServerConfig, ...]:
    """The configured servers that are not disabled; with ``tool`` those that may have the tool of that name.

    Raises:
        ConfigError: the settings are wrong.
    """
    from ..mcp.client_files import load_servers

    found = load_servers(session.invocation.choices)
    for text in found.refused:
        warn(text, as_json_document=session.json)
    used = tuple(server for server in found.servers if not server.disabled)
    return tuple(server for server in used if not tool or tool.startswith(f"{server.name}_"))


@asynccontextmanager
async def with_servers(
    session: Session,
    configs: tuple[ServerConfig, ...],
    registry: Registry,
    *,
    fresh: bool = False,
    wait: bool = True,
) -> AsyncIterator[McpSources | None]:
    """Start servers and put their tools into a registry; entered when each has listed them or was given up.

    ``fresh``: what is known from an earlier run does not do, and no server waits for its first call. Without ``wait``
    it is entered at once, and tools come later.
    """
    if not configs:
        yield None
        return
    configs = tuple(replace(server, lazy=server.lazy and not fresh) for server in configs)
    from ..mcp.sources import open_sources

    _quiet(session)
    async with open_sources(
        registry, configs, notice=lambda text: warn(text, as_json_document=session.json)
    ) as sources:
        limit = max(server.start_timeout + server.timeout for server in configs) + MARGIN
        if wait:
            await (sources.wait_settled(limit) if fresh else sources.wait_listed(limit))
        yield sources


def _quiet(session: Session) -> None:
    """The library logs a traceback for what a server does wrong; what matters of it is in our own messages."""
    if session.invocation.verbose < LIBRARY_VERBOSE:
        for name in ("client", "mcp.client", "mcp.shared"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _with_one(session: Session, name: str, work: Callable[[McpSources], Coroutine[Any, Any, int]]) -> int:
    """Start one server and do something with it."""
    from ..toolkit import Registry

    configs = servers_of(session)
    chosen = tuple(server for server in configs if server.name == name)
    if not chosen:
        known = ", ".join(server.name for server in configs) or "none"
        raise ConfigError(f"there is no server {name!r}", hint=f"there are: {known}")

    async def main(interruption: Interruption) -> int:
        with interruption.reaches():
            async with with_servers(session, chosen, Registry(), fresh=True) as sources:
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
    from ..mcp.client_files import load_servers
    from ..mcp.client_store import DefinitionStore, state_directory
    from ..toolkit import Registry

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
    facts = [_facts(server, store.load(server), states.get(server.name)) for server in configs]
    _show(session, facts, check)
    return code or (FAILED if any(state != "ready" for state in states.values()) else 0)


def _state(state: str, reason: str) -> str:
    return state if state == "ready" or not reason else f"{state}: {reason}"


def _facts(server: ServerConfig, known: Known, state: str | None) -> dict[str, Any]:
    from ..mcp.client_config import StdioLaunch
    from ..mcp.client_store import changed_tools

    reach = server.reach
    how = reach.command[0].text if isinstance(reach, StdioLaunch) else reach.url.text.partition("?")[0]
    changed = changed_tools(known, known.definitions) if server.pin_tools else ()
    return {
        "name": server.name,
        "runs": how,
        "state": "disabled" if server.disabled else state,
        "tools": [definition.name for definition in known.definitions],
        "changed": sorted(changed),
        "pinned": bool(isinstance(reach, StdioLaunch) and reach.pin),
        "pin_tools": server.pin_tools,
        "origin": server.origin,
    }


def _show(session: Session, facts: list[dict[str, Any]], check: bool) -> None:
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
        changed = sources.changed(name)
        found = [
            {**definition.as_json(), "changed": definition.name in changed} for definition in sources.definitions(name)
        ]
        if session.json:
            print_json(found)
        for one in [] if session.json else found:
            mark = " (changed, waits to be accepted)" if one["changed"] else ""
            click.echo(f"{readable(str(one['name']))}{mark}: {readable(str(one['description']))}")
        return 0

    return _with_one(session, name, work)


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
        if unknown := sorted(set(tools) - {item.name for item in sources.definitions(name)}):
            raise ConfigError(f"server {name!r} has no tool {unknown[0]!r}")
        texts = {item.name: item.description for item in sources.definitions(name)}
        accepted = {tool: texts[tool] for tool in changed if not tools or tool in tools}
        await sources.accept(name, tools or None)
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
