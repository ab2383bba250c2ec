"""Caches results of read-only calls until the target may have changed.

A result is stored for one target, session, directory, tool and its arguments. It is not returned if

* a mutating call has run on that target since the stored call started (the generation differs);
* a background job of harness is running there: it may change anything at any time;
* it is older than the time limit;
* a file that it depends on has changed. A tool lists those files in its result's ``metadata["depends"]``, built by
  :func:`depends_on`; each costs one request to the target before the result is returned.

Only the last two notice changes by operators and other programs on the target. So a tool that can list its files
should do so; and on a terminal that is shared with an operator, a result without files is not cached at all.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..context import ExecutionContext
from ..errors import FileError, HarnessError
from ..results import FileContent, FileStat, Status
from .contract import ResultCacheBase, ToolContext
from .events import Event, JobExited, JobStarted
from .values import Json, JsonObject, Text, ToolCall, ToolResult

__all__ = ["CacheStats", "ResultCache", "depends_on", "stamp_of"]

CAPACITY = 100
TIME_LIMIT = 300.0
MAX_BYTES = 16 << 20
DEPENDS = "depends"
DEPENDS_LIMIT = 8
"""Files that a result may list: each costs a round trip before the result is returned."""
PENDING = 1_000
JOBS_LOOK = 2.0
"""Seconds between two checks whether jobs are still running."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts since the start, and the current size.

    ``evictions`` counts results that were removed for newer ones, ``size`` and ``bytes`` are the current number and
    total size of results, and ``capacity`` and ``max_bytes`` their limits.
    """

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    size: int = 0
    capacity: int = CAPACITY
    bytes: int = 0
    max_bytes: int = MAX_BYTES

    @property
    def hit_rate(self) -> float:
        """The share of calls that were answered from the cache, from 0 to 1; 0 before the first call."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


def depends_on(*files: FileContent | FileStat) -> JsonObject:
    """Return the metadata that lists the files of a result: contents that were read, or results of ``stat``.

    A content is compared exactly by its version; a directory or special file by type, size, mode and time.
    """
    named: list[Json] = [
        [item.path, item.version if isinstance(item, FileContent) else stamp_of(item)] for item in files
    ]
    return {DEPENDS: named}


def stamp_of(stat: FileStat) -> str:
    """Return a version of a file from its ``stat`` result, without its content."""
    return f"stamp:{stat.type}:{stat.size}:{stat.mode}:{stat.mtime!r}"


def _dependencies(result: ToolResult) -> list[tuple[str, str]] | None:
    """Return the files that a result lists; None if the list is invalid or too long, so the result is not cached."""
    named = result.metadata.get(DEPENDS, [])
    if not isinstance(named, list) or len(named) > DEPENDS_LIMIT:
        return None
    pairs = [(item[0], item[1]) for item in named if isinstance(item, list) and len(item) == 2]
    found = [(path, version) for path, version in pairs if isinstance(path, str) and isinstance(version, str)]
    return found if len(found) == len(named) else None


@dataclass(frozen=True, slots=True)
class _CachedResult:
    result: ToolResult
    expires: float
    generation: int
    depends: tuple[tuple[str, str], ...]
    bytes: int


def _bytes_of(result: ToolResult) -> int:
    """Return the approximate size of a result: its content and its data."""
    blocks = (one.text.encode(errors="replace") if isinstance(one, Text) else one.data for one in result.content)
    content = sum(map(len, blocks))
    data = 0 if result.data is None else len(json.dumps(result.data, default=str))
    return content + data


@dataclass(slots=True)
class _Target:
    """The state of one target: a count of its changes, and the jobs of harness that are running there."""

    generation: int = 0
    jobs: set[str] = field(default_factory=set)
    asked: float = 0.0


