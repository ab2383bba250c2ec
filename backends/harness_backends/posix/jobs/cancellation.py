"""Termination of cancelled commands, without blocking the caller on a lost or unresponsive connection."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from harness.errors import HarnessError, PaneGone, TargetGone
from harness.system.background_tasks import BackgroundTasks
from harness.system.waiting import wait_within

from ..persistent_shell import PersistentShell
from ..state_directory import JobStore

__all__ = ["JobCanceller"]

log = logging.getLogger(__name__)

UNRESPONSIVE_AFTER = 2.0
"""Seconds within which a target must answer, otherwise the caller does not wait for the proof of the end."""
RETRY = 1.0
SHUTDOWN_GRACE = 5.0
"""Seconds that pending terminations get when harness exits, as nothing would continue them."""


@dataclass(frozen=True, slots=True)
class JobCanceller:
    """A canceller of commands, which retries the termination if the connection is lost meanwhile."""

    shell: PersistentShell
    store: JobStore
    tasks: BackgroundTasks
    bound: float
    """Maximum seconds for a termination on a responsive target."""
    _endings: dict[anyio.Event, str] = field(default_factory=dict)
    """The pending terminations, and their jobs."""

    async def cancel(self, job_id: str, end: Callable[[], Awaitable[object]]) -> None:
        """Terminate a command with ``end``; wait for its exit only if the target is responsive."""
        ended, answered = anyio.Event(), anyio.Event()
        asking = anyio.CancelScope()
        self.tasks.start_soon(self._end_when_back, job_id, end, ended, answered)
        self.tasks.start_soon(self._ask, asking, answered)
        if await wait_within(UNRESPONSIVE_AFTER, answered.wait):
            await wait_within(self.bound, ended.wait)
        asking.cancel()
        if not ended.is_set():
            self.store.add_notice(f"job {job_id} may still be running: its exit could not be confirmed in time")

    async def _ask(self, asking: anyio.CancelScope, answered: anyio.Event) -> None:
        with asking, suppress(HarnessError):  # a new connection may already be available for the termination
            await self.shell.call(":")
            answered.set()

    async def finish(self) -> None:
        """Wait briefly for pending terminations."""
        with anyio.move_on_after(SHUTDOWN_GRACE, shield=True):
            for ended in list(self._endings):
                await ended.wait()
        target = self.shell.transport.target
        for job_id in self._endings.values():
            text = "%s: job %s was signalled, but its exit is not confirmed: harness --target %s jobs show %s"
            log.warning(text, str(target).removesuffix(":"), job_id, target, job_id)

    async def _end_when_back(
        self, job_id: str, end: Callable[[], Awaitable[object]], ended: anyio.Event, answered: anyio.Event
    ) -> None:
        self._endings[ended] = job_id
        while not ended.is_set():
            try:
                await end()
                ended.set()
            except (TargetGone, PaneGone):
                ended.set()
            except HarnessError:
                await anyio.sleep(RETRY)
        answered.set()
        del self._endings[ended]
