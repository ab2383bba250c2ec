"""``/timeout``: things that are ended when their time is over."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from ...tasks import BackgroundTasks

__all__ = ["Deadline", "Deadlines"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deadline:
    """Something that is to end at ``at``, on the clock of :func:`anyio.current_time`."""

    what: str
    at: float
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Deadlines:
    """One for each thing at most; a later one replaces it. They live as long as the prompt."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._set: dict[str, Deadline] = {}

    def set(self, what: str, seconds: float, end: Callable[[], Awaitable[None]]) -> None:
        """Call ``end`` after so many seconds, unless it is dropped before."""
        self.drop(what)
        deadline = self._set[what] = Deadline(what, anyio.current_time() + seconds)
        self._tasks.start_soon(self._wait, deadline, end)

    def drop(self, what: str) -> bool:
        """Take it back; whether there was one."""
        known = self._set.pop(what, None)
        if known is not None:
            known.scope.cancel()
        return known is not None

    @property
    def all(self) -> tuple[Deadline, ...]:
        """Those that are set, the nearest first."""
        return tuple(sorted(self._set.values(), key=lambda one: one.at))

    async def _wait(self, deadline: Deadline, end: Callable[[], Awaitable[None]]) -> None:
        with deadline.scope:
            await anyio.sleep_until(deadline.at)
            if self._set.get(deadline.what) is deadline:
                del self._set[deadline.what]
                with anyio.CancelScope(shield=True):  # what is begun is done, also when it is replaced meanwhile
                    await self._end(deadline, end)

    async def _end(self, deadline: Deadline, end: Callable[[], Awaitable[None]]) -> None:
        try:
            await end()
        except Exception as error:  # the prompt is worth more than one of its deadlines
            log.warning("%s could not be ended: %s", deadline.what, error)
