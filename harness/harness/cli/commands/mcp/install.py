"""``harness mcp install``: add the server to the configuration of an MCP client."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ....errors import ConfigError
from ....login import LoginQuestion, TerminalPrompter
from ....mcp.installation.clients import CLIENTS, check_name, plan_installation
from ....target import mask_password
from ....terminal import CURRENT_TMUX
from ...completed_names import complete_file
from ...exits import FAILED
from ...options import command
from ...output import note, print_json, readable
from ...runtime import CliSession, session_of
from ...streams import Interruption, run_async
from ..fleet.options import FleetOptions, fleet_options

if TYPE_CHECKING:
    from ....mcp.installation.clients import Installation
    from ...options import Invocation

__all__ = ["install"]


# -- The options of this command, repeated for another program.

_VALUES: Mapping[str, str] = {
    "config_file": "--config",
    "ssh_config": "-F",
    "identity": "-i",
    "ssh_options": "-o",
    "connect_timeout": "--connect-timeout",
    "target": "--target",
    "ssh": "--ssh",
    "container": "--container",
    "engine": "--engine",
    "image": "--image",
    "image_memory": "--memory",
    "image_cpus": "--cpus",
    "image_network": "--network",
    "image_mounts": "--mount",
    "pane": "--pane",
}
"""Fields of the choices that are the value of an option, or its values."""
_FLAGS: Mapping[str, str] = {"dedicated_connection": "--dedicated-connection", "record": "--record"}
_FILES = frozenset({"config_file", "ssh_config", "identity"})
"""Fields that name a file, which the other process may look for in another directory."""
_CONNECTION = frozenset({"config_file", "ssh_config", "identity", "ssh_options", "connect_timeout", "engine"})


def harness_program() -> str:
    """Return the absolute path of this program.

    Raises:
        ConfigError: It was not started as a program.
    """
    found = shutil.which(sys.argv[0])
    if found is None or Path(sys.argv[0]).suffix == ".py":
        raise ConfigError(f"{sys.argv[0]} is not the program harness", hint="run the installed 'harness'")
    return str(Path(found).absolute())


def option_words(invocation: Invocation) -> list[str]:
    """Return the options that reach the target of an invocation; files have absolute paths.

    Raises:
        ConfigError: The target has a password, which other users of the machine would see.
    """
    words: list[str] = []
    for name, option in _VALUES.items():
        for value in _values(invocation, name):
            if mask_password(value) != value:
                raise ConfigError(
                    "the target has a password, which does not belong into a file or a command line",
                    hint="use a key, or a named target in the settings",
                )
            words += [option, value]
    choices = invocation.choices
    words += [option for name, option in _FLAGS.items() if getattr(choices, name)]
    if choices.tmux is not None:
        named = isinstance(choices.tmux, str)
        words.append(f"--tmux={choices.tmux}" if named else "--tmux" if choices.tmux else "--no-tmux")
    return words


def _values(invocation: Invocation, name: str) -> list[str]:
    if name in invocation.several:
        return list(invocation.several[name])
    value = getattr(invocation.choices, name)
    if isinstance(value, tuple):
        return [_with_absolute_source(one) for one in value] if name == "image_mounts" else list(value)
    if value is None:
        return []
    return [str(Path(value).expanduser().absolute()) if name in _FILES else str(value)]


def _with_absolute_source(mount: str) -> str:
    """Return a mount ``./DIRECTORY:...`` with the directory's absolute path; others are unchanged."""
    source, colon, rest = mount.partition(":")
    is_relative = source in (".", "..") or source.startswith(("./", "../"))
    return f"{Path(source).resolve()}{colon}{rest}" if is_relative else mount


def name_of_target(invocation: Invocation, *patterns: str) -> str:
    """Return a name of letters, digits and ``-`` that says which target the options reach; empty for this machine.

    Args:
        invocation: The options.
        patterns: The host patterns that were given in addition.
    """
    fields = [name for name in _VALUES if name not in _CONNECTION and not name.startswith("image_")]
    words = [value for name in fields for value in _values(invocation, name)]
    plain = [word.rpartition("://")[2].rpartition("@")[2] for word in (*words, *patterns)]
    return re.sub(r"[^A-Za-z0-9]+", "-", " ".join(plain)).strip("-")[:50].rstrip("-")


# -- The command.


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
    _check_tmux(session)
    hosts = [word for pattern in fleet.patterns for word in ("--hosts", pattern)]
    inventory = ["--inventory", str(Path(fleet.inventory).expanduser().absolute())] if fleet.inventory else []
    chosen = ["--tool-profile", profile] if profile else []
    words = [harness_program(), *option_words(session.invocation), "mcp", *hosts, *inventory, *chosen]
    target = name_of_target(session.invocation, *fleet.patterns)
    server = check_name(name or f"harness-{target}".rstrip("-"))
    planned = plan_installation(client, server, words, file)
    return _carry_out(session, client, server, words, planned, only_print=only_print, yes=yes)


def _check_tmux(session: CliSession) -> None:
    """Refuse the operator's own tmux: a client starts its servers outside it.

    Raises:
        ConfigError: The options or the settings choose it.
    """
    if session.settings.tmux == CURRENT_TMUX:
        raise ConfigError(
            "a client cannot use --tmux current: it starts its servers outside your tmux",
            hint="use --tmux NAME for a session that harness creates, or --no-tmux",
        )


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
        ConfigError: No terminal is available, or questions are forbidden.
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
