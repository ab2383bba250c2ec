"""``harness mcp serve``: serve harness's tools to MCP clients."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from anyio import to_thread

from ....context import ExecutionContext
from ....errors import ConfigError
from ....extras import install_extra
from ...exits import SIGNALLED
from ...options import RenamedOption, command, group
from ...output import note, print_json, warn
from ...runtime import CliSession, announced, session_of
from ...streams import Interruption
from ..fleet.options import FleetOptions, fleet_options
from ..fleet.session import SessionTarget, target_of
from ..servers import servers_of, with_servers
from .install import install

if TYPE_CHECKING:
    from ....mcp.server.http import Token
    from ....mcp.server.main import ToolServer
    from ....system.http_server import Address

__all__ = ["mcp"]


@command("serve", many_hosts=True)
@fleet_options(session=True)
@click.option("--http", "address", metavar="HOST:PORT", help="Listen on HOST:PORT (HTTP) instead of stdin/stdout.")
@click.option("--token-file", metavar="FILE", help="Read the HTTP bearer token from FILE; created if missing.")
@click.option(
    "--allow-host",
    "names",
    metavar="NAME",
    multiple=True,
    help="Accept this host name in HTTP requests, too; repeatable.",
)
@click.option("--allow-remote", is_flag=True, help="Allow an address that other machines can reach, unencrypted.")
@click.option(
    "--tool-profile",
    "profile",
    cls=RenamedOption,
    old="--profile",
    metavar="NAME",
    help="Use this tool profile; none: harness's own names.",
)
@click.pass_context
def serve(
    ctx: click.Context,
    address: str | None,
    token_file: str | None,
    names: tuple[str, ...],
    allow_remote: bool,
    profile: str | None,
    fleet: FleetOptions,
) -> int:
    """Serve the tools to MCP clients: one over stdin and stdout, or many over HTTP with a token.

    With --hosts, --inventory or several --ssh the tools have the argument hosts: each call names some of the hosts.

    It exits when its stdio client disconnects, or on SIGTERM or Ctrl-C; jobs on the target keep running.
    """
    session = session_of(ctx)
    _check_extra()
    if address is None and (token_file or names or allow_remote):
        raise click.UsageError("--token-file, --allow-host and --allow-remote need --http")
    target = target_of(session, fleet)
    opened = partial(_open, session, profile)
    code = (
        _stdio(target, opened) if address is None else _http(target, opened, address, token_file, names, allow_remote)
    )
    return 0 if code == SIGNALLED + signal.SIGTERM else code  # clients stop a server with SIGTERM


def _check_extra() -> None:
    try:
        import mcp.server  # noqa: F401 # only to check that it is installed
    except ImportError:
        raise ConfigError("the server needs the extra mcp", hint=install_extra("mcp")) from None


_Opened = Callable[..., Awaitable["ToolServer"]]
"""A function that opens a server for an execution context, on an exit stack, with variables that hold secrets."""


def _stdio(target: SessionTarget, opened: _Opened) -> int:
    from ....system.protocol_stdio import claimed_stdio

    with claimed_stdio() as wire:

        async def work(execution: ExecutionContext, interruption: Interruption) -> None:
            async with AsyncExitStack() as stack:
                server = await opened(execution, stack)
                await server.serve_stdio(wire)

        return target.run(work)


def _http(
    target: SessionTarget,
    opened: _Opened,
    text: str,
    token_file: str | None,
    names: tuple[str, ...],
    allow_remote: bool,
) -> int:
    from ....mcp.server.http import VARIABLE, check_address, deny_token_file, find_token
    from ....system.http_server import check_names, parse_address

    session = target.session
    address = parse_address(text)
    check_address(address, allow_remote=allow_remote)
    check_names(names)
    token = find_token(token_file)
    os.environ.pop(VARIABLE, None)  # commands on this machine inherit the rest

    async def work(execution: ExecutionContext, interruption: Interruption) -> None:
        async with AsyncExitStack() as stack:
            server = await opened(execution, stack, {VARIABLE: token.secret}, token.file)
            try:
                await to_thread.run_sync(deny_token_file, token, server.toolkit.rules)
            except ConfigError as error:
                warn(f"cannot protect {token.file} from agents: {error}", as_json_document=session.json)
            await server.serve_http(address, token, names, lambda found: _announce(session, found, token))

    return target.run(work)


def _announce(session: CliSession, address: Address, token: Token) -> None:
    from ....mcp.server.http import mcp_url

    url = mcp_url(address)
    if session.json:
        print_json({"url": url, "token_from": token.origin})
    else:
        note(f"listening on {url}; the token is in {token.origin}")


async def _open(
    session: CliSession,
    profile: str | None,
    execution: ExecutionContext,
    stack: AsyncExitStack,
    secrets: Mapping[str, str] | None = None,
    secret_file: Path | None = None,
) -> ToolServer:
    from importlib.metadata import version

    from ....mcp.server.main import ToolServer, server_settings_of
    from ....settings import load_tables
    from ....toolkit import Registry
    from ....toolkit.assembly import load_toolkit_settings, open_toolkit

    choices = session.invocation.choices
    settings = server_settings_of(load_tables("mcp", choices))
    notifier = await stack.enter_async_context(session.notified("mcp"))
    variables = dict(session.settings.config.env) | dict(secrets or {})
    chosen = load_toolkit_settings(choices)
    if secret_file is not None:
        kept = replace(chosen.permissions, secret_paths=(*chosen.permissions.secret_paths, str(secret_file)))
        chosen = replace(chosen, permissions=kept)
    toolkit = await stack.enter_async_context(open_toolkit(chosen, profile=profile, variables=variables))
    for problem in toolkit.problems:
        warn(problem, as_json_document=session.json)
    sources = await stack.enter_async_context(with_servers(session, servers_of(session), Registry(), wait=False))
    announcement = await stack.enter_async_context(announced(session, "mcp"))
    return ToolServer(toolkit, execution, settings, version("harness-ops"), sources, announcement, notifier)


TEXT = "Serve the tools to MCP clients, and add the server to a client.\n\n'harness mcp' is 'harness mcp serve'."

mcp = group("mcp", "serve", (serve, install), TEXT)
