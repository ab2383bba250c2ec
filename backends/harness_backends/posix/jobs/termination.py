"""Ending the command of a caller who is leaving, and who is not kept by a link that is lost or mute."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from harness.errors import HarnessError, PaneGone, TargetGone
from harness.system.background_tasks import BackgroundTasks

from ..persistent_shell import PersistentShell
from ..state_directory import JobStore

__all__ = ["JobCanceller"]

log = logging.getLogger(__name__)

UNRESPONSIVE_AFTER = 2.0
"""Seconds in which a target must answer for the caller to wait for the proof of the end."""
RETRY = 1.0
SHUTDOWN_GRACE = 5.0
"""Seconds that the endings of a harness have when it leaves: nobody would go on with them."""


@dataclass(frozen=True, slots=True)
class JobCanceller:
    """Ends commands: with ``end``, which proves it, and is called again where the link is lost on the way."""

    shell: PersistentShell
    store: JobStore
    tasks: BackgroundTasks
    bound: float
    """Seconds that it may take where the target answers."""
    _endings: dict[anyio.Event, str] = field(default_factory=dict)
    """What is to come, and the job that it is the end of."""

    async def cancel(self, job_id: str, end: Callable[[], Awaitable[object]]) -> None:
        """End a command. The caller waits for that where the target answers; else it goes on without."""
        ended = anyio.Event()
        self.tasks.start_soon(self._end_when_back, job_id, end, ended)
        answers = False
        with anyio.move_on_after(UNRESPONSIVE_AFTER):
            try:
                await self.shell.call(":")
                answers = True
            except HarnessError:  # a new connection may be had at once
                await ended.wait()
        if answers:
            with anyio.move_on_after(self.bound):
                await ended.wait()
        if not ended.is_set():
            self.store.add_notice(f"job {job_id} was to end and may still run: its end could not be proved in time")

    async def finish(self) -> None:
        """Wait for the endings that go on, for a moment."""
        with anyio.move_on_after(SHUTDOWN_GRACE, shield=True):
            for ended in list(self._endings):
                await ended.wait()
        for job_id in self._endings.values():
            log.warning("job %s was told to stop; there is no proof of its end: harness jobs show %s", job_id, job_id)

    async def _end_when_back(self, job_id: str, end: Callable[[], Awaitable[object]], ended: anyio.Event) -> None:
        self._endings[ended] = job_id
        while not ended.is_set():
            try:
                await end()
                ended.set()
            except (TargetGone, PaneGone):
                ended.set()
            except HarnessError:
                await anyio.sleep(RETRY)
        del self._endings[ended]
