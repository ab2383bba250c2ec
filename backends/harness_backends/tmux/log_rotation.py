"""Rotation of a pane's log, which bounds its growth and the time to search it."""

from __future__ import annotations

import shlex

from .keyboard import BUSY, next_log, release
from .link import ControlConnection
from .pane import Pane

__all__ = ["PIECE", "begin_log", "due", "rotate_log"]

PIECE = 16 << 20
"""Bytes after which a new piece is begun, between two commands; or a quarter of the limit, when that is less."""


def due(pane: Pane, limit: int) -> bool:
    """The piece is long enough, and nothing of ours is in the middle of it."""
    return pane.log_offset >= min(PIECE, limit // 4) and not pane.jobs and not pane.paused and not pane.gone


async def rotate_log(link: ControlConnection, pane: Pane) -> None:
    """Begin a new piece, unless somebody's command runs.

    Another harness that watches the session would look for its jobs in the old piece: then only a full one is left.
    """
    limit = link.setup.config.job_log_max_bytes
    if await _watched(link) and pane.log_offset < limit * 3 // 4:
        return
    if due(pane, limit):
        await begin_log(link, pane)


async def begin_log(link: ControlConnection, pane: Pane) -> None:
    """Begin a new piece, unless somebody's command runs."""
    setup = link.setup
    number = pane.log_number + 1
    freed = release(pane.pane_id, pane.place, pane.held) if pane.held else []
    blocks = await link.ask(*freed, next_log(pane.pane_id, setup.log_command(pane.uid, number)))
    pane.held = ""
    if any(block.text.startswith(BUSY) for block in blocks):
        return
    pane.log_number, pane.log_offset = number, 0
    kept = max(2, setup.config.jobs_max_bytes // PIECE)
    if number >= kept:
        await link.shell.call(f"rm -f {shlex.quote(f'{setup.log_dir(pane.uid)}/log.{number - kept}')}")


async def _watched(link: ControlConnection) -> bool:
    """Another harness is attached too."""
    clients = (await link.ask(("list-clients", "-F", "#{client_control_mode} #{client_flags}")))[-1].text
    return len([line for line in clients.splitlines() if line.startswith("1") and "no-output" not in line]) > 1
