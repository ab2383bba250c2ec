"""Rotation of a pane's log, which bounds its growth and the time to search it."""

from __future__ import annotations

import shlex

from .channel.control_connection import ControlConnection
from .keyboard import BUSY, next_log, release
from .pane import Pane

__all__ = ["PIECE", "begin_log", "due", "rotate_log"]

PIECE = 16 << 20
"""Bytes after which a new piece is started between two commands, or a quarter of the limit if that is less."""


def due(pane: Pane, limit: int) -> bool:
    """Return whether the piece is long enough, and no job of this process is writing to it."""
    return pane.log_offset >= min(PIECE, limit // 4) and not pane.jobs and not pane.paused and not pane.gone


async def rotate_log(link: ControlConnection, pane: Pane) -> None:
    """Start a new piece, unless a command is running.

    Another attached harness would look for its jobs in the old piece, so a piece is then used up to three quarters of
    the limit.
    """
    limit = link.setup.config.job_log_max_bytes
    if await _watched(link) and pane.log_offset < limit * 3 // 4:
        return
    if not due(pane, limit):
        return
    newest, size = await _newest(link, pane)
    if newest > pane.log_number:  # begun by another harness, which had counted more of the pane's output
        pane.log_number, pane.log_offset = newest, size
        return
    await begin_log(link, pane)


async def _newest(link: ControlConnection, pane: Pane) -> tuple[int, int]:
    """Return the number and the size of the newest piece."""
    folder = shlex.quote(link.setup.log_dir(pane.uid))
    reply = await link.shell.call(f'cd {folder} && for f in log.*; do echo "${{f#log.}} $(wc -c <"$f")"; done')
    found = [line.split() for line in reply.text.splitlines()]
    return max(((int(words[0]), int(words[1])) for words in found if len(words) == 2), default=(0, 0))


async def begin_log(link: ControlConnection, pane: Pane) -> None:
    """Start a new piece, unless a command is running."""
    setup = link.setup
    number = max(pane.log_number, (await _newest(link, pane))[0]) + 1
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
    """Return whether another harness is attached too."""
    clients = (await link.ask(("list-clients", "-F", "#{client_control_mode} #{client_flags}")))[-1].text
    return len([line for line in clients.splitlines() if line.startswith("1") and "no-output" not in line]) > 1
