"""Watches the jobs of a session, and finds the panes in which they run."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from ...context import ExecutionContext
from ...errors import AuthenticationError, ConfigError, HarnessError, HostKeyError, JobNotFound, TargetGone
from ...login import use_prompter, use_sudo_approver
from ...results import Status
from ...system.background_tasks import BackgroundTasks, open_background_tasks
from ..events import Event, EventBus, JobExited, JobStarted, ToolCallCompleted

__all__ = [
    "JobWatch",
    "pane_of_job",
    "resolved_pane",
    "watched_jobs",
]


# -- The pane of a job, for calls that name the job instead of the pane.


PREFIX = "job:"
"""Pane names cannot contain a colon."""


def pane_of_job(job_id: str) -> str:
    """Return the placeholder for a job's pane in a :class:`~harness.toolkit.Subject`, until the target is asked."""
    return f"{PREFIX}{job_id}"


async def resolved_pane(pane: str | None, execution: ExecutionContext) -> str | None:
    """Return the pane for a placeholder; any other pane, and that of an exited job, is returned unchanged.

    Raises:
        HarnessError: the connection was lost.
    """
    if pane is None or not pane.startswith(PREFIX):
        return pane
    try:
        job = await execution.job(pane.removeprefix(PREFIX))
    except JobNotFound:
        return pane
    return job.pane or pane if job.status is Status.RUNNING else pane


# -- Notifying a session when a job that it left running has exited.


LONG = 3600.0
"""Seconds of one wait for an exit; the target reports it, so a longer wait costs nothing."""
FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0
"""Seconds until a target that could not be asked is asked again: first and last pause."""
MERGE_WINDOW = 1.0
"""Seconds in which the exits of jobs on hosts of a fleet are published together."""
log = logging.getLogger(__name__)
Connected = Callable[[str], Awaitable[ExecutionContext]]
"""Returns the context of a host of a fleet, by its name."""


class JobWatch:
    """Publishes one :class:`JobExited` for each :class:`JobStarted`.

    It waits on the context's existing channel. A lost connection is not an exit: the target is asked again, and if
    reconnecting would need a password, after the next call that reached the target. A job without an exit code, without
    a record, or on a target that no longer exists counts as exited.

    Jobs that one call left running on many hosts often exit together: their events are published together.
    """

    def __init__(
        self, execution: ExecutionContext, events: EventBus, tasks: BackgroundTasks, connected: Connected | None = None
    ) -> None:
        self._execution = execution
        self._connected = connected
        self._events = events
        self._tasks = tasks
        self._watched: set[tuple[str, str]] = set()
        self._exited: list[JobExited] = []
        self._reached = anyio.Event()

    def heard(self, event: Event) -> None:
        """Start watching a job that was left running."""
        if isinstance(event, JobStarted) and (event.host, event.job_id) not in self._watched:
            self._watched.add((event.host, event.job_id))
            self._tasks.start_soon(self._watch, event)
        elif isinstance(event, ToolCallCompleted) and event.outcome.error is None:
            self._reached.set()
            self._reached = anyio.Event()

    async def _watch(self, started: JobStarted) -> None:
        job_id, host = started.job_id, started.host
        try:
            with use_prompter(None), use_sudo_approver(None):
                exit_code = await self._end(host, job_id)
        except Exception as error:  # must not end the session
            where = f" on {host}" if host else ""
            log.warning("job %s%s is no longer watched: %s", job_id, where, error)
            return
        finally:
            self._watched.discard((host, job_id))
        exited = JobExited(job_id=job_id, exit_code=exit_code, host=host, parent_call=started.parent_call)
        if host:
            self._publish_soon(exited)
        else:
            self._events.publish(exited)

    def _publish_soon(self, exited: JobExited) -> None:
        self._exited.append(exited)
        if len(self._exited) == 1:
            self._tasks.start_soon(self._publish_together)

    async def _publish_together(self) -> None:
        await anyio.sleep(MERGE_WINDOW)
        exited, self._exited = self._exited, []
        for event in exited:
            self._events.publish(event)

    async def _end(self, host: str, job_id: str) -> int | None:
        pause = FIRST_PAUSE
        while True:
            try:
                execution = await self._connected(host) if host and self._connected else self._execution
                await execution.wait(job_id, timeout=LONG, max_output=0)
                job = await execution.job(job_id)  # from the target: a lost connection is not an answer
                if job.status is not Status.RUNNING:
                    return job.exit_code
                pause = FIRST_PAUSE
            except (JobNotFound, TargetGone):
                return None
            except ConfigError:
                raise
            except (AuthenticationError, HostKeyError):
                await self._reached.wait()
            except HarnessError as error:
                log.debug("the state of job %s could not be read: %s", job_id, error)
                pause = min(LAST_PAUSE, 2 * pause)
            await anyio.sleep(pause)


@asynccontextmanager
async def watched_jobs(
    execution: ExecutionContext, events: EventBus, connected: Connected | None = None
) -> AsyncIterator[JobWatch]:
    """Watch the jobs of one session while the context is open.

    Args:
        execution: The target of the session.
        events: The events of the session.
        connected: Returns the context of a host, if the target is a fleet.
    """
    async with open_background_tasks() as tasks:
        watch = JobWatch(execution, events, tasks, connected)
        with events.listening(watch.heard):
            yield watch
