"""``harness top``: the command, and its output without the dashboard."""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec

import anyio
import click

from ...errors import ConfigError, HarnessError
from ...extras import install_extra
from ...system.account import account_name
from ..options import command
from ..output import print_json, table
from ..runtime import CliSession, session_of
from ..streams import Interruption, run_async

__all__ = ["top"]

SNAPSHOT_TIMEOUT = 5.0
"""Seconds that processes have to answer for one snapshot; a stopped one does not."""
ONCE = "harness top --once prints one table, harness top --json one JSON document"


@command("top")
@click.option("--once", is_flag=True, help="Print the table once and exit.")
@click.option("--read-only", is_flag=True, help="Only watch: take no approvals, pauses or kills.")
@click.option("--name", metavar="NAME", help="Your name in audit logs; the default is that of your account.")
@click.pass_context
def top(ctx: click.Context, once: bool, read_only: bool, name: str | None) -> int:
    """Show all sessions, agents, fleets and jobs of harness on this machine, and act on them.

    Approve and deny waiting calls, pause agents, interrupt and kill, follow output, attach. It shows the processes of
    this user on this machine, as they change. ? lists the keys. With --json, print one snapshot and exit.
    """
    session = session_of(ctx)
    if session.json or once:
        return run_async(lambda interruption: _print_once(session, interruption))
    _check_possible()
    if session.invocation.color is False:
        os.environ["NO_COLOR"] = "1"
    from .app import run_dashboard

    return run_dashboard("" if read_only else name or account_name())


def _check_possible() -> None:
    """Check that the dashboard can be drawn.

    Raises:
        HarnessError: No terminal is available, or Textual is not installed.
    """
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise HarnessError("the dashboard needs a terminal", hint=ONCE)
    if find_spec("textual") is None:
        raise ConfigError("the dashboard needs the extra view", hint=f"{install_extra('view')}; {ONCE}")


async def _print_once(session: CliSession, interruption: Interruption) -> int:
    from ...live.overview import open_overview
    from .rows import COLUMNS, cells_of, ordered, rows_of, sessions_of, snapshot

    with interruption.reaches():
        async with open_overview() as overview:
            with anyio.move_on_after(SNAPSHOT_TIMEOUT):
                await overview.wait_complete()
            if session.json:
                print_json(snapshot(overview.processes.values()))
            else:
                rows, now = ordered(rows_of(sessions_of(overview.processes.values())), "started"), time.time()
                table(COLUMNS, [cells_of(row, now) for row in rows])
    return 0
