"""``harness panes`` and ``harness sessions``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from ..context import ExecutionContext
from ..results import PaneInfo, SessionInfo
from ..terminal import Sessions
from .commands import command, group
from .output import print_json, table
from .runtime import Needs, Session, on_target, session_of
from .streams import Interruption, run_async

__all__ = ["panes", "sessions"]


THIS_SESSION = Needs(terminal=True, pane=False)


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
    """Make a pane with a fresh shell, within the limit of the settings (max_panes). A missing session is made, too."""
    session = session_of(ctx)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        made = await target.create_pane(name, cwd=cwd)
        print_json(made) if session.json else click.echo(made.pane_id)

    return on_target(session, work, Needs(terminal=True, create=True, pane=False))


@command("kill")
@click.option("--force", is_flag=True, help="Also the default pane; the next command gets a new one.")
@click.argument("name")
@click.pass_context
def kill_pane(ctx: click.Context, force: bool, name: str) -> int:
    """End a pane and what runs in it. The default pane is protected, unless --force is given."""
    session = session_of(ctx)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        await target.kill_pane(name, force=force)
        if session.json:
            print_json({"killed": name})

    return on_target(session, work, THIS_SESSION)


def on_sessions(session: Session, work: Callable[[Sessions], Awaitable[None]]) -> int:
    """Do ``work`` on the target's sessions, attaching to none."""

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
    """Make a session, within the limit of the settings (max_sessions)."""
    session = session_of(ctx)

    async def work(target: Sessions) -> None:
        made = await target.create(name)
        print_json(made) if session.json else click.echo(made.name)

    return on_sessions(session, work)


@command("kill")
@click.argument("name")
@click.pass_context
def kill_session(ctx: click.Context, name: str) -> int:
    """End a session, its panes and what runs in them."""
    session = session_of(ctx)

    async def work(target: Sessions) -> None:
        await target.kill(name)
        if session.json:
            print_json({"killed": name})

    return on_sessions(session, work)


def _pane_row(pane: PaneInfo) -> tuple[str, ...]:
    name = f"{pane.name} (default)" if pane.default else pane.name
    size = f"{pane.width}x{pane.height}"
    return name, pane.pane_id, pane.session, size, pane.foreground, pane.cwd, pane.busy or "idle"


def _session_row(session: SessionInfo) -> tuple[str, ...]:
    name = f"{session.name} (default)" if session.default else session.name
    return name, str(session.attached), " ".join(pane.name for pane in session.panes)


panes = group("panes", "list", (list_panes, create_pane, kill_pane), "List, create and end the session's panes.")
sessions = group(
    "sessions", "list", (list_sessions, create_session, kill_session), "List, create and end tmux sessions."
)