class ResultCache(ResultCacheBase):
    """The results of one process; the least recently used are removed first.

    Args:
        capacity: maximum number of results.
        time_limit: maximum age of a result in seconds.
        max_bytes: maximum total size of the results; a larger one is not stored.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self,
        capacity: int = CAPACITY,
        time_limit: float = TIME_LIMIT,
        *,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._time_limit = time_limit
        self._clock = clock
        self._kept: OrderedDict[str, _CachedResult] = OrderedDict()
        self._bytes = 0
        self._pending: OrderedDict[str, int] = OrderedDict()
        self._targets: dict[str, _Target] = {}
        self._stats = CacheStats(capacity=capacity, max_bytes=max_bytes)
        self._enabled = True

    # -- For the operator.

    def enable(self) -> None:
        """Start storing results."""
        self._enabled = True

    def disable(self) -> None:
        """Remove all results and stop storing new ones."""
        self._enabled = False
        self.clear()

    def clear(self) -> None:
        """Remove all results; the counts are kept."""
        self._kept.clear()
        self._bytes = 0
        self._pending.clear()

    @property
    def stats(self) -> CacheStats:
        """The counts and the current size."""
        return replace(self._stats, size=len(self._kept), bytes=self._bytes)

    # -- For the pipeline.

    async def get(self, call: ToolCall, ctx: ToolContext) -> ToolResult | None:
        """See :class:`ResultCacheBase`. A miss records the generation: a later change invalidates the result."""
        if not self._enabled:
            return None
        key, target = _key(call, ctx), self._target(ctx.execution.identity)
        known = None if await self._busy(target, ctx.execution) else await self._holding(key, target, ctx)
        self._count(hit=known is not None)
        if known is None:
            self._note(ctx.call_id, target.generation)
        return known

    async def put(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> None:
        """See :class:`ResultCacheBase`."""
        began = self._pending.pop(ctx.call_id, None)
        depends = _dependencies(result)
        target = self._target(ctx.execution.identity)
        if not self._enabled or result.is_error or target.jobs or began != target.generation:
            return
        if depends is None or (ctx.execution.has_terminal and not depends):
            return
        self._keep(
            _key(call, ctx),
            _CachedResult(result, self._clock() + self._time_limit, began, tuple(depends), _bytes_of(result)),
        )

    def _keep(self, key: str, kept: _CachedResult) -> None:
        self._drop(key)
        if kept.bytes > self._stats.max_bytes:
            return
        self._kept[key] = kept
        self._bytes += kept.bytes
        while len(self._kept) > self._stats.capacity or self._bytes > self._stats.max_bytes:
            self._drop(next(iter(self._kept)))
            self._stats = replace(self._stats, evictions=self._stats.evictions + 1)

    def _drop(self, key: str) -> None:
        dropped = self._kept.pop(key, None)
        self._bytes -= dropped.bytes if dropped is not None else 0

    def changed(self, backend: str) -> None:
        """See :class:`ResultCacheBase`."""
        self._target(backend).generation += 1

    def heard(self, event: Event, backend: str) -> None:
        """Track the jobs that start and exit on a target."""
        if isinstance(event, JobStarted):
            self._target(backend).jobs.add(event.job_id)
            self.changed(backend)
        elif isinstance(event, JobExited):
            self._target(backend).jobs.discard(event.job_id)
            self.changed(backend)

    def _note(self, call_id: str, generation: int) -> None:
        self._pending[call_id] = generation
        if len(self._pending) > PENDING:  # failed calls leave their entries behind
            self._pending.popitem(last=False)

    def _target(self, backend: str) -> _Target:
        return self._targets.setdefault(backend, _Target())

    def _count(self, *, hit: bool) -> None:
        stats = self._stats
        self._stats = replace(stats, hits=stats.hits + 1) if hit else replace(stats, misses=stats.misses + 1)

    async def _busy(self, target: _Target, execution: ExecutionContext) -> bool:
        """Return whether jobs of harness are running there; the target is asked at intervals, not at each call."""
        if target.jobs and self._clock() - target.asked >= JOBS_LOOK:
            target.asked = self._clock()
            target.jobs -= await _ended(execution, target.jobs)
            target.generation += 1
        return bool(target.jobs)

    async def _holding(self, key: str, target: _Target, ctx: ToolContext) -> ToolResult | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        holds = kept.generation == target.generation and self._clock() < kept.expires
        if not holds or not await _unchanged(kept.depends, ctx.execution):
            self._drop(key)
            return None
        if kept.generation != target.generation:  # changed during the check
            return None
        self._kept.move_to_end(key)
        return kept.result


def _key(call: ToolCall, ctx: ToolContext) -> str:
    """Return the key of a call; each session has its own, because cached reads also permit overwriting the file."""
    parts = [ctx.execution.identity, ctx.session_id, ctx.agent_id, ctx.cwd, call.name, call.arguments]
    return json.dumps(parts, sort_keys=True, separators=(",", ":"), default=dict)


async def _unchanged(depends: tuple[tuple[str, str], ...], execution: ExecutionContext) -> bool:
    for path, version in depends:
        try:
            if version.startswith("stamp:"):
                now = stamp_of(await execution.stat(path))
            else:
                now = (await execution.read_file(path, limit=0)).version
        except FileError:
            return False
        if now != version:
            return False
    return True


async def _ended(execution: ExecutionContext, job_ids: set[str]) -> set[str]:
    """Return the jobs that have exited; none if the target cannot be asked."""
    try:
        running = {job.job_id for job in await execution.jobs() if job.status in (Status.RUNNING, Status.UNKNOWN)}
    except HarnessError:
        return set()
    return set(job_ids) - running
