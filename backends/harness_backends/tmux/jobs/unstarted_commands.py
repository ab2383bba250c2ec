"""Recovery of a typed command that did not start because of the state of the shell's line editor."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import chain, repeat

import anyio

from harness.errors import HarnessError

from ...posix.persistent_shell import PersistentShell
from ...posix.state_directory import STATE_RECREATED_NOTICE, JobStore
from ..channel.command_channel import CommandChannel
from ..pane.keyboard import INTERRUPT, Dispatch, type_text, unlock
from ..pane.pane_state import Pane
from ..pane.respawn_check import while_known
from ..setup import NewPane, log_files, shells_script
from ..sources.pane_source import PaneSource
from .pane_job import PaneJob

__all__ = [
    "drop_slot",
    "ensure_started",
    "give_slot_back",
    "has_read_slot",
    "recreate_pane_files",
    "take_slot",
]

CHECKS = (0.4, 0.8, 1.6)
"""Seconds between the checks whether it started, each of which may type it again."""
LAST_CHECKS = (0.8, 1.6, 3.2, 6.4, 12.8, 25.6)
"""Seconds between the later checks, which withdraw it once its shell waits for input; the last one repeats."""
PROMPT_WAIT = 0.5
SWALLOWED_NOTICE = "the pane's shell accepted the command but reported no start; it may have run"
BLOCKED_HINT = (
    "a function, alias, key binding or other change in that shell (set -n, a read-only variable, a limit,"
    " the terminal's mode) blocks harness; run exit in the pane to get a new shell, or kill the pane"
)


async def ensure_started(
    link: CommandChannel, store: JobStore, pane: Pane, job: PaneJob, action: Dispatch, source: PaneSource
) -> None:
    """Type a command again if its line became part of an open quote, a search or a repeat count.

    It cannot run twice: the first line that reads the pane's slot marks it as read, and it is not filled again. The
    slot is moved away before the C-c that resets the line editor, so that this C-c cannot interrupt the command. Lines
    for a nested shell have no slot, and are never typed again.
    """
    try:
        await _see_started(link, store, pane, job, action, source)
    finally:
        job.watched = False
        if not job.started:
            job.touch()


async def _see_started(
    link: CommandChannel, store: JobStore, pane: Pane, job: PaneJob, action: Dispatch, source: PaneSource
) -> None:
    last = ((seconds, True) for seconds in chain(LAST_CHECKS, repeat(LAST_CHECKS[-1])))
    for seconds, is_last in chain(((seconds, False) for seconds in CHECKS), last):
        with anyio.move_on_after(seconds):
            await job.done.wait()
        if action.lines or not _missing(pane, job):
            return
        try:
            if await source.has_read(pane, job):
                return
            if await _without_files(link, pane, job, action):
                await recreate_pane_files(link, store, pane)
                pane.withdraw_job(job)  # nothing of it ran, so that it is sent again
                return
            front = await source.inspector.foreground(pane)
            if not front.wants_input or not _missing(pane, job):
                continue
            if front.group == pane.shell.pid and is_last:
                await _withdraw(link, pane, job, action, source)
            elif front.group == pane.shell.pid:
                await _type_again(link, pane, job, action)
            elif is_last:
                return  # another program reads the keyboard
        except HarnessError:
            return  # the reconnect finds out whether it started


async def _without_files(link: CommandChannel, pane: Pane, job: PaneJob, action: Dispatch) -> bool:
    """Return whether the pane's files were deleted, so that its shell found nothing to run."""
    there = await link.shells.call(f"[ -e {shlex.quote(action.slot_path)} ] && echo there")
    await link.client.request(("display-message", "-p", ""))  # the shell's output until then has been read
    return not there.stdout and _missing(pane, job)


