"""``harness mcp install``: add the server to the configuration of an MCP client."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ....errors import ConfigError
from ....login import LoginQuestion, TerminalPrompter
from ....mcp.installation.clients import CLIENTS, check_name, plan_installation
from ...completed_names import complete_file
from ...exits import FAILED
from ...options import command
from ...output import note, print_json, readable
from ...repeated_options import harness_program, name_of_target, option_words
from ...runtime import CliSession, session_of
from ...streams import Interruption, run_async
from ..fleet.options import FleetOptions, fleet_options

if TYPE_CHECKING:
    from ....mcp.installation.clients import Installation

__all__ = ["install"]


@command("install", many_hosts=True)
@click.argument("client", metavar="CLIENT", type=click.Choice(sorted(CLIENTS)))
@click.option("--name", metavar="NAME", help="Name of the server in the client (default: harness, with the target).")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    shell_complete=complete_file,
    help="Change this file instead of the client's usual one.",
)
@click.option("--tool-profile", "profile", metavar="NAME", help="Let the server use this tool profile.")
@click.option("--print", "only_print", is_flag=True, help="Show the change, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@fleet_options(session=True)
@click.pass_context
def install(
    ctx: click.Context,
    client: str,
    name: str | None,
    file: Path | None,
    profile: str | None,
    only_print: bool,
    yes: bool,
    fleet: FleetOptions,
) -> int:
    """Add this server to the configuration of an MCP client, after showing the change.

    CLIENT is claude-code, claude-desktop, codex, cursor, gemini, opencode, vscode or zed.

    The client starts harness with the options given here. Other entries and comments of the file are kept; an entry of
    the same name is replaced (codex: refused); a copy of the old file stays next to it. claude-code and vscode have a
    file in the current directory, the others one in your home directory.

    \b
    Example:
      harness --ssh web1 --tmux mcp install zed
    """
    session = session_of(ctx)
    hosts = [word for pattern in fleet.patterns for word in ("--hosts", pattern)]
    inventory = ["--inventory", str(Path(fleet.inventory).expanduser().absolute())] if fleet.inventory else []
    chosen = ["--tool-profile", profile] if profile else []
    words = [harness_program(), *option_words(session.invocation), "mcp", *hosts, *inventory, *chosen]
    target = name_of_target(session.invocation, *fleet.patterns)
    server = check_name(name or f"harness-{target}".rstrip("-"))
    planned = plan_installation(client, server, words, file)
    return _carry_out(session, client, server, words, planned, only_print=only_print, yes=yes)


def _carry_out(
    session: CliSession,
    client: str,
    server: str,
    words: list[str],
    planned: Installation,
    *,
    only_print: bool,
    yes: bool,
) -> int:
    shown = {"client": client, "file": str(planned.path), "name": server, "command": words}
    if not session.json and planned.changes:
        for line in planned.diff():
            click.echo(readable(line))
    if only_print or not planned.changes:
        if session.json:
            print_json({**shown, "changed": False, "would_change": planned.changes, "backup": None})
        elif not planned.changes:
            note(f"{planned.path} has the server {server} already")
        return 0
    if not yes and (code := _ask(session, planned)):
        note("nothing was changed")
        return code
    backup = planned.write()
    if session.json:
        print_json({**shown, "changed": True, "would_change": True, "backup": backup and str(backup)})
        return 0
    title, restart = CLIENTS[client].title, CLIENTS[client].restart
    kept = f" (the old file is {backup})" if backup else ""
    note(f"{title} has the server {server} in {planned.path}{kept}; {restart}")
    return 0


def _ask(session: CliSession, planned: Installation) -> int:
    """Ask at the terminal, and return 0 or the exit code.

    Raises:
        ConfigError: There is no terminal, or questions are forbidden.
    """
    prompter = TerminalPrompter()
    if session.json or session.invocation.batch or not prompter.usable():
        raise ConfigError("nothing was changed: nobody can be asked here", hint="--yes changes it, --print shows it")
    does = "replace the entry in" if planned.replaces else "write" if planned.before is not None else "create"
    answers: list[str | None] = []

    async def ask(question: str, interruption: Interruption) -> int:
        with interruption.reaches():
            answers.append(await prompter.answer(LoginQuestion("other", question, False, "")))
        return 0

    code = run_async(partial(ask, f"harness: {does} {readable(str(planned.path))}? [y/N] "))
    if code or not answers:
        return code or FAILED
    return 0 if (answers[0] or "").strip().lower() in {"y", "yes"} else FAILED
