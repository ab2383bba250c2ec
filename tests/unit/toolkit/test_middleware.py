"""Each middleware, around real calls."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toolbox import Toolbox, toolbox

from harness.toolkit import (
    Arguments,
    CallOutcome,
    CallStatus,
    OutputLimit,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    Traits,
)
from harness.toolkit.contract import Middleware, Next
from harness.toolkit.events import ToolCallCompleted, ToolCallProgress
from harness.toolkit.interfaces import Verdict
from harness.toolkit.middleware import (
    AllowList,
    Budget,
    CostBudget,
    DenyList,
    Logging,
    LoopDetector,
    RateLimit,
    Redaction,
    RejectRedactedText,
    Timeout,
    Truncation,
    find_repetition,
)
from harness.toolkit.redaction.redactor import PatternRedactor


class Say(Arguments):
    """Say something."""

    text: str = "hello"


@dataclass
class Work:
    """What the tool does, and how often it did."""

    answer: Callable[[str, int], str] = lambda text, count: text
    waits: bool = False
    count: int = 0
    said: list[str] = field(default_factory=list)


class SayTool(Tool[Say]):
    def __init__(self, work: Work, name: str = "say", aliases: tuple[str, ...] = ()) -> None:
        super().__init__(name, "Say something.", Say, Traits(aliases=aliases))
        self.work = work

    async def run(self, args: Say, ctx: ToolContext) -> ToolResult:
        self.work.count += 1
        self.work.said.append(args.text)
        ctx.progress(f"saying {args.text}\n")
        ctx.progress(f"note {args.text}", "note")
        if self.work.waits:
            await anyio.sleep_forever()
        return ToolResult.of(self.work.answer(args.text, self.work.count))


def box(*middleware: Middleware, work: Work | None = None, **rest: Any) -> Toolbox:
    work = work or Work()
    return toolbox([SayTool(work, aliases=("speak",)), SayTool(work, "whisper")], middleware=middleware, **rest)


def say(text: str = "hello", name: str = "say") -> ToolCall:
    return ToolCall(name, {"text": text})


async def test_the_first_is_outermost_and_any_may_answer_itself() -> None:
    order: list[str] = []

    def named(name: str, answers: bool = False) -> Middleware:
        async def around(call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
            order.append(name)
            if answers:
                return CallOutcome(call, ToolResult.of(name), CallStatus.OK)
            return await following(call)

        return around

    work = Work()
    outcome = await box(named("a"), named("b", True), named("c"), work=work).executor.call(say())
    assert order == ["a", "b"]
    assert outcome.result.text == "b"
    assert work.count == 0


async def test_changed_arguments_are_validated_again() -> None:
    async def change(call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        return await following(replace(call, arguments={"txet": "x"}))

    outcome = await box(change).executor.call(say())
    assert "did you mean 'text'" in outcome.result.text


# -- logging


async def test_logging_tells_of_calls_redacted_and_how_long_they_took() -> None:
    told: list[Any] = []
    logging_ = Logging(told.append, lambda call, outcome, seconds: told.append((call, outcome, seconds)))
    await box(logging_).executor.call(say("hunter2"))
    before, (call, outcome, seconds) = told
    assert before == call
    assert before.arguments == {"text": "[redacted]"}
    assert outcome.result.text == "[redacted]"
    assert 0 <= seconds < 5


async def test_logging_without_functions_or_with_broken_ones_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert (await box(Logging()).executor.call(say())).status is CallStatus.OK
    broken = Logging(lambda call: 1 / 0, lambda call, outcome, seconds: 1 / 0)  # type: ignore[arg-type,func-returns-value]  # it raises
    assert (await box(broken).executor.call(say())).status is CallStatus.OK
    assert [record.levelno for record in caplog.records if record.name.startswith("harness")] == [logging.ERROR] * 2


async def test_logging_tells_of_a_cancelled_call_without_an_outcome() -> None:
    told: list[object] = []
    inside = box(Logging(after=lambda call, outcome, seconds: told.append(outcome)), work=Work(waits=True))
    with anyio.move_on_after(0.05):
        await inside.executor.call(say())
    assert told == [None]


# -- lists


@pytest.mark.parametrize("names", [["say"], ["speak"], ["say", "other"]])
async def test_the_deny_list_refuses_a_tool_under_each_of_its_names(names: list[str]) -> None:
    inside = box(DenyList(names))
    for name in ("say", "speak"):
        outcome = await inside.executor.call(say(name=name))
        assert (outcome.status, outcome.result.text) == (CallStatus.DENIED, "not allowed: say is not allowed")
    assert (await inside.executor.call(say(name="whisper"))).status is CallStatus.OK
    assert inside.ledger.begun[0].call.name == "whisper"


async def test_the_allow_list_refuses_all_others() -> None:
    inside = box(AllowList(["speak"]))
    assert (await inside.executor.call(say())).status is CallStatus.OK
    assert (await inside.executor.call(say(name="whisper"))).status is CallStatus.DENIED
    assert (await box(AllowList([])).executor.call(say())).status is CallStatus.DENIED


async def test_a_refused_call_has_its_one_completion_and_no_intent() -> None:
    inside = box(DenyList(["say"]))
    with inside.events.subscribe() as events:
        await inside.executor.call(say())
        assert len([event for event in events.drain() if isinstance(event, ToolCallCompleted)]) == 1
    assert inside.ledger.begun == []


async def test_the_mark_of_a_secret_is_never_written_and_may_be_read() -> None:
    work = Work()
    reading, writing = SayTool(work), SayTool(work, "write")
    writing.traits = replace(writing.traits, mutating=True)
    inside = toolbox([reading, writing], middleware=(RejectRedactedText(),))
    refused = await inside.executor.call(say("password=[redacted]\n", "write"))
    assert (refused.status, refused.result.error_code, work.count) == (CallStatus.DENIED, "redacted", 0)
    assert "replaces a redacted secret" in refused.result.text
    assert (await inside.executor.call(say("[redacted]"))).status is CallStatus.OK
    assert (await inside.executor.call(say("fine", "write"))).status is CallStatus.OK


# -- around


async def test_a_timeout_ends_the_call_and_keeps_what_it_said() -> None:
    inside = box(Timeout(0.05), work=Work(waits=True))
    with anyio.fail_after(5):
        outcome = await inside.executor.call(say("hunter2"))
    assert outcome.status is CallStatus.TIMEOUT
    assert outcome.result.text.startswith("ended after 0.05 s; it may have changed something")
    assert "saying [redacted]" in outcome.result.text
    assert inside.ledger.ended[0][1] is CallStatus.CANCELLED


async def test_redaction_covers_results_progress_and_notes() -> None:
    inside = box(Redaction(PatternRedactor(["geheim-1"])))
    with inside.events.subscribe() as events:
        outcome = await inside.executor.call(say("geheim-1 hunter2"))
        shown = [event.text for event in events.drain() if isinstance(event, ToolCallProgress)]
    assert outcome.result.text == "[redacted] [redacted]"
    assert shown == ["saying [redacted] [redacted]\n", "note [redacted] [redacted]"]


async def test_truncation_cuts_further_and_keeps_the_whole() -> None:
    inside = box(work=Work())
    inside = box(Truncation(OutputLimit(20, 5), inside.outputs))
    outcome = await inside.executor.call(say("x" * 100))
    assert "[... 80 of 100 characters left out; the whole is output:" in outcome.result.text
    assert outcome.result.metadata["truncated"] is True


async def test_truncation_of_what_was_cut_before_counts_the_whole_once() -> None:
    inside = box(Truncation(OutputLimit(2_000, 1_000)))
    outcome = await inside.executor.call(say("x" * 100_000))
    assert re.findall(r"(\d+) of (\d+) characters left out", outcome.result.text) == [("98000", "100000")]
    assert outcome.result.text.count("x") == 2_000


# -- rate and cost


async def test_a_rate_holds_for_each_session_and_time_lifts_it() -> None:
    now = [0.0]
    rate = RateLimit(2, 10, clock=lambda: now[0])
    inside, other = box(rate), box(rate)
    other = replace(other, executor=replace(other.executor, session_id="s2"))
    statuses = [(await inside.executor.call(say())).status for _ in range(4)]
    assert statuses == [CallStatus.OK, CallStatus.OK, CallStatus.DENIED, CallStatus.DENIED]
    assert (await other.executor.call(say())).status is CallStatus.OK
    now[0] = 9.9
    late = await inside.executor.call(say())
    assert late.result.text == "not run: more than 2 calls in 10 s; wait 0.1 s"
    now[0] = 10.0
    assert (await inside.executor.call(say())).status is CallStatus.OK


async def test_a_budget_is_spent_refuses_and_can_be_asked() -> None:
    cost = CostBudget(1.0, lambda call, ctx: 0.4)
    inside = box(cost)
    assert [(await inside.executor.call(say())).status for _ in range(3)] == [
        CallStatus.OK,
        CallStatus.OK,
        CallStatus.DENIED,
    ]
    budget = cost.of("s1")
    assert (budget.spent, budget.left, budget.exhausted) == (pytest.approx(0.8), pytest.approx(0.2), False)
    refused = await inside.executor.call(say())
    assert refused.result.text == "not run: this session has used 0.8 of 1 USD, and the call costs 0.4"
    budget.spend(5)
    assert (budget.left, budget.exhausted) == (0.0, True)
    assert cost.of("s2").spent == 0


async def test_a_call_that_did_not_run_costs_nothing() -> None:
    cost = CostBudget(1.0, lambda call, ctx: 0.4)
    inside = box(cost, answer=lambda request: Verdict(False, "no", "test"))
    await inside.executor.call(say())
    assert cost.of("s1").spent == 0


async def test_calls_that_run_at_once_share_what_is_left() -> None:
    cost = CostBudget(1.0, lambda call, ctx: 0.4)
    inside = box(cost, work=Work(waits=True))
    with anyio.move_on_after(0.05):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(inside.executor.call, say())
    assert cost.of("s1").spent == pytest.approx(0.8)


@given(st.lists(st.floats(-10, 10, allow_nan=False)), st.floats(0, 10))
def test_a_budget_never_has_less_than_nothing_left(amounts: list[float], limit: float) -> None:
    budget = Budget(limit)
    for amount in amounts:
        budget.spend(amount)
        assert budget.spent >= 0
        assert 0 <= budget.left <= limit


@pytest.mark.parametrize("make", [lambda: RateLimit(0, 1), lambda: RateLimit(1, 0), lambda: LoopDetector(1)])
def test_limits_that_mean_nothing_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"at least"):
        make()


# -- circles


async def test_the_same_call_with_the_same_result_is_refused_until_something_changes() -> None:
    work = Work()
    inside = box(LoopDetector(3), work=work)
    statuses = [(await inside.executor.call(say())).status for _ in range(5)]
    assert statuses == [CallStatus.OK] * 3 + [CallStatus.DENIED] * 2
    refused = await inside.executor.call(say())
    assert refused.result.text == ("not run: this call was made 3 times with the same result; try something else")
    assert (refused.result.error_code, work.count) == ("stuck", 3)
    assert (await inside.executor.call(say("other"))).status is CallStatus.OK
    assert (await inside.executor.call(say())).status is CallStatus.OK


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ("aaaaaa", "...xxx"),
        ("abababababab", "......xxxxxx"),
        ("abababbbaa", "......xxxx"),
        ("abcabcabcabcabc", ".........xxxxxx"),
        ("abcdabcdabcdabcd", "............xxxx"),
        ("abcdeabcdeabcdeabcde", "...................."),
        ("aabaabaabaab", ".........xxx"),
        ("abababxababab", "............."),
        ("abababaxababa", "......x......"),
        ("abababaxabababa", "......x.......x"),
    ],
)
async def test_the_calls_of_a_circle_stay_refused_until_another_one(asked: str, refused: str) -> None:
    inside = box(LoopDetector(3))
    outcomes = [await inside.executor.call(say(text)) for text in asked]
    assert "".join("x" if outcome.status is CallStatus.DENIED else "." for outcome in outcomes) == refused


async def test_a_refused_call_is_told_of_the_circle_that_it_is_one_of() -> None:
    inside = box(LoopDetector(2))
    *_, last = [await inside.executor.call(say(text)) for text in "ababb"]
    assert last.result.text == (
        "not run: these 2 calls, including this one, were repeated 2 times with the same results; try something else"
    )


async def test_a_call_that_gets_on_is_no_circle_with_one_that_does_not() -> None:
    work = Work(lambda text, count: f"{text} {count}" if text == "poll" else text)
    inside = box(LoopDetector(2), work=work)
    assert {(await inside.executor.call(say(text))).status for text in ["poll", "wait"] * 6} == {CallStatus.OK}


async def test_another_result_is_no_circle() -> None:
    inside = box(LoopDetector(2), work=Work(lambda text, count: f"{text} {count}"))
    assert {(await inside.executor.call(say())).status for _ in range(6)} == {CallStatus.OK}


async def test_agents_do_not_count_for_one_another() -> None:
    inside = box(LoopDetector(2))
    statuses = [(await inside.executor.call(replace(say(), agent_id=agent))).status for agent in "abab"]
    assert statuses == [CallStatus.OK] * 4


@pytest.mark.parametrize(
    ("steps", "call", "length"),
    [
        ("", "a", 0),
        ("aa", "a", 0),
        ("aaa", "a", 1),
        ("aaa", "b", 0),
        ("baaa", "a", 1),
        ("aaab", "a", 0),
        ("ababab", "a", 2),
        ("ababab", "b", 2),
        ("bababa", "b", 2),
        ("abcabcabc", "a", 3),
        ("abcabcabc", "b", 3),
        ("abcabcabc", "d", 0),
        ("abcdabcdabcd", "c", 4),
        ("abcdeabcdeabcde", "a", 0),
        ("xababab", "a", 2),
    ],
)
def test_circles(steps: str, call: str, length: int) -> None:
    assert find_repetition([(step, "same") for step in steps], call, 3) == length
