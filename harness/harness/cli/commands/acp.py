"""``harness acp``: an agent for editors, by the Agent Client Protocol over stdin and stdout."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from anyio import to_thread

from ...context import ExecutionContext
from ...errors import ConfigError
from ...extras import install_extra
from ..completed_names import complete_model
from ..conversation import ConversationStart, open_conversation
from ..exits import SIGNALLED
from ..options import command
from ..output import warn
from ..runtime import CliSession, announced, observers_of, session_of
from ..streams import Interruption, run_async
from .fleet.conversation_hosts import options_to_store
from .fleet.options import FleetOptions, fleet_options
from .fleet.session import SessionTarget, target_of
from .servers import servers_of, with_servers

if TYPE_CHECKING:
    from ...acp.agent import EditorServer, OpenAgents, SessionStart
    from ...agent.agent import Agent
    from ...mcp.client.configuration import ServerConfig
    from ...toolkit.assembly import Toolkit

__all__ = ["acp"]


@command("acp", many_hosts=True)
@fleet_options(session=True)
@click.option(
    "--model", metavar="NAME", default="", shell_complete=complete_model, help="Use this model profile of the settings."
)
@click.option("--tool-profile", "profile", metavar="NAME", help="Use this tool profile; none: harness's own names.")
@click.pass_context
def acp(ctx: click.Context, model: str, profile: str | None, fleet: FleetOptions) -> int:
    """Serve an agent to an editor by the Agent Client Protocol, over stdin and stdout.

    The editor starts it, shows its answers, calls and changes, and asks you for approvals. It works on the target of
    the options given here. It exits when the editor disconnects, or on SIGTERM; jobs on the target keep running.

    \b
    Example, as the editor's command line:
      harness --ssh web1 --tmux acp
    """
    session = session_of(ctx)
    if importlib.util.find_spec("acp") is None:
        raise ConfigError("the agent for editors needs the extra acp", hint=install_extra("acp"))
    served = _Served(target_of(session, fleet), model, profile)
    code = _serve(served)
    return 0 if code == SIGNALLED + signal.SIGTERM else code  # editors stop an agent with SIGTERM


def _serve(served: _Served) -> int:
    from importlib.metadata import version

    from ...acp.agent import serve_editor
    from ...acp.transport import open_transport
    from ...system.protocol_stdio import claimed_stdio

    with claimed_stdio() as wire:

        async def main(interruption: Interruption) -> int:
            with interruption.reaches():
                async with open_transport(wire) as transport:
                    await serve_editor(transport, served.open, version("harness-ops"))
            return 0

        return run_async(main)


@dataclass(frozen=True, slots=True)
class _Served:
    """What an editor's agents work with, opened for the first session."""

    where: SessionTarget
    model: str
    profile: str | None

    @property
    def session(self) -> CliSession:
        return self.where.session

    def warn(self, text: str) -> None:
        warn(text, as_json_document=self.session.json)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[OpenAgents]:
        """Open the target and what all sessions share."""
        from ...agent.models import load_models
        from ...agent.opening import HumanHandlers, load_agent, with_agent_pack
        from ...agent.provider_keys import withhold_keys
        from ...agent.settings import load_agent_settings
        from ...toolkit.assembly import load_toolkit_settings, open_toolkit
        from ...toolkit.registry import Registry

        session, choices = self.session, self.session.invocation.choices
        await to_thread.run_sync(load_agent)
        withhold_keys(choices)
        models = load_models(choices)
        settings = load_agent_settings(choices)
        chosen = with_agent_pack(load_toolkit_settings(choices))
        tmux = session.settings.tmux
        tmux = tmux if isinstance(tmux, str) else session.settings.config.session if tmux else ""
        start = ConversationStart(
            profile=models.profile(self.model),
            settings=settings,
            handlers=HumanHandlers(),
            tool_profile=self.profile,
            tmux=tmux,
            options=options_to_store(self.where),
            models=models,
            config_file=choices.config_file,
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(session.notified("acp"))
            execution = await stack.enter_async_context(self.where.open())
            servers = with_servers(session, servers_of(session), Registry(), wait=False)
            sources = await stack.enter_async_context(servers)
            toolkit = await stack.enter_async_context(
                open_toolkit(chosen, profile=self.profile, variables=dict(session.settings.config.env))
            )
            for problem in toolkit.problems:
                self.warn(problem)
            start = replace(
                start,
                servers=sources,
                observers=await stack.enter_async_context(observers_of(session, settings, toolkit.redactor, execution)),
                announcement=await stack.enter_async_context(announced(session, "acp")),
                notifier=session.notifier,
            )
            yield partial(self._open_agent, start, execution, toolkit)

    @asynccontextmanager
    async def _open_agent(
        self, start: ConversationStart, execution: ExecutionContext, toolkit: Toolkit, opened: SessionStart
    ) -> AsyncIterator[Agent]:
        from ...agent.opening import HumanHandlers
        from ...agent.storage import ConversationStore
        from ...toolkit.registry import Registry

        session, cwd = self.session, await to_thread.run_sync(_directory, execution, opened.directory)
        own = servers_of(session)
        configs, problems = editor_servers(opened.servers, [server.name for server in own])
        names = tuple(server.name for server in (*own, *configs))

        def notice(text: str) -> None:
            self.warn(text)
            opened.notices.append(text)

        for problem in problems:
            notice(problem)
        begun = replace(
            start,
            handlers=HumanHandlers(opened.approver),
            cwd=cwd,
            project=Path(opened.directory),
            session_id=opened.conversation,
        )
        async with (
            with_servers(session, configs, Registry(), names=names, notice=notice) as sources,
            open_conversation(begun, execution, toolkit, ConversationStore()) as conversation,
        ):
            for line in (*conversation.in_flight.splitlines(), *conversation.files.notices):
                notice(line)
            with nullcontext() if sources is None else sources.attached(conversation.agent.executor.registry):
                yield conversation.agent


def editor_servers(servers: Sequence[EditorServer], taken: Sequence[str]) -> tuple[tuple[ServerConfig, ...], list[str]]:
    """Return the configurations of the MCP servers that an editor names, and why some are not used. Pure.

    Args:
        servers: The servers.
        taken: The names of the operator's own servers, which have precedence.
    """
    from ...mcp.client.configuration import server_config

    if servers and importlib.util.find_spec("mcp") is None:
        return (), [f"the editor's MCP servers are not used: they need the extra mcp ({install_extra('mcp')})"]
    found: dict[str, ServerConfig] = {}
    problems = []
    for server in servers:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", server.name).strip("-_")[:32]
        values = _server_values(server)
        if name in found or name in taken:
            problems.append(f"the editor's MCP server {name!r} is not used: another one has the same name")
        elif values is None:
            problems.append(
                f"the editor's MCP server {name!r} is not used: only stdio and streamable HTTP are supported"
            )
        elif "${" in str(values):
            problems.append(f"the editor's MCP server {name!r} is not used: its settings have a reference ${{...}}")
        else:
            try:
                found[name] = server_config(name, values, "the editor")
            except ConfigError as error:
                problems.append(f"an MCP server is not used: {error}")
    return tuple(found.values()), problems


def _server_values(server: EditorServer) -> dict[str, Any] | None:
    """Return a server of an editor as a settings table; None if its transport is not supported. Pure."""
    from acp.schema import McpServerHttp, McpServerStdio

    match server:
        case McpServerStdio():
            env = {variable.name: variable.value for variable in server.env}
            return {"command": [server.command], "args": list(server.args), "env": env}
        case McpServerHttp():
            return {"url": server.url, "headers": {header.name: header.value for header in server.headers}}
    return None


def _directory(execution: ExecutionContext, directory: str) -> str | None:
    """Return where the calls of a session start; None if the editor's directory is not one of the target.

    Raises:
        ConfigError: It does not exist.
    """
    hops = execution.target.hops
    if execution.has_terminal or len(hops) != 1 or hops[0].scheme != "local":
        return None
    if not os.path.isdir(directory):
        raise ConfigError(f"the directory of the session does not exist: {directory}")
    return directory
