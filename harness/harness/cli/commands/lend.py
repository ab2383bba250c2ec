"""``harness lend``: which panes of the operator's own tmux harness may type into."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import click

from ...context import ExecutionContext
from ...errors import UnsupportedOperation
from ...results import PaneInfo
from ...terminal import CURRENT_TMUX
from ..completed_names import complete_operator_pane
from ..options import NO_LIMIT, command, time_limit_option
from ..output import note, print_json, table
from ..runtime import CliSession, TargetRequirements, on_target, session_of
from ..streams import Interruption

__all__ = ["lend"]

_SHORT = 120
"""Seconds up to which a remaining time is shown in seconds."""


@command("lend")
@time_limit_option("--for", "duration", default=None, help="End the lend after TIME.")
@click.option("--end", is_flag=True, help="End the lend of these panes, or of all.")
@click.argument("panes", metavar="[PANE]...", nargs=-1, shell_complete=complete_operator_pane)
@click.pass_context
def lend(ctx: click.Context, duration: float | None, end: bool, panes: tuple[str, ...]) -> int:
    """Lend panes of your own tmux, so that harness may type into them; without PANE, list those that are lent.

    PANE is tmux's id, such as %3, or SESSION:WINDOW.PANE. A lend ends with the pane's program, with the tmux server,
    after --for, or with --end; a pane that is lent already gets the new time. Run this at a shell prompt in a pane
    that is not lent.

    \b
    Examples:
      harness lend %3 --for 30m
      harness --tmux current exec 'why does the build in %3 fail?'
      harness lend --end
    """
    if duration is not None and (end or not panes):
        raise click.UsageError("--for needs a PANE to lend, and no --end")
    session = session_of(ctx)
    session.settings = replace(session.settings, tmux=_only_current(session))

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        lent = await _lent(target)
        if end:
            await _change(session, target.end_lend, panes or tuple(pane.pane_id for pane in lent), ())
        elif panes:
            seconds = None if duration in (None, NO_LIMIT) else duration
            await _change(session, partial(target.lend_pane, duration=seconds), panes, lent)
        else:
            _show_list(session, lent)

    return on_target(session, work, TargetRequirements(terminal=True, pane=False))


def _only_current(session: CliSession) -> str:
    """Return the operator's own tmux.

    Raises:
        UnsupportedOperation: Another session was chosen.
    """
    chosen = session.invocation.choices.tmux
    if isinstance(chosen, str) and chosen != CURRENT_TMUX:
        raise UnsupportedOperation(f"panes of your own tmux are lent, and none of session {chosen!r}")
    return CURRENT_TMUX


async def _lent(target: ExecutionContext) -> list[PaneInfo]:
    return [pane for pane in await target.list_panes() if pane.lent]


async def _change(
    session: CliSession, change: Callable[[str], Awaitable[PaneInfo]], panes: Sequence[str], lent: Sequence[PaneInfo]
) -> None:
    """Lend panes, or end their lends, and show each that changed, also if a later one fails.

    Args:
        session: The command's session.
        change: Changes one pane.
        panes: The panes to change.
        lent: The panes whose earlier lends are replaced.
    """
    changed: list[PaneInfo] = []
    try:
        for pane in panes:
            changed.append(await change(pane))
    finally:
        if changed or not panes:
            _show(session, changed, {pane.pane_id: _until(pane) for pane in lent})


def _show(session: CliSession, panes: list[PaneInfo], before: Mapping[str, str]) -> None:
    if session.json:
        print_json(panes)
        return
    if not panes:
        note("no pane is lent")
    for pane in panes:
        what = f"lent{_until(pane)}" if pane.lent else "not lent"
        if pane.pane_id in before:
            what += f" (before: lent{before[pane.pane_id]})"
        note(f"pane {pane.pane_id} ({pane.name}, {pane.foreground}): {what}")


def _show_list(session: CliSession, panes: list[PaneInfo]) -> None:
    if session.json:
        print_json(panes)
        return
    if not panes:
        note("no pane is lent")
    rows = [(pane.pane_id, pane.name, pane.foreground, pane.cwd, _until(pane).strip() or "ended") for pane in panes]
    table(("PANE", "NAME", "RUNS", "DIRECTORY", "LENT"), rows)


def _until(pane: PaneInfo) -> str:
    if pane.lent_until is None:
        return " until ended"
    seconds = max(0, round(pane.lent_until - time.time()))
    return f" for {seconds} s" if seconds < _SHORT else f" for {round(seconds / 60)} min"
