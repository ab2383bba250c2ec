"""``harness shell``: the command."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from ...context import ExecutionContext
from ...errors import UnsupportedOperation
from ..foreground_program import exec_in_terminal
from ..options import command
from ..output import warn
from ..runtime import CliSession, TargetRequirements, on_target, session_of
from ..streams import Interruption, run_async

__all__ = ["shell"]


@command("shell")
@click.option("--read-only", is_flag=True, help="Watch only.")
@click.pass_context
def shell(ctx: click.Context, read_only: bool) -> int:
    """Open a terminal on the target's tmux session, and reconnect whenever the connection is lost.

    A missing session is created. Detach with Ctrl-b d; its processes keep running. The command ends when you detach,
    when the session ends, or with Ctrl-C while it reconnects. Keys typed in between are dropped.

    \b
    Example:
      harness shell --ssh deploy@web1
    """
    session = session_of(ctx)
    session.invocation.passes_codes = True
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UnsupportedOperation("shell needs a terminal", hint="harness run -- COMMAND needs none")
    _use_lasting_session(session)
    if session.settings.target.last.scheme == "local" and len(session.settings.target.hops) == 1:
        return _exec_client(session, read_only=read_only)
    from .local_terminal import LocalTerminal
    from .reconnecting import ReconnectingShell

    terminal = LocalTerminal(session.settings.target.last.host)
    reconnecting = ReconnectingShell(session, terminal, read_only=read_only)

    async def main(interruption: Interruption) -> int:
        with interruption.reaches():
            return await reconnecting.run()
        return 0  # cancelled; run_async returns the exit code

    try:
        with terminal.open():
            return run_async(main)
    except UnsupportedOperation as error:
        if "tmux_host" in error.hint:  # a session on this machine would not outlive the connection
            error.hint = "install tmux there"
        raise


def _use_lasting_session(session: CliSession) -> None:
    """Use a session on the target, and an engine whose connection tmux's client can use.

    Raises:
        UnsupportedOperation: The session could not outlive the connection.
    """
    config, target = session.settings.config, session.settings.target
    if config.image:
        raise UnsupportedOperation(
            "a temporary container ends with the connection, and its session with it",
            hint="use harness shell with --container NAME",
        )
    if config.tmux_host == "local":
        raise UnsupportedOperation(
            'with tmux_host = "local" the session is on this machine and ends with the connection',
            target=target,
            hint="harness attach attaches to it",
        )
    if config.record:
        warn("harness shell records nothing", as_json_document=session.json)
    config = replace(config, tmux_host="target", ssh_engine="openssh", record=False)
    session.settings = replace(session.settings, config=config)


def _exec_client(session: CliSession, *, read_only: bool) -> int:
    """Become a client of the session on this machine: there is no connection that could be lost."""
    words: list[str] = []

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        words.extend(target.attach_command_read_only if read_only else target.attach_command)

    code = on_target(session, work, TargetRequirements(terminal=True, create=True, pane=False))
    if not code:
        exec_in_terminal(words)
    return code
