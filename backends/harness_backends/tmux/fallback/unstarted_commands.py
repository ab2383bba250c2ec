"""Recovery of a typed command that the shell's line editor did not accept.

Like :mod:`.unstarted_commands`, for a pane without a live stream: the shell marks its slot as read, which is checked.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import chain, repeat

import anyio

from harness.errors import HarnessError

from ...posix.persistent_shell import PersistentShell
from ...posix.state_directory import JobStore
from ..channel.single_commands import SingleCommands
from ..jobs.pane_job import PaneJob
from ..jobs.unstarted_commands import LAST_CHECKS, give_slot_back, take_slot
from ..pane.foreground import inspect
from ..pane.keyboard import INTERRUPT, Dispatch, type_text, unlock
from .pane_table import FallbackPane

__all__ = ["WITHDRAWN", "ensure_accepted"]

CHECKS = (0.5, 1.0, 2.0)
"""Seconds between the checks whether it started, each of which may type it again."""
PROMPT_WAIT = 0.3
WITHDRAWN = "128 unknown"
"""The content of the exit file of a withdrawn command."""
HINDERED = (
    "the command did not start: pending input or a change in the pane's shell blocked it (a key binding,"
    " set -n, a read-only variable, a limit, the terminal's mode); clear it with send_keys (C-c, or exit and Enter)"
)


async def ensure_accepted(
    tmux: SingleCommands, shell: PersistentShell, store: JobStore, known: FallbackPane, job: PaneJob, action: Dispatch
) -> None:
    """Type a command again up to three times, then withdraw it; it cannot run twice, as a slot is read once."""
    slot = f"{tmux.setup.pane_dir(known.row.uid)}/next"
    try:
        for seconds in CHECKS:
            if await _taken_within(seconds, shell, slot, job):
                return
            if await _at_prompt(shell, known):
                await _type_again(tmux, shell, slot, known, job, action)
        for seconds in chain(LAST_CHECKS, repeat(LAST_CHECKS[-1])):
            if await _taken_within(seconds, shell, slot, job):
                return
            if await _at_prompt(shell, known) and await _untaken(shell, slot, job):
                job.notices.append(HINDERED)
                await _withdraw(shell, store, slot, job)
                return
    except HarnessError:
        return  # the watch continues, and the deadline ends the wait


async def _taken_within(seconds: float, shell: PersistentShell, slot: str, job: PaneJob) -> bool:
    """Wait; return whether the pane's shell has read the job by then."""
    with anyio.move_on_after(seconds):
        await job.done.wait()
    return job.done.is_set() or not await _untaken(shell, slot, job)


async def _at_prompt(shell: PersistentShell, known: FallbackPane) -> bool:
    front = await inspect(shell, known.row.tty, known.row.pid)
    return front.group == known.facts.pid and front.wants_input


async def _untaken(shell: PersistentShell, slot: str, job: PaneJob) -> bool:
    reply = await shell.call(f'read -r id rest <{shlex.quote(slot)}; [ "$id" = {job.job_id} ] && echo yes')
    return bool(reply.stdout)


async def _type_again(
    tmux: SingleCommands, shell: PersistentShell, slot: str, known: FallbackPane, job: PaneJob, action: Dispatch
) -> None:
    pane = known.row.pane_id
    if not await take_slot(shell, slot, job.job_id):
        return
    await tmux.request(unlock(pane), *type_text(tmux.setup.version, pane, INTERRUPT))
    await anyio.sleep(PROMPT_WAIT)
    if await give_slot_back(shell, slot, job.job_id, wanted=not job.done.is_set()):
        await tmux.request(*replace(action, script="").again())


async def _withdraw(shell: PersistentShell, store: JobStore, slot: str, job: PaneJob) -> None:
    path = shlex.quote(store.path(job.job_id, "exit"))
    await shell.call(f"umask 077; : >{shlex.quote(slot)}; [ -s {path} ] || echo {WITHDRAWN} >{path}")
