"""Results are remembered only while they hold: no change, no job in the background, no other file, and not for long."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.toolbox import Reads, Trace, Words, toolbox

from harness import Config, ExecutionContext, connect
from harness.results import Status
from harness.testing.memory import MemoryBackend, ScriptedReply, memory_context
from harness.toolkit import Arguments, Executor, Registry, Services, Tool, ToolCall, ToolContext, ToolResult, Traits
from harness.toolkit.events import EventBus, JobExited, JobStarted
from harness.toolkit.result_cache import CAPACITY, DEPENDS_LIMIT, ResultCache, depends_on


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def context(execution: ExecutionContext | None = None, call_id: str = "c1", cwd: str | None = None) -> ToolContext:
    there = execution or memory_context(MemoryBackend())
    return ToolContext(there, Registry(), EventBus(), Reads(), Words(Trace()), call_id=call_id, cwd=cwd)


CALL = ToolCall("read", {"path": "a", "limit": 3})
SAME = ToolCall("read", {"limit": 3, "path": "a"}, "other id")
ANSWER = ToolResult.of("content")


async def remember(cache: ResultCache, ctx: ToolContext, call: ToolCall = CALL, result: ToolResult = ANSWER) -> None:
    assert await cache.get(call, ctx) is None
    await cache.put(call, result, ctx)


async def test_the_same_call_is_answered_whatever_the_order_of_its_arguments() -> None:
    cache, ctx = ResultCache(), context()
    await remember(cache, ctx)
    assert await cache.get(SAME, ctx) is ANSWER


@pytest.mark.parametrize(
    ("call", "cwd"),
    [(ToolCall("read", {"path": "b", "limit": 3}), None), (ToolCall("list", CALL.arguments), None), (CALL, "/tmp")],
)
async def test_another_call_or_directory_is_not_answered(call: ToolCall, cwd: str | None) -> None:
    cache, ctx = ResultCache(), context()
    await remember(cache, ctx)
    assert await cache.get(call, context(ctx.execution, cwd=cwd)) is None


@pytest.mark.usefixtures("needs_process")
async def test_another_target_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cache = ResultCache()
    await remember(cache, context())
    async with connect("local:") as execution:
        assert await cache.get(CALL, context(execution)) is None


async def test_a_failure_is_not_remembered() -> None:
    cache, ctx = ResultCache(), context()
    await remember(cache, ctx, result=ToolResult.failure("not_found", "no such file"))
    assert await cache.get(CALL, ctx) is None


async def test_a_result_holds_for_its_time() -> None:
    clock = Clock()
    cache, ctx = ResultCache(time_limit=300, clock=clock), context()
    await remember(cache, ctx)
    clock.now = 299.9
    assert await cache.get(CALL, ctx) is ANSWER
    clock.now = 300.0
    assert await cache.get(CALL, ctx) is None


async def test_what_was_used_longest_ago_makes_room() -> None:
    cache, ctx = ResultCache(2), context()
    calls = [ToolCall("read", {"path": name}) for name in "abc"]
    await remember(cache, ctx, calls[0])
    await remember(cache, ctx, calls[1])
    assert await cache.get(calls[0], ctx) is ANSWER
    await remember(cache, ctx, calls[2])
    assert [await cache.get(call, ctx) is ANSWER for call in calls] == [True, False, True]
    stats = cache.stats
    assert (stats.hits, stats.misses, stats.evictions, stats.size, stats.capacity) == (3, 4, 1, 2, 2)


async def test_its_bytes_are_counted_and_bounded() -> None:
    cache, ctx = ResultCache(max_bytes=10), context()
    calls = [ToolCall("read", {"path": name}) for name in "abcd"]
    assert cache.stats.hit_rate == 0
    await remember(cache, ctx, calls[0], ToolResult.of("123456"))
    await remember(cache, ctx, calls[1], ToolResult.of("äöü4"))  # seven bytes: the first one makes room
    assert (cache.stats.size, cache.stats.bytes, cache.stats.evictions) == (1, 7, 1)
    await remember(cache, ctx, calls[2], ToolResult.of("x" * 11))  # it would not fit, and costs no other its place
    assert (cache.stats.size, cache.stats.bytes, cache.stats.evictions) == (1, 7, 1)
    await remember(cache, ctx, calls[3], ToolResult.of("abc", data="d"))
    assert (cache.stats.size, cache.stats.bytes) == (1, 6)
    assert await cache.get(calls[3], ctx) is not None
    assert cache.stats.hit_rate == 1 / 5
    cache.clear()
    assert (cache.stats.bytes, cache.stats.hits) == (0, 1)


async def test_it_can_be_cleared_and_switched_off_and_on() -> None:
    cache, ctx = ResultCache(), context()
    await remember(cache, ctx)
    cache.clear()
    await remember(cache, ctx)
    cache.disable()
    await remember(cache, ctx)
    assert (await cache.get(CALL, ctx), cache.stats.size, cache.stats.capacity) == (None, 0, CAPACITY)
    cache.enable()
    await remember(cache, ctx)
    assert await cache.get(CALL, ctx) is ANSWER


async def test_a_change_makes_all_that_is_known_of_that_target_worthless() -> None:
    cache, ctx = ResultCache(), context()
    await remember(cache, ctx)
    cache.changed("another target")
    assert await cache.get(CALL, ctx) is ANSWER
    cache.changed(ctx.execution.identity)
    assert await cache.get(CALL, ctx) is None


async def test_a_result_that_was_being_made_during_a_change_is_not_remembered() -> None:
    cache, ctx = ResultCache(), context()
    assert await cache.get(CALL, ctx) is None
    cache.changed(ctx.execution.identity)
    await cache.put(CALL, ANSWER, ctx)
    assert await cache.get(CALL, ctx) is None


async def test_a_result_that_nobody_asked_for_before_is_not_remembered() -> None:
    cache, ctx = ResultCache(), context()
    await cache.put(CALL, ANSWER, ctx)
    assert await cache.get(CALL, ctx) is None


async def test_nothing_is_remembered_while_a_job_goes_on_and_the_target_is_asked_seldom() -> None:
    clock = Clock(10.0)
    backend = MemoryBackend({"make": ScriptedReply(status=Status.RUNNING)})
    execution = memory_context(backend)
    cache, ctx = ResultCache(clock=clock), context(execution)
    await remember(cache, ctx)
    job = (await execution.run_shell("make", wait=False)).job_id or ""
    cache.heard(JobStarted(job_id=job, command="make"), execution.identity)
    await remember(cache, ctx)
    await remember(cache, ctx)
    assert cache.stats.size == 1  # the one from before, which does not hold
    await execution.kill(job)
    clock.now = 11.9
    await remember(cache, ctx)
    assert await cache.get(CALL, ctx) is None
    clock.now = 12.0
    await remember(cache, ctx)
    assert await cache.get(CALL, ctx) is ANSWER


async def test_a_jobs_end_that_is_told_is_believed_and_counts_as_a_change() -> None:
    cache, ctx = ResultCache(clock=Clock()), context()
    cache.heard(JobStarted(job_id="7", command="make"), ctx.execution.identity)
    await remember(cache, ctx)
    cache.heard(JobExited(job_id="7", exit_code=0), ctx.execution.identity)
    await remember(cache, ctx)
    assert await cache.get(CALL, ctx) is ANSWER


# -- files that a result depends on


@pytest.fixture
async def execution(
    needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ExecutionContext]:
    """The local target, with its state apart."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as opened:
        yield opened


