"""Keeping a pane's log in pieces, so that it neither grows without end nor is searched from afar."""

from __future__ import annotations

import shlex

from .link import Link
from .pane import Pane

__all__ = ["PIECE", "due", "rotate_log"]

PIECE = 16 << 20
"""Bytes after which a new piece is begun, between two commands."""


def due(pane: Pane) -> bool:
    """The piece is long enough, and nothing of ours is in the middle of it."""
    return pane.log_offset >= PIECE and not pane.jobs and not pane.paused and not pane.gone


async def rotate_log(link: Link, pane: Pane) -> None:
    """Begin a new piece, unless another harness watches the session too: it would look for its jobs in the old one."""
    clients = (await link.request(("list-clients", "-F", "#{client_control_mode} #{client_flags}")))[-1].text
    watching = [line for line in clients.splitlines() if line.startswith("1") and "no-output" not in line]
    if len(watching) > 1 or not due(pane):
        return
    setup, number = link.setup, pane.log_number + 1
    pane.log_number, pane.log_offset = number, 0
    await link.request(("pipe-pane", "-t", pane.pane_id, setup.log_command(pane.uid, number)))
    kept = max(2, setup.config.jobs_max_bytes // PIECE)
    if number >= kept:
        await link.shell.call(f"rm -f {shlex.quote(f'{setup.log_dir(pane.uid)}/log.{number - kept}')}")
