"""The ends of jobs that were left running, told by the reply that each of them brings anyway: nobody asks for them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from harness.errors import ConnectionLost
from harness.system.background_tasks import BackgroundTasks

from .shell import Ticket

__all__ = ["JobEnds"]


@dataclass(slots=True)
class _End:
    """``told``: the reply came; else the link was lost, and nobody tells of it any more."""

    event: anyio.Event = field(default_factory=anyio.Event)
    told: bool = False


class JobEnds:
    """Knows of the jobs that this process started and did not wait for."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._ends: dict[str, _End] = {}

    def expect(self, job_id: str, ticket: Ticket) -> None:
        """The reply to this ticket is the job's end."""
        end = self._ends[job_id] = _End()
        self._tasks.start_soon(self._wait, job_id, ticket, end)

    async def _wait(self, job_id: str, ticket: Ticket, end: _End) -> None:
        with suppress(ConnectionLost):  # the target is asked then
            await ticket.reply()
            end.told = True
        del self._ends[job_id]
        end.event.set()

    def tells(self, job_id: str) -> bool:
        """Its end is still to come, and will be told."""
        return job_id in self._ends

    async def wait(self, job_id: str, seconds: float) -> bool:
        """Wait until its end was told, or will not be, or the time is over; True when it was."""
        end = self._ends.get(job_id)
        if end is None:
            return False
        with anyio.move_on_after(seconds):
            await end.event.wait()
        return end.told
