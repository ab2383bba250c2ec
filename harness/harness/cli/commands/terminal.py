"""``harness panes``, ``sessions``, ``capture``, ``keys`` and ``attach``: tmux sessions and their panes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import click

from ...context import ExecutionContext
from ...errors import UnsupportedOperation
from ...results import PaneInfo, SessionInfo
from ...terminal import Sessions
from ..completed_names import complete_pane, complete_session
from ..foreground_program import exec_in_terminal
from ..options import RenamedOption, command, group, pause_option
from ..output import print_json, read_stdin, table
from ..runtime import LOOKS, CliSession, TargetRequirements, on_target, session_of
from ..streams import Interruption, StreamWriter, run_async
from .fleet.options import FleetOptions, fleet_options

__all__ = [
    "attach",
    "capture",
    "keys",
    "panes",
    "sessions",
]


# -- ``harness panes`` and ``harness sessions``.


THIS_SESSION = TargetRequirements(terminal=True, pane=False)


@command("list")
@click.pass_context
def list_panes(ctx: click.Context) -> int:
    """List the session's managed panes."""
    session = session_of(ctx)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        found = await target.list_panes()
        if session.json:
            print_json(found)
        else:
            table(("NAME", "PANE", "SESSION", "SIZE", "RUNS", "DIRECTORY", "STATE"), [_pane_row(one) for one in found])

    return on_target(session, work, THIS_SESSION)


@command("create")
@click.option("--cwd", metavar="DIR", help="Start its shell in DIR.")
@click.argument("name")
@click.pass_context
def create_pane(ctx: click.Context, cwd: str | None, name: str) -> int:
    """Create a pane with a new shell, within the limit of max_panes; a missing session is created, too."""
    session = session_of(ctx)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        made = await target.create_pane(name, cwd=cwd)
        print_json(made) if session.json else click.echo(made.pane_id)

    return on_target(session, work, TargetRequirements(terminal=True, create=True, pane=False))


@command("kill")
@click.option("--force", is_flag=True, help="Kill even the default pane; the next command creates a new one.")
@click.argument("name", shell_complete=complete_pane)
@click.pass_context
def kill_pane(ctx: click.Context, force: bool, name: str) -> int:
    """Kill a pane and its processes. The default pane is protected, unless --force is given."""
    session = session_of(ctx)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        await target.kill_pane(name, force=force)
        if session.json:
            print_json({"killed": name})

    return on_target(session, work, THIS_SESSION)


def on_sessions(session: CliSession, work: Callable[[Sessions], Awaitable[None]]) -> int:
    """Run ``work`` on the target's tmux sessions, without attaching to one, and return the exit code."""

    async def main(interruption: Interruption) -> int:
        async with session.open_sessions() as sessions:
            await work(sessions)
        return 0

    return run_async(main)


@command("list")
@click.pass_context
def list_sessions(ctx: click.Context) -> int:
    """List the managed sessions on the target."""
    session = session_of(ctx)

    async def work(target: Sessions) -> None:
        found = await target.list()
        if session.json:
            print_json(found)
        else:
            table(("NAME", "ATTACHED", "PANES"), [_session_row(one) for one in found])

    return on_sessions(session, work)


@command("create")
@click.argument("name")
@click.pass_context
def create_session(ctx: click.Context, name: str) -> int:
    """Create a session, within the limit of max_sessions."""
    session = session_of(ctx)

    async def work(target: Sessions) -> None:
        made = await target.create(name)
        print_json(made) if session.json else click.echo(made.name)

    return on_sessions(session, work)


@command("kill")
@click.argument("name", shell_complete=complete_session)
@click.pass_context
def kill_session(ctx: click.Context, name: str) -> int:
    """Kill a session, its panes and their processes."""
    session = session_of(ctx)

    async def work(target: Sessions) -> None:
        await target.kill(name)
        if session.json:
            print_json({"killed": name})

    return on_sessions(session, work)


def _pane_row(pane: PaneInfo) -> tuple[str, ...]:
    name = f"{pane.name} (default)" if pane.default else pane.name
    size = f"{pane.width}x{pane.height}"
    state = pane.busy or "idle" if pane.lent is None else "lent" if pane.lent else "not lent"
    return name, pane.pane_id, pane.session, size, pane.foreground, pane.cwd, state


def _session_row(session: SessionInfo) -> tuple[str, ...]:
    name = f"{session.name} (default)" if session.default else session.name
    return name, str(session.attached), " ".join(pane.name for pane in session.panes)


panes = group("panes", "list", (list_panes, create_pane, kill_pane), "List, create and kill the session's panes.")
sessions = group(
    "sessions", "list", (list_sessions, create_session, kill_session), "List, create and kill tmux sessions."
)


# -- ``harness capture``, ``keys`` and ``attach``.


class Line(click.ParamType[object]):
    """A line number as tmux counts lines, or ``-``."""

    name = "line"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | Literal["-"]:
        text = str(value)
        if text == "-":
            return "-"
        try:
            return int(text)
        except ValueError:
            self.fail(f"{text!r} is not a line number: write a number, or '-' for the first or last line", param, ctx)


