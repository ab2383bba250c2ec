"""A check of a job's end: its shell must own the terminal again, and there is only one end."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass

from ...posix.state_directory import JobStore
from ..channel.command_channel import CommandChannel
from ..pane.foreground import inspect
from ..pane.pane_state import Pane
from .pane_job import PaneJob

__all__ = ["EndCheck"]

CLOCK_TICKS = 100
"""Clock ticks per second in Linux's /proc files."""
SLACK = 0.2
"""Seconds by which a process may seem older than it is."""
NAMES = {"ash": ("ash", "busybox", "sh"), "ksh": ("ksh", "mksh")}
BEHIND = "another program was using the terminal when its end was reported"
AGAIN = "its end was reported twice"


@dataclass(frozen=True, slots=True)
class EndCheck:
    """A check that sets a job's record to unknown if its end is false."""

    link: CommandChannel
    store: JobStore

    def question(self, pane: Pane) -> tuple[str, ...]:
        """Return the tmux command whose answer :meth:`check` takes; it is sent with those that release the pane."""
        return ("display-message", "-p", "-t", pane.pane_id, "#{pane_current_command}:#{pane_pid}:#{pane_tty}")

    async def check(self, pane: Pane, job: PaneJob, answer: str) -> None:
        """Compare the foreground program with the shell, and check further only if it is another one.

        Raises:
            ConnectionLost: the connection was lost meanwhile.
        """
        name, _, rest = answer.partition(":")
        pid, _, tty = rest.partition(":")
        shell = pane.shells[0]
        if job.nonce != shell.nonce or not job.secret or not shell.pid or not pid.isdecimal() or self.link.setup.here:
            return
        if name.lstrip("-") in NAMES.get(shell.kind, (shell.kind,)) or pane.running or pane.job is not None:
            return
        front = await inspect(self.link.shells, tty, int(pid))
        if front.group in (0, shell.pid) or not await self._is_older(front.group, job.ended_at):
            return
        await self.make_unknown(job, BEHIND)

    async def _is_older(self, process: int, ended: float) -> bool:
        """Return whether a process started before the job ended, as a prompt may start programs."""
        reply = await self.link.shells.call(
            f"hx_since {process}; hx_then=$hx_began; hx_since self; echo $hx_then $hx_began"
        )
        words = reply.text.split()
        if len(words) != 2 or not all(word.isdecimal() for word in words):
            return False
        age = (int(words[1]) - int(words[0])) / CLOCK_TICKS
        return age > time.monotonic() - ended + SLACK

    async def check_again(self, pane: Pane) -> None:
        """Check whether an end was reported twice since the last check.

        Raises:
            ConnectionLost: the connection was lost meanwhile.
        """
        while pane.ended_twice:
            await self.make_unknown(pane.ended_twice.pop(), AGAIN)

    async def make_unknown(self, job: PaneJob, why: str) -> None:
        """Set a job's record to unknown, and add a notice to the next result."""
        path = shlex.quote(self.store.path(job.job_id, "exit"))
        await self.link.shells.call(f"umask 077\necho 128 unknown >{path}.new && mv -f {path}.new {path}")
        self.store.add_notice(f"job {job.job_id} is unknown: {why}")
