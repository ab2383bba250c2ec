"""Ending a command in a pane: interrupt, TERM, KILL, its shell too where that would go on, and the proof."""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import anyio

from harness.errors import HarnessError
from harness.results import Status

from ..posix.jobprocesses import PaneProcesses, goes_on, signal_job
from ..posix.shell import HeldShell
from ..posix.state import JobStore
from .job import PaneJob
from .link import Link
from .pane import Pane
from .plain import PlainTmux

__all__ = ["END_TIMEOUT", "TERM_GRACE", "Ending", "end_unless_ended"]

START_GRACE = 0.5
INTERRUPT_GRACE = 1.0
AGAIN_AFTER = 0.3
YOUNG = 3.0
"""Seconds. A job of less may still be at its first program."""
TERM_GRACE = 2.0
KILL_GRACE = 3.0
END_TIMEOUT = 10.0
"""How long the end of a command is waited for."""
LOOK_AGAIN = 0.1
SHELL_ENDED = "it did not end on C-c, so its shell was ended first: what follows in the command did not run"


@dataclass(frozen=True, slots=True)
class Ending:
    """Ends jobs. A shell whose program is killed goes on with what follows, unless a C-c was what ended the program."""

    link: Link | PlainTmux
    shell: HeldShell
    store: JobStore

    async def end(self, pane: Pane, job: PaneJob, status: Status, session: int, signal: str, grace: float) -> None:
        """Have a job end with ``status``, or as unknown where its end and death are not proved."""
        job.ending = status
        await _started(job)
        young = time.monotonic() - job.began < YOUNG
        where = PaneProcesses(session, f"{self.link.setup.pane_dir(pane.uid)}/pid", 0.0, _nested(pane, job))
        with suppress(HarnessError):  # a C-c may end the parents of what is in a session of its own
            where = await self._signal(where, job, "0")
        await self._interrupt(pane)
        await _ended(job, AGAIN_AFTER if young else INTERRUPT_GRACE)
        if young and not job.done.is_set():  # a shell that is just starting a program loses it now and then
            await self._interrupt(pane)
            await _ended(job, INTERRUPT_GRACE)
        for name, seconds in ((signal, grace), ("KILL", KILL_GRACE)):
            stop = not job.done.is_set() and (name == "KILL" or goes_on(job.command.command))
            if stop:
                job.notices.append(SHELL_ENDED)
            where = await self._signal(where, job, name, end_shell=stop)
            if await self._gone(where, job, seconds):
                break
        await self._conclude(where, job, status)

    async def _interrupt(self, pane: Pane) -> None:
        await self.link.request(("select-pane", "-t", pane.pane_id, "-e"), ("send-keys", "-t", pane.pane_id, "C-c"))

    async def _signal(self, where: PaneProcesses, job: PaneJob, name: str, *, end_shell: bool = False) -> PaneProcesses:
        return await signal_job(self.shell, replace(where, age=time.monotonic() - job.began), name, end_shell=end_shell)

    async def _gone(self, where: PaneProcesses, job: PaneJob, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await job.done.wait()
            while (await self._signal(where, job, "0")).known:  # noqa: ASYNC110  # it cannot signal us
                await anyio.sleep(LOOK_AGAIN)
            return True
        return False

    async def _conclude(self, where: PaneProcesses, job: PaneJob, status: Status) -> None:
        if job.done.is_set() and not (await self._signal(where, job, "0")).known:
            await self._record(job, status)
            job.status = status
            job.exit_code = job.exit_code if status is Status.INTERRUPTED else None
        else:
            job.notices.append("it was told to stop, and is not proved gone")
            job.finish(Status.UNKNOWN)
            job.status = Status.UNKNOWN

    async def _record(self, job: PaneJob, status: Status) -> None:
        """The shell's record holds a code alone, or that the shell ended; other harnesses are to learn why it did."""
        path = shlex.quote(self.store.path(job.job_id, "exit"))
        code = 128 if job.exit_code is None else job.exit_code
        await self.shell.call(f"umask 077\necho {code} {status} >{path}.new && mv -f {path}.new {path}")


async def end_unless_ended(
    pane: Pane, job: PaneJob, ended: Callable[[PaneJob], Awaitable[bool]], end: Callable[[], Awaitable[None]]
) -> None:
    """End it, perhaps long after that was asked for: a C-c might meet the command of another harness.

    ``ended`` tells whether the target has a record of its end.
    """
    if job.done.is_set() or pane.gone:
        return
    await (job.done.wait() if await ended(job) else end())


def _nested(pane: Pane, job: PaneJob) -> int:
    """The process id of the shell inside the pane's own in which the job runs, or 0; it may be another machine's."""
    return next((shell.pid for shell in pane.shells[1:] if shell.nonce == job.nonce), 0)


async def _started(job: PaneJob) -> None:
    """A C-c that comes before the shell runs what was typed is lost on the line editor."""
    with anyio.move_on_after(START_GRACE):
        while not (job.started or job.done.is_set()):
            await job.active.wait()


async def _ended(job: PaneJob, timeout: float) -> None:
    with anyio.move_on_after(timeout):
        await job.done.wait()
