"""Workers of Dask that stop responding while they run commands: their hosts go to other workers.

Dask itself does that when a connection closes, and else after ``distributed.scheduler.worker-ttl`` (five minutes). A
worker that is stopped, or whose machine hangs, would delay a call for that long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import anyio

__all__ = ["MAX_SILENCE", "MovableTask", "WorkerHealth", "find_silent_workers", "watch_workers"]

log = logging.getLogger(__name__)
MAX_SILENCE = 20.0
"""Seconds without a heartbeat of a worker after which its hosts go to others; workers send one each second or so."""
CHECK_INTERVAL = 5.0
CHECK_TIMEOUT = 10.0
"""Seconds for the scheduler to answer."""
MAX_MOVES = 3
"""How often a host goes to another worker; after that, Dask alone decides."""


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """What the scheduler knows: the tasks of silent workers by their addresses, and the addresses of the others."""

    silent: Mapping[str, Sequence[str]]
    responsive: Sequence[str]


class MovableTask(Protocol):
    """A task that can be given to another worker."""

    moves: int

    @property
    def key(self) -> str:
        """Its key in Dask."""
        ...

    def move(self, workers: Sequence[str], reason: str) -> None:
        """Let one of these workers run it, and forget the one that has it."""
        ...


def find_silent_workers(max_silence: float, dask_scheduler: Any = None) -> WorkerHealth:
    """Return which workers have sent no heartbeat for a time; this runs in the scheduler.

    Args:
        max_silence: Seconds.
        dask_scheduler: The scheduler, which Dask gives.
    """
    now = time.time()
    silent, responsive = {}, []
    for worker in dask_scheduler.workers.values():
        if now - worker.last_seen > max_silence:
            silent[worker.address] = [task.key for task in worker.processing]
        elif worker.status.name == "running":
            responsive.append(worker.address)
    return WorkerHealth(silent, responsive)


async def watch_workers(ask: Callable[[], Awaitable[WorkerHealth]], tasks: Collection[MovableTask]) -> None:
    """Move tasks away from silent workers, until cancelled.

    Args:
        ask: Returns the state of the workers from the scheduler.
        tasks: The tasks that have not ended.
    """
    while True:
        await anyio.sleep(CHECK_INTERVAL)
        if not tasks:
            continue
        try:
            with anyio.move_on_after(CHECK_TIMEOUT):
                _move_tasks(await ask(), tasks)
        except Exception as error:  # a lost scheduler is the outcome of each task
            log.debug("the state of the Dask workers is unknown: %s", error)


def _move_tasks(health: WorkerHealth, tasks: Collection[MovableTask]) -> None:
    if not health.responsive:
        return
    waiting = {task.key: task for task in tasks if task.moves < MAX_MOVES}
    for address, keys in health.silent.items():
        found = [waiting[key] for key in keys if key in waiting]
        if found:
            reason = f"the Dask worker {address} has not responded for {MAX_SILENCE:.0f} s"
            log.warning("%s: %d of its hosts go to another worker", reason, len(found))
        for task in found:
            task.move(health.responsive, reason)
