"""Subscriptions to resources: the client is told that something has changed, not what.

A job's log is followed on the stream that the engine has anyway; screens have none, so one is looked at once a second,
and only while somebody is subscribed. What is looked at here is compared and thrown away; it leaves through a read of
the resource, which is judged and recorded.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import anyio

from ..errors import HarnessError, OutputDropped, UnsupportedOperation
from ..joblists import asked_for
from ..results import Job, Status
from ..tasks import BackgroundTasks, background_tasks
from ..toolkit.events import Event, JobExited, JobStarted, TodoChanged, ToolCallCompleted
from ..toolkit.executor import Executor
from ..toolkit.notebook import Memory, MemoryScope, Notebook, Place, Todo, place_at
from . import resources

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["LIMIT", "Signal", "Subscriptions"]

LIMIT = 64
"""Subscriptions of one client."""
QUIET = 0.25
"""Seconds between two notifications of one resource."""
SCREEN_EVERY = 1.0
JOBS_EVERY = 10.0
"""Seconds until the list of jobs is compared although nothing here has started or ended one."""
DESCRIBE_EVERY = 2.0
NOTES_EVERY = 10.0
"""Seconds until notes are compared although this session has written none."""
log = logging.getLogger("harness.mcp")

Notify = Callable[[str], Awaitable[None]]


class Signal:
    """Something has happened, at least once since it was waited for."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """It has happened."""
        self._event.set()

    async def wait(self) -> None:
        """Wait until it has; what happens from now on is for the next wait."""
        await self._event.wait()
        self._event = anyio.Event()


@dataclass(slots=True)
class _Watch:
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    begun: anyio.Event = field(default_factory=anyio.Event)
    error: HarnessError | None = None


@dataclass(frozen=True, slots=True)
class Notes:
    """What the session of an executor has written down."""

    executor: Executor

    async def todos(self) -> tuple[Todo, ...]:
        """The things to do."""
        return await self._notebook.todos(self.executor.session_id)

    async def memories(self) -> tuple[Memory, ...]:
        """The memories that it sees."""
        session, execution = self.executor.session_id, self.executor.execution
        home, cwd = execution.capabilities.home, self.executor.cwd
        lasting = (place_at(scope, execution.identity, home, cwd) for scope in MemoryScope if scope != "session")
        return await self._notebook.memories([Place(MemoryScope.SESSION, session_id=session), *lasting])

    @property
    def _notebook(self) -> Notebook:
        if self.executor.notebook is None:
            raise UnsupportedOperation("this session writes nothing down", target=self.executor.execution.target)
        return self.executor.notebook


class Subscriptions:
    """What one client watches."""

    def __init__(self, executor: Executor, tasks: BackgroundTasks) -> None:
        self._execution = executor.execution
        self._events = executor.events
        self._notes = Notes(executor)
        self._tasks = tasks
        self._watches: dict[str, _Watch] = {}
        self._had: dict[str, int] = {}

    def have_read(self, place: resources.Place, offset: object) -> None:
        """The client has a job's output up to here: a subscription begins there, and not with what it knows."""
        if place.tool == "resource_log" and isinstance(offset, int):
            self._had[str(place.arguments["job_id"])] = offset

    @property
    def full(self) -> bool:
        """There are as many as are allowed."""
        return len(self._watches) >= LIMIT

    async def add(self, place: resources.Place, notify: Notify) -> None:
        """Watch a resource, until :meth:`remove`; a second subscription to the same takes the first one's place.

        Every change that comes after this is told.

        Raises:
            HarnessError: it is not there.
        """
        self.remove(place.uri)
        watch = self._watches[place.uri] = _Watch()
        self._tasks.start_soon(self._run, place, notify, watch)
        await watch.begun.wait()
        if watch.error is not None:
            raise watch.error

    def remove(self, uri: str) -> None:
        """Watch it no more; nothing happens when it was not watched."""
        if (watch := self._watches.pop(uri, None)) is not None:
            watch.scope.cancel()

    async def _run(self, place: resources.Place, notify: Notify, watch: _Watch) -> None:
        try:
            with watch.scope:
                await self._watch(place, notify, watch)
        except HarnessError as error:
            watch.error = error
            log.info("%s is no longer watched: %s", place.uri, error)
        finally:
            watch.begun.set()
            if self._watches.get(place.uri) is watch:
                del self._watches[place.uri]

    async def _watch(self, place: resources.Place, notify: Notify, watch: _Watch) -> None:
        changes = self._changes(place)
        await anext(changes)
        watch.begun.set()
        signal = Signal()
        async with background_tasks() as tasks:
            tasks.start_soon(_tell, signal, place.uri, notify)
            async for _ in changes:
                signal.set()
            await anyio.sleep(QUIET)  # the last change is still to be told

    def _changes(self, place: resources.Place) -> AsyncIterator[None]:
        """One item when the watch has begun, and one for each change."""
        arguments = place.arguments
        if place.tool == "resource_log":
            job_id = str(arguments["job_id"])
            return self._log(job_id, self._had.get(job_id, 0))
        if place.tool == "resource_jobs":
            return self._compared(self._jobs, JOBS_EVERY, JobStarted, JobExited, ToolCallCompleted)
        if place.tool == "resource_todos":
            return self._compared(self._notes.todos, NOTES_EVERY, TodoChanged)
        if place.tool == "resource_memories":
            return self._compared(self._notes.memories, NOTES_EVERY, ToolCallCompleted)
        if place.tool == "resource_screen":
            return self._polled(lambda: self._execution.capture_pane(pane=str(arguments["pane"])), SCREEN_EVERY)
        return self._polled(self._description, DESCRIBE_EVERY)

    async def _log(self, job_id: str, offset: int) -> AsyncIterator[None]:
        """Each piece of output, and the end, when it is still to come."""
        job = await self._execution.job(job_id)
        yield
        if job.status is not Status.RUNNING:
            return
        while True:
            output = cast("AsyncGenerator[bytes, None]", self._execution.follow(job_id, offset=offset))
            try:
                async with aclosing(output):
                    async for _ in output:
                        yield
            except OutputDropped as gap:
                if gap.end == gap.start:
                    break
                offset = gap.end
            else:
                break
        yield

    async def _compared(
        self, look: Callable[[], Awaitable[object]], every: float, *kinds: type[Event]
    ) -> AsyncIterator[None]:
        """What is another one after such an event, or after so many seconds: other programs change it, too."""
        changed = Signal()

        def listen(event: Event) -> None:
            if isinstance(event, kinds):
                changed.set()

        with self._events.listening(listen):
            known = await look()
            yield
            while True:
                with anyio.move_on_after(every):
                    await changed.wait()
                before, known = known, await look()
                if known != before:
                    yield

    async def _polled(self, look: Callable[[], Awaitable[str]], every: float) -> AsyncIterator[None]:
        seen = hash(await look())
        yield
        while True:
            await anyio.sleep(every)
            before, seen = seen, hash(await look())
            if seen != before:
                yield

    async def _jobs(self) -> list[Job]:
        return asked_for(await self._execution.jobs())

    async def _description(self) -> str:
        return self._execution.describe()


async def _tell(signal: Signal, uri: str, notify: Notify) -> None:
    while True:
        await signal.wait()
        await notify(uri)
        await anyio.sleep(QUIET)