@command("capture", many_hosts=True)
@click.option(
    "--job", "job_id", metavar="ID", help="Print this job's output, found in the scrollback by its prompt tags."
)
@click.option(
    "--start", type=Line(), metavar="LINE", help="Start at this line; 0 is the top of the screen, - the oldest."
)
@click.option("--end", type=Line(), metavar="LINE", help="End at this line; - is the bottom of the screen.")
@click.option("--escapes", is_flag=True, help="Keep colors, as escape sequences.")
@click.option(
    "--escape-controls",
    "visible_controls",
    cls=RenamedOption,
    old="--visible-controls",
    is_flag=True,
    help="Print non-printable characters as \\ooo.",
)
@click.option("--keep-spaces", is_flag=True, help="Keep spaces at the ends of lines.")
@click.option("--no-join", is_flag=True, help="Do not join wrapped lines.")
@click.option(
    "--alternate-screen",
    "alternate",
    cls=RenamedOption,
    old="--alternate",
    is_flag=True,
    help="Capture the main screen that a full-screen program hides.",
)
@pause_option("--delay", default=None, help="Wait this long first.")
@fleet_options()
@click.pass_context
def capture(
    ctx: click.Context,
    job_id: str | None,
    start: int | Literal["-"] | None,
    end: int | Literal["-"] | None,
    escapes: bool,
    visible_controls: bool,
    keep_spaces: bool,
    no_join: bool,
    alternate: bool,
    delay: float | None,
    fleet: FleetOptions,
) -> int:
    """Print the pane's screen, or lines of its scrollback.

    With --hosts, --inventory or several --ssh, equal screens are printed once, with the hosts' names.
    """
    session = session_of(ctx)
    how: dict[str, Any] = {
        "job_id": job_id,
        "start": start,
        "end": end,
        "include_escape_sequences": escapes,
        "escape_non_printable": visible_controls,
        "preserve_trailing_spaces": keep_spaces,
        "join_wrapped_lines": not no_join,
        "include_alternate_screen": alternate,
        "delay": delay or 0.0,
    }
    facts = {"pane": session.settings.pane, "job_id": job_id}
    if fleet.used_by(session.invocation):
        from .fleet.views import capture_on_fleet

        return capture_on_fleet(session, fleet, how, facts=facts)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        text = await target.capture_pane(**how)
        if session.json:
            print_json({"text": text, **facts})
        else:
            ending = "" if text.endswith("\n") or not text else "\n"
            StreamWriter(1, interruption).write((text + ending).encode("utf-8", "surrogateescape"))

    return on_target(session, work, LOOKS)


@command("keys")
@click.option("--text", metavar="TEXT", help="Type TEXT first, literally.")
@click.option("--stdin", is_flag=True, help="Type standard input first, for text that must not be in arguments.")
@click.option("--enter", is_flag=True, help="Press Enter at the end.")
@pause_option("--delay", default=None, help="Wait this long first.")
@click.argument("names", metavar="[KEY]...", nargs=-1)
@click.pass_context
def keys(
    ctx: click.Context, text: str | None, stdin: bool, enter: bool, delay: float | None, names: tuple[str, ...]
) -> int:
    """Type into the pane: TEXT, then KEYs by their tmux names (C-c, Up, F1, Escape), then Enter."""
    if text is None and not (names or enter or stdin):
        raise click.UsageError("nothing to type: give KEYs, --text, --stdin or --enter")
    if text is not None and stdin:
        raise click.UsageError("--text and --stdin contradict each other")
    session = session_of(ctx)
    literal = read_stdin() if stdin else text

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        await target.send_keys(names, literal_text=literal, enter=enter, delay=delay or 0.0)
        if session.json:
            print_json({"sent": True})

    return on_target(session, work, LOOKS)


@command("attach", many_hosts=True)
@click.option("--read-only", is_flag=True, help="Watch only.")
@click.option("--print", "print_only", is_flag=True, help="Print the command instead of running it.")
@fleet_options()
@click.pass_context
def attach(ctx: click.Context, read_only: bool, print_only: bool, fleet: FleetOptions) -> int:
    """Attach to the tmux session, to watch or to take over.

    The session must exist; without --tmux it is the configured one. Detach with Ctrl-b d; its processes keep running.

    With --hosts, --inventory or several --ssh, each host's session is in a pane of tmux on this machine, 16 in a
    window: in new windows of the current session inside tmux, else in a tmux server that ends when you leave it with
    Ctrl-b d. Type Ctrl-b twice for a key of the host's tmux.
    """
    session = session_of(ctx)
    if not (print_only or session.json) and not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UnsupportedOperation("attach needs a terminal", hint="--print prints the command to run in a terminal")
    if fleet.used_by(session.invocation):
        from .fleet.attach import attach_to_fleet

        return attach_to_fleet(session, fleet, read_only=read_only, print_only=print_only)
    words: list[str] = []

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        words.extend(target.attach_command_read_only if read_only else target.attach_command)

    code = on_target(session, work, TargetRequirements(terminal=True, pane=False))
    if code:
        return code
    if session.json:
        print_json({"argv": words})
    elif print_only:
        click.echo(shlex.join(words))
    else:
        exec_in_terminal(words)
    return 0
