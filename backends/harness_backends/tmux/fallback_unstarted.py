"""Recovery of a typed command that the shell's line editor did not accept.

Like :mod:`.unstarted_commands`, for a pane without a live stream: the shell marks its slot as read, which is checked.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from harness.errors import HarnessError

from .fallback_panes import FallbackPane
from .job import PaneJob
from .keyboard import INTERRUPT, Dispatch, type_text, unlock
from .unstarted_commands import give_slot_back, take_slot

if TYPE_CHECKING:
    from .fallback_runner import FallbackRunner

__all__ = ["WITHDRAWN", "ensure_accepted"]

CHECKS = (0.5, 1.0, 2.0)
"""Seconds between the checks whether it started."""
PROMPT_WAIT = 0.3
WITHDRAWN = "128 unknown"
"""The content of the exit file of a withdrawn command."""
HINDERED = (
    "the command did not start: pending input or a change in the pane's shell blocked it (a key binding,"
    " set -n, a read-only variable, a limit, the terminal's mode); clear it with send_keys (C-c, or exit and Enter)"
)


async def ensure_accepted(runner: FallbackRunner, known: FallbackPane, job: PaneJob, action: Dispatch) -> None:
    """Type a command again up to three times, then withdraw it; it cannot run twice, as a slot is read once."""
    try:
        for seconds in CHECKS:
            with anyio.move_on_after(seconds):
                await job.done.wait()
            if job.done.is_set() or not await _untaken(runner, known, job):
                return
            front = await runner.foreground(known)
            if front.group == known.facts.pid and front.wants_input:
                await _type_again(runner, known, job, action)
        await anyio.sleep(CHECKS[0])
        front = await runner.foreground(known)
        if front.group == known.facts.pid and front.wants_input and await _untaken(runner, known, job):
            job.notices.append(HINDERED)
            await _withdraw(runner, known, job)
    except HarnessError:
        return  # the watch continues, and the deadline ends the wait


def _slot(runner: FallbackRunner, known: FallbackPane) -> str:
    return f"{runner.tmux.setup.pane_dir(known.row.uid)}/next"


async def _untaken(runner: FallbackRunner, known: FallbackPane, job: PaneJob) -> bool:
    slot = shlex.quote(_slot(runner, known))
    reply = await runner.shell.call(f'read -r id rest <{slot}; [ "$id" = {job.job_id} ] && echo yes')
    return bool(reply.stdout)


async def _type_again(runner: FallbackRunner, known: FallbackPane, job: PaneJob, action: Dispatch) -> None:
    pane, slot = known.row.pane_id, _slot(runner, known)
    if not await take_slot(runner.shell, slot, job.job_id):
        return
    await runner.tmux.request(unlock(pane), *type_text(runner.tmux.setup.version, pane, INTERRUPT))
    await anyio.sleep(PROMPT_WAIT)
    if await give_slot_back(runner.shell, slot, job.job_id, wanted=not job.done.is_set()):
        await runner.tmux.request(*replace(action, script="").again())


async def _withdraw(runner: FallbackRunner, known: FallbackPane, job: PaneJob) -> None:
    path, slot = shlex.quote(runner.store.path(job.job_id, "exit")), shlex.quote(_slot(runner, known))
    await runner.shell.call(f"umask 077; : >{slot}; [ -s {path} ] || echo {WITHDRAWN} >{path}")