async def test_a_file_that_another_program_changed_is_read_anew(execution: ExecutionContext, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    cache, ctx = ResultCache(), context(execution)
    result = ToolResult.of("one", metadata=depends_on(await execution.read_file(str(file))))
    await remember(cache, ctx, result=result)
    assert await cache.get(CALL, ctx) is result
    times = file.stat()
    file.write_text("two")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert await cache.get(CALL, ctx) is None
    await remember(cache, ctx, result=result)  # it names the old content
    assert await cache.get(CALL, ctx) is None
    file.unlink()
    assert await cache.get(CALL, ctx) is None


async def test_a_directory_that_another_program_changed_is_listed_anew(
    execution: ExecutionContext, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    cache, ctx = ResultCache(), context(execution)
    result = ToolResult.of("", metadata=depends_on(await execution.stat(str(folder))))
    await remember(cache, ctx, result=result)
    assert await cache.get(CALL, ctx) is result
    (folder / "new").mkdir()
    assert await cache.get(CALL, ctx) is None


@pytest.mark.parametrize("named", ["x", [["a"]], [[1, 2]], [["a", "v"]] * (DEPENDS_LIMIT + 1)])
async def test_what_a_result_depends_on_must_be_clear(named: Any) -> None:
    cache, ctx = ResultCache(), context()
    await remember(cache, ctx, result=ToolResult.of("x", metadata={"depends": named}))
    assert await cache.get(CALL, ctx) is None


class Shared(ExecutionContext):
    """A target with a terminal that people may type into."""

    @property
    def has_terminal(self) -> bool:
        return True


async def test_where_people_share_a_terminal_only_what_names_its_files_is_remembered() -> None:
    cache, ctx = ResultCache(), context(Shared(MemoryBackend(), None, Config()))
    await remember(cache, ctx)
    assert await cache.get(CALL, ctx) is None
    await ctx.execution.write_file("file", "one")
    result = ToolResult.of("one", metadata=depends_on(await ctx.execution.read_file("file")))
    await remember(cache, ctx, result=result)
    assert await cache.get(CALL, ctx) is result


# -- in the pipeline


@dataclass
class Counter:
    value: int = 0
    asked: list[str] = field(default_factory=list)


class Nothing(Arguments):
    pass


class Look(Tool[Nothing]):
    def __init__(self, counter: Counter) -> None:
        super().__init__("look", "Tell the count.", Nothing, Traits(cacheable=True, parallelizable=True))
        self.counter = counter
        self.reached, self.go = anyio.Event(), anyio.Event()
        self.go.set()

    async def run(self, args: Nothing, ctx: ToolContext) -> ToolResult:
        value = self.counter.value
        self.reached.set()
        await self.go.wait()
        return ToolResult.of(str(value))


class Count(Tool[Nothing]):
    def __init__(self, counter: Counter) -> None:
        super().__init__("count", "Count one more.", Nothing, Traits(mutating=True))
        self.counter = counter

    async def run(self, args: Nothing, ctx: ToolContext) -> ToolResult:
        self.counter.value += 1
        return ToolResult.of("counted")


def executor() -> tuple[Executor, Look]:
    counter = Counter()
    look = Look(counter)
    made = toolbox([look, Count(counter)])
    services = Services(made.policy, made.ledger, Words(made.trace), results=ResultCache())
    return Executor(made.executor.execution, made.executor.registry, services, made.events, Reads()), look


async def test_a_call_that_changes_something_makes_the_next_look_anew() -> None:
    made, _ = executor()
    first, second = await made.call(ToolCall("look")), await made.call(ToolCall("look"))
    await made.call(ToolCall("count"))
    third = await made.call(ToolCall("look"))
    assert [(one.result.text, one.cached) for one in (first, second, third)] == [
        ("0", False),
        ("0", True),
        ("1", False),
    ]


async def test_a_look_that_a_change_overtook_is_not_given_again() -> None:
    made, look = executor()
    look.go = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.call, ToolCall("look"))
            await look.reached.wait()
            await made.call(ToolCall("count"))
            look.go.set()
    assert (await made.call(ToolCall("look"))).result.text == "1"


async def test_a_listener_hears_events_before_publishing_returns() -> None:
    bus, cache = EventBus(), ResultCache(clock=Clock())
    ctx = context()
    with bus.listening(lambda event: cache.heard(event, ctx.execution.identity)):
        bus.publish(JobStarted(job_id="7", command="make"))
    await remember(cache, ctx)
    assert await cache.get(CALL, ctx) is None
    bus.publish(JobExited(job_id="7", exit_code=0))  # nobody listens any more
    assert await cache.get(CALL, ctx) is None
