"""The order of the pipeline, one test per arrow, and what every way out of it leaves behind."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from pydantic import Field
from tests.support.toolbox import ALLOWED, Toolbox, Trace, toolbox

from harness.errors import ConnectError, ConnectionLost, FileNotFound, ToolError
from harness.toolkit import Arguments, CallOutcome, CallStatus, Tool, ToolCall, ToolContext, ToolResult, Traits
from harness.toolkit.contract import Hook, Middleware, Next, OutputLimit, PermissionRequest
from harness.toolkit.events import Event, InternalFailure, ToolCallCompleted, ToolCallProgress, ToolCallRequested
from harness.toolkit.interfaces import Verdict
from harness.toolkit.values import JsonObject, Subject

MUTATING = Traits(mutating=True, aliases=("speak",))
READING = Traits(cacheable=True, parallelizable=True)


class Say(Arguments):
    """Say something."""

    text: str = "hello"
    times: int = Field(1, ge=1)


class SayTool(Tool[Say]):
    def __init__(self, trace: Trace, traits: Traits = READING, fails: Exception | None = None) -> None:
        super().__init__("say", "Say something.", Say, traits)
        self.trace = trace
        self.fails = fails

    def subjects(self, args: Say) -> tuple[Subject, ...]:
        return (Subject("write", f"/tmp/{args.text}"),)

    async def run(self, args: Say, ctx: ToolContext) -> ToolResult:
        self.trace("run")
        if self.fails is not None:
            raise self.fails
        return ToolResult.of(args.text * args.times)


class Around(Hook):
    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    async def before(self, call: ToolCall, ctx: ToolContext) -> ToolCall | str:
        self.trace("hook before")
        return call

    async def after(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> ToolResult:
        self.trace("hook after")
        return result


def box(traits: Traits = MUTATING, fails: Exception | None = None) -> Toolbox:
    trace = Trace()

    async def outer(call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        trace("outer")
        return await following(call)

    async def inner(call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        trace("inner")
        return await following(call)

    return toolbox([SayTool(trace, traits, fails)], hooks=(Around(trace),), middleware=(outer, inner), trace=trace)


MUTATING_STEPS = [
    *("outer", "inner", "hook before", "permission", "intent", "run", "cache clear", "outcome", "hook after", "redact"),
]
READING_STEPS = [
    *("outer", "inner", "hook before", "permission", "cache get", "intent", "run", "outcome", "hook after", "redact"),
    "cache put",
]


@pytest.mark.parametrize(("traits", "steps"), [(MUTATING, MUTATING_STEPS), (READING, READING_STEPS)])
async def test_the_steps_come_in_their_order(traits: Traits, steps: list[str]) -> None:
    made = box(traits)
    outcome = await made.executor.call(ToolCall("say"))
    assert (outcome.status, outcome.result.text, made.trace.steps) == (CallStatus.OK, "hello", steps)


async def test_a_cut_output_is_redacted_before_it_is_kept() -> None:
    traits = replace(READING, limit=OutputLimit(100, 50))
    made = box(traits)
    outcome = await made.executor.call(ToolCall("say", {"text": "hunter2 ", "times": "100"}, "c1"))
    assert made.trace.steps[-3:] == ["redact", "cut", "cache put"]
    assert made.outputs.kept["c1"] == "[redacted] " * 100
    assert "hunter2" not in outcome.result.text
    assert "the whole is output:c1" in outcome.result.text


async def collect(made: Toolbox, call: ToolCall) -> tuple[CallOutcome, list[Event]]:
    with made.events.subscribe() as events:
        outcome = await made.executor.call(call)
        return outcome, events.drain()


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (ToolCall("sya"), "unknown_tool"),
        (ToolCall("say", "{"), "invalid_args"),
        (ToolCall("say", "[]"), "invalid_args"),
        (ToolCall("say", {"txt": "x"}), "invalid_args"),
        (ToolCall("say", {"times": 0}), "invalid_args"),
    ],
)
async def test_what_is_no_call_gets_no_further_and_has_one_completion(call: ToolCall, code: str) -> None:
    made = box()
    outcome, events = await collect(made, call)
    assert (outcome.status, outcome.result.error_code) == (CallStatus.ERROR, code)
    assert made.trace.steps == ["redact"] * (code == "invalid_args")
    assert [type(event) for event in events if not isinstance(event, InternalFailure)] == [ToolCallCompleted]
    assert (code == "invalid_args") == any(isinstance(event, InternalFailure) for event in events)


async def test_an_alias_and_arguments_as_text_reach_the_tool_under_its_own_name() -> None:
    made = box()
    outcome, events = await collect(made, ToolCall("speak", '{"text": "a", "times": "3"}', "c7"))
    assert (outcome.result.text, outcome.call.name) == ("aaa", "say")
    assert [type(event) for event in events] == [ToolCallRequested, ToolCallCompleted]
    assert [event.number for event in events] == [1, 2]


async def test_a_refusal_leaves_no_intent_and_one_completion() -> None:
    made = box()
    made.policy.answer = lambda request: Verdict(False, "not on a Sunday", "rule 3")
    outcome, events = await collect(made, ToolCall("say"))
    assert (outcome.status, outcome.result.text) == (CallStatus.DENIED, "not allowed: not on a Sunday")
    assert (len(made.ledger.denied), made.ledger.begun) == (1, [])
    assert [type(event) for event in events] == [ToolCallRequested, ToolCallCompleted]


async def test_hooks_see_a_call_as_the_approver_changed_it() -> None:
    class NotLoud(Hook):
        async def before(self, call: ToolCall, ctx: ToolContext) -> ToolCall | str:
            arguments = call.arguments
            return "too loud" if isinstance(arguments, dict) and arguments.get("text") == "loudly" else call

    trace = Trace()
    made = toolbox([SayTool(trace, MUTATING)], hooks=(NotLoud(),), trace=trace)
    answers = [Verdict(True, "", "operator", ToolCall("say", {"text": "loudly"}))]
    made.policy.answer = lambda request: answers.pop() if answers else ALLOWED
    outcome = await made.executor.call(ToolCall("say", {"text": "softly"}))
    assert (outcome.status, "too loud" in outcome.result.text) == (CallStatus.DENIED, True)
    assert "run" not in trace.steps


async def test_a_call_that_the_approver_changed_is_validated_and_judged_again() -> None:
    made = box()
    changed = ToolCall("say", {"text": "softly"})
    answers = [Verdict(True, "", "operator", changed), ALLOWED]
    made.policy.answer = lambda request: answers.pop(0)
    outcome = await made.executor.call(ToolCall("say"))
    assert outcome.result.text == "softly"
    assert [request.subjects[0].text for request in made.policy.requests] == ["/tmp/hello", "/tmp/softly"]


async def test_a_hook_that_fails_or_refuses_keeps_the_call_from_running() -> None:
    class Broken(Hook):
        async def before(self, call: ToolCall, ctx: ToolContext) -> ToolCall | str:
            raise OSError("no such program")

    trace = Trace()
    made = toolbox([SayTool(trace, MUTATING)], hooks=(Broken(),), trace=trace)
    outcome = await made.executor.call(ToolCall("say"))
    assert (outcome.status, trace.steps) == (CallStatus.DENIED, ["refused", "redact"])
    assert "no such program" in outcome.result.text


async def test_a_hook_may_change_the_arguments_which_are_validated_again() -> None:
    class Changes(Hook):
        async def before(self, call: ToolCall, ctx: ToolContext) -> ToolCall | str:
            return replace(call, name="other", arguments={"times": "no number"})

    made = toolbox([SayTool(Trace(), MUTATING)], hooks=(Changes(),))
    outcome = await made.executor.call(ToolCall("say"))
    assert (outcome.result.error_code, made.ledger.begun) == ("invalid_args", [])


@pytest.mark.parametrize(
    ("error", "status", "code", "is_failure"),
    [
        (FileNotFound("no such file"), CallStatus.ERROR, "file_not_found", False),
        (ConnectionLost("the link broke"), CallStatus.UNKNOWN, "backend_lost", True),
        (ConnectError("no route"), CallStatus.ERROR, "backend_lost", True),
        (ToolError("no"), CallStatus.ERROR, "execution_failed", True),
        (ValueError("a bug with hunter2"), CallStatus.ERROR, "execution_failed", True),
    ],
)
async def test_each_failure_is_on_its_axis(error: Exception, status: CallStatus, code: str, is_failure: bool) -> None:
    made = box(fails=error)
    outcome, events = await collect(made, ToolCall("say"))
    assert (outcome.status, outcome.result.error_code, outcome.error is not None) == (status, code, is_failure)
    assert made.ledger.ended[0][1] is status
    assert any(isinstance(event, InternalFailure) for event in events) is is_failure
    assert sum(isinstance(event, ToolCallCompleted) for event in events) == 1
    assert "hunter2" not in str(events) + outcome.result.text


class Slow(Tool[Say]):
    def __init__(self, timeout: float | None) -> None:
        super().__init__("slow", "Never ends.", Say, Traits(mutating=True, timeout=timeout))
        self.running = anyio.Event()

    async def run(self, args: Say, ctx: ToolContext) -> ToolResult:
        ctx.progress("so far hunter2\n")
        self.running.set()
        await anyio.sleep_forever()
        raise AssertionError


async def test_a_call_out_of_time_says_what_there_was() -> None:
    made = toolbox([Slow(0.05)])
    outcome, events = await collect(made, ToolCall("slow"))
    assert (outcome.status, made.ledger.ended[0][1]) == (CallStatus.TIMEOUT, CallStatus.TIMEOUT)
    assert "so far [redacted]" in outcome.result.text
    assert [event.text for event in events if isinstance(event, ToolCallProgress)] == ["so far [redacted]\n"]


async def test_a_cancelled_call_is_an_outcome_and_is_recorded() -> None:
    tool = Slow(None)
    made = toolbox([tool])
    outcomes: list[CallOutcome] = []

    async def run() -> None:
        outcomes.append(await made.executor.call(ToolCall("slow", {}, "c1")))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await tool.running.wait()
            assert made.executor.running == ("c1",)
            made.executor.cancel("c1")
    assert (outcomes[0].status, made.ledger.ended[0][1]) == (CallStatus.CANCELLED, CallStatus.CANCELLED)
    assert "look before you repeat it" in outcomes[0].result.text


async def test_a_call_that_is_cancelled_before_it_began_is_not_said_to_have_changed_anything() -> None:
    asked = anyio.Event()

    class Asks(Hook):
        async def before(self, call: ToolCall, ctx: ToolContext) -> ToolCall | str:
            asked.set()
            await anyio.sleep_forever()
            return call

    trace = Trace()
    made = toolbox([SayTool(trace, MUTATING)], hooks=(Asks(),), trace=trace)
    outcomes: list[CallOutcome] = []

    async def run() -> None:
        outcomes.append(await made.executor.call(ToolCall("say", {}, "c1")))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await asked.wait()
            made.executor.cancel("c1")
    assert (outcomes[0].status, trace.steps) == (CallStatus.CANCELLED, [])
    assert outcomes[0].result.text == "cancelled before it started: nothing was run"


async def test_a_cancelled_caller_leaves_a_completion_and_a_record() -> None:
    tool = Slow(None)
    made = toolbox([tool])
    with made.events.subscribe() as events, anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.executor.call, ToolCall("slow"))
            await tool.running.wait()
            tasks.cancel_scope.cancel()
        assert [type(event) for event in events.drain()][-1] is ToolCallCompleted
    assert made.ledger.ended[0][1] is CallStatus.CANCELLED


async def test_a_remembered_result_is_given_only_after_permission() -> None:
    made = box(READING)
    await made.executor.call(ToolCall("say"))
    made.trace.steps.clear()
    outcome = await made.executor.call(ToolCall("say"))
    assert (outcome.cached, made.trace.steps) == (True, ["outer", "inner", "hook before", "permission", "cache get"])
    made.policy.answer = lambda request: Verdict(False, "no", "test")
    assert (await made.executor.call(ToolCall("say"))).status is CallStatus.DENIED


async def test_what_a_middleware_refuses_is_kept_in_the_audit_once() -> None:
    async def gate(call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        return CallOutcome(call, ToolResult.failure("closed", "closed with hunter2"), CallStatus.DENIED)

    trace = Trace()
    made = toolbox([SayTool(trace, MUTATING)], middleware=(gate,), trace=trace)
    outcome = await made.executor.call(ToolCall("say"))
    assert (outcome.status, trace.steps) == (CallStatus.DENIED, ["refused"])
    assert made.ledger.denied[0].verdict.by == "middleware"


async def test_a_tool_that_returns_no_result_has_an_outcome_and_is_a_defect() -> None:
    class Forgets(SayTool):
        async def run(self, args: Say, ctx: ToolContext) -> ToolResult:
            return None  # type: ignore[return-value]  # the defect

    trace = Trace()
    made = toolbox([Forgets(trace, MUTATING)], trace=trace)
    outcome = await made.executor.call(ToolCall("say"))
    assert "it returned NoneType, not ToolResult" in outcome.result.text
    assert [status for _, status, *_ in made.ledger.ended] == [CallStatus.ERROR]


async def fails_first(call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
    raise KeyError("limit")


async def fails_last(call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
    await following(call)
    raise KeyError("limit")


async def forgets(call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
    return None  # type: ignore[return-value]  # the defect


async def innocent(call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
    return await following(call)


@pytest.mark.parametrize(
    ("middleware", "ran", "said"),
    [
        (fails_first, 0, "the middleware fails_first failed, and the call did not run: KeyError: 'limit'"),
        (fails_last, 1, "the middleware fails_last failed after the call (it may have changed something; "),
        (forgets, 0, "the middleware forgets failed, and the call did not run: TypeError: it returned NoneType, not "),
    ],
)
async def test_a_failing_middleware_is_named_and_not_the_tool(middleware: Middleware, ran: int, said: str) -> None:
    made = toolbox([SayTool(Trace(), MUTATING)], middleware=(innocent, middleware, innocent))
    outcome = await made.executor.call(ToolCall("say"))
    assert outcome.result.text.startswith(said)
    assert f"this is a defect of the middleware {middleware.__name__}" in outcome.result.text
    assert (outcome.status, len(made.ledger.begun)) == (CallStatus.ERROR, ran)


async def test_a_defect_of_a_tool_is_not_one_of_the_middleware_around_it() -> None:
    class Torn(SayTool):
        def subjects(self, args: Say) -> tuple[Subject, ...]:
            raise KeyError("torn")

    made = toolbox([Torn(Trace())], middleware=(innocent,))
    outcome = await made.executor.call(ToolCall("say"))
    assert "say failed: KeyError: 'torn'" in outcome.result.text
    assert "this is a defect of the tool" in outcome.result.text


async def test_a_failing_policy_is_named_and_nothing_runs() -> None:
    def torn(request: PermissionRequest) -> Verdict:
        raise KeyError("rule")

    made = toolbox([SayTool(Trace(), MUTATING)], answer=torn)
    outcome = await made.executor.call(ToolCall("say"))
    assert outcome.result.error_code == "permission_failure"
    assert outcome.result.text.startswith("the decision whether say may run failed: KeyError: 'rule'")
    assert "this is a defect of the policy" in outcome.result.text
    assert made.ledger.begun == []


async def test_a_hook_that_returns_nothing_denies_before_and_changes_nothing_after() -> None:
    class After(Hook):
        async def after(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> ToolResult:
            return None  # type: ignore[return-value]  # the defect

    class Before(After):
        async def before(self, call: ToolCall, ctx: ToolContext) -> ToolCall | str:
            return None  # type: ignore[return-value]  # the defect

    made = toolbox([SayTool(Trace())], hooks=(After(),))
    assert (await made.executor.call(ToolCall("say"))).status is CallStatus.OK
    made = toolbox([SayTool(Trace())], hooks=(Before(),))
    outcome = await made.executor.call(ToolCall("say"))
    assert outcome.status is CallStatus.DENIED
    assert "a hook failed: TypeError: it returned NoneType, not ToolCall or str" in outcome.result.text


@pytest.mark.parametrize(
    "arguments", [{"text": "hunter2"}, {"txet": "hunter2"}, '{"text": "hunter2"', '{"text": "hunter2"}']
)
async def test_no_event_of_a_call_holds_a_secret_of_its_arguments(arguments: JsonObject | str) -> None:
    made = box()
    _, events = await collect(made, ToolCall("say", arguments))
    assert any(isinstance(event, ToolCallCompleted) for event in events)
    assert "hunter2" not in repr(events)