async def _withdraw(link: CommandChannel, pane: Pane, job: PaneJob, action: Dispatch, source: PaneSource) -> None:
    """Withdraw a job whose shell reads lines without running harness's, and add a notice for the caller."""
    slot = shlex.quote(action.slot_path)
    unread = f"{{ read -r id rest <{slot}; }} 2>/dev/null; case $id in '' | -) ;; *) : >{slot}; echo withdrawn ;; esac"
    reply = await link.shells.call(f"id=; {unread}")
    if not reply.stdout and await source.has_read(pane, job):
        return
    # When the answer arrives, the shell's output until then has been read.
    screen = (await link.client.request(("capture-pane", "-p", "-J", "-t", pane.pane_id)))[-1].text.rstrip()
    if _missing(pane, job) and job in pane.jobs:
        job.notices.append(f"{'the command did not start' if reply.stdout else SWALLOWED_NOTICE}: {BLOCKED_HINT}")
        job.notices.append(f"the screen shows:\n{screen}")
        await source.withdraw(pane, job)


def _missing(pane: Pane, job: PaneJob) -> bool:
    return not (job.started or job.done.is_set() or pane.gone or pane.paused or pane.held != job.job_id)


async def take_slot(shell: PersistentShell, slot: str, job_id: str) -> bool:
    """Move a pane's slot away, so that its shell finds nothing to run; return False if it has read the job."""
    path = shlex.quote(slot)
    script = f'id=; read -r id rest <{path}; [ "$id" = {job_id} ] && mv -f {path} {path}.away && echo away'
    return bool((await shell.call(f"{{ {script}; }} 2>/dev/null")).stdout)


async def has_read_slot(shell: PersistentShell, slot: str, job_id: str) -> bool:
    """Return whether a pane's shell has read the job in its slot."""
    reply = await shell.call(f'read -r id rest <{shlex.quote(slot)}; [ "$id" = {job_id} ] && echo yes')
    return not reply.stdout


async def give_slot_back(shell: PersistentShell, slot: str, job_id: str, *, wanted: bool) -> bool:
    """Move the slot back; return False if the shell has read the job after all, or it is not ``wanted``."""
    path = shlex.quote(slot)
    back = f"{_unread(path, job_id)} && mv -f {path}.away {path} && echo back || " if wanted else ""
    return bool((await shell.call(f"{back}rm -f {path}.away")).stdout)


async def drop_slot(shell: PersistentShell, slot: str, job_id: str) -> bool:
    """Delete the moved slot, so that keys find nothing to run; return False if the shell has read the job after all."""
    path = shlex.quote(slot)
    return bool((await shell.call(f"{_unread(path, job_id)} && echo unread; rm -f {path}.away")).stdout)


def _unread(path: str, job_id: str) -> str:
    """Return a test that fails if the shell has read the job, as it then writes a mark to the slot's old path."""
    return f'mark= id=; {{ read -r mark id <{path}; }} 2>/dev/null; [ "$mark$id" != -{job_id} ]'


async def _type_again(link: CommandChannel, pane: Pane, job: PaneJob, action: Dispatch) -> None:
    if not await take_slot(link.shells, action.slot_path, job.job_id):
        return
    changed, here = pane.changed, link.setup.here
    interrupt = unlock(pane.pane_id), *type_text(link.setup.version, pane.pane_id, INTERRUPT)
    await link.client.request(while_known(pane, *interrupt, here=here))
    with anyio.move_on_after(PROMPT_WAIT):
        await changed.wait()
        while pane.phase != "prompt":
            await pane.changed.wait()
    if await give_slot_back(link.shells, action.slot_path, job.job_id, wanted=_missing(pane, job)):
        await link.client.request(while_known(pane, *replace(action, slot=None, script="").again(), here=here))


async def recreate_pane_files(link: CommandChannel, store: JobStore, pane: Pane) -> None:
    """Recreate a pane's files in the state directory, with a new log; its shell keeps its state.

    Raises:
        ConnectionLost: the connection was lost meanwhile.
        TerminalError: tmux refused.
    """
    await store.remake()
    store.add_notice(STATE_RECREATED_NOTICE)
    setup, own = link.setup, pane.shells[0]
    new = NewPane(pane.name, pane.uid, own.nonce, own.kind)
    pid = shlex.quote(f"{setup.pane_dir(pane.uid)}/pid")
    await link.shells.call(f"{shells_script(setup, new)}echo {own.pid} >{pid}\n")
    if setup.here:
        await link.shell.call(f"umask 077\n{log_files(setup, new)}")
    await link.client.request(("pipe-pane", "-t", pane.pane_id, setup.log_command(pane.uid, 0)))
    pane.learn_log(0, 0)
