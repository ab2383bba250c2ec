"""Batches: which calls run at once, what order results have, and locks on files."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toolbox import toolbox

from harness.toolkit import Arguments, CallStatus, Subject, Tool, ToolCall, ToolContext, ToolResult, Traits
from harness.toolkit.executor import Order, groups
from harness.toolkit.pipeline import PathLocks, lock_keys


@pytest.mark.parametrize(
    ("parallel", "order", "expected"),
    [
        ("", "in_order", []),
        ("ppp", "in_order", [[0, 1, 2]]),
        ("sss", "in_order", [[0], [1], [2]]),
        ("ppspp", "in_order", [[0, 1], [2], [3, 4]]),
        ("spsp", "in_order", [[0], [1], [2], [3]]),
        ("ppspp", "parallel_first", [[0, 1, 3, 4], [2]]),
        ("ss", "parallel_first", [[0], [1]]),
    ],
)
def test_groups(parallel: str, order: Order, expected: list[list[int]]) -> None:
    assert groups([letter == "p" for letter in parallel], order) == expected


@given(parallel=st.lists(st.booleans()), order=st.sampled_from(["in_order", "parallel_first"]))
def test_every_call_is_in_one_group(parallel: list[bool], order: Order) -> None:
    found = [number for group in groups(parallel, order) for number in group]
    assert sorted(found) == list(range(len(parallel)))
    assert order == "parallel_first" or found == sorted(found)


class Step(Arguments):
    name: str


class Steps(Tool[Step]):
    """Says when it begins and ends; waits until it is let go, when it has a gate."""

    def __init__(self, name: str, log: list[str], *, parallel: bool) -> None:
        super().__init__(name, "A step.", Step, Traits(parallelizable=parallel, mutating=not parallel))
        self.log = log

    def subjects(self, args: Step) -> tuple[Subject, ...]:
        return (Subject("read" if self.traits.parallelizable else "write", args.name),)

    async def run(self, args: Step, ctx: ToolContext) -> ToolResult:
        self.log.append(f"{args.name} begins")
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        self.log.append(f"{args.name} ends")
        if args.name == "bad":
            raise ValueError("bad")
        return ToolResult.of(args.name)


def calls(text: str) -> list[ToolCall]:
    return [ToolCall("reads" if word[0] in "rb" else "writes", {"name": word}) for word in text.split()]


async def run(text: str, order: Order, concurrency: int = 8) -> tuple[list[str], list[str]]:
    log: list[str] = []
    made = toolbox([Steps("reads", log, parallel=True), Steps("writes", log, parallel=False)])
    outcomes = await made.executor.batch(calls(text), order=order, concurrency=concurrency)
    return log, [outcome.result.text for outcome in outcomes]


async def test_a_change_waits_for_what_is_before_it_and_holds_up_what_is_after() -> None:
    log, results = await run("r1 r2 w1 r3", "in_order")
    assert results == ["r1", "r2", "w1", "r3"]
    assert log.index("w1 begins") > max(log.index("r1 ends"), log.index("r2 ends"))
    assert log.index("r3 begins") > log.index("w1 ends")
    assert log[:2] == ["r1 begins", "r2 begins"]


async def test_reads_may_all_go_first_and_results_stay_in_order() -> None:
    log, results = await run("w1 r1 w2 r2", "parallel_first")
    assert results == ["w1", "r1", "w2", "r2"]
    assert [line for line in log if line.endswith("ends")][2:] == ["w1 ends", "w2 ends"]


async def test_a_failure_stops_none_of_the_others() -> None:
    _, results = await run("bad r1 w1", "in_order")
    assert results[1:] == ["r1", "w1"]
    assert "ValueError" in results[0]


async def test_the_number_at_once_is_bounded() -> None:
    log, _ = await run("r1 r2 r3 r4", "in_order", concurrency=1)
    assert log == [f"r{number} {what}" for number in range(1, 5) for what in ("begins", "ends")]


async def test_two_calls_that_change_one_file_never_run_at_once() -> None:
    log: list[str] = []
    made = toolbox([Steps("writes", log, parallel=False)])
    async with anyio.create_task_group() as tasks:
        for name in ("f", "./f", "g"):
            tasks.start_soon(made.executor.call, ToolCall("writes", {"name": name}))
    assert log.index("./f begins") > log.index("f ends")
    assert log.index("g begins") < log.index("f ends")


def test_a_file_has_one_key_however_it_is_written() -> None:
    assert lock_keys("b", ["x", "./x", "/home/x", "y/../x"], "/home") == ["b\0/home/x"]
    assert lock_keys("b", ["/b", "/a"], "/") == ["b\0/a", "b\0/b"]
    assert lock_keys("b", ["/a"], "/") != lock_keys("c", ["/a"], "/")


async def test_a_lock_is_gone_when_nobody_wants_it_and_a_cancel_gives_it_back() -> None:
    locks = PathLocks()

    async def want() -> None:
        async with locks.hold(["b", "c"]):
            raise AssertionError

    async with anyio.create_task_group() as tasks, locks.hold(["a", "b"]):
        tasks.start_soon(want)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(1):
        async with locks.hold(["b", "c"]):
            pass
    assert locks._held == {}


async def test_a_batch_of_what_is_no_call_has_a_result_for_each() -> None:
    made = toolbox([])
    outcomes = await made.executor.batch([ToolCall("nothing"), ToolCall("nothing", "{")])
    assert [outcome.status for outcome in outcomes] == [CallStatus.ERROR] * 2
