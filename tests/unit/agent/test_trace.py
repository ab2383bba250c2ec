"""Traces: everything that happens is in the file, without secrets, for its owner alone, and never in the way."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models import ModelRequestParameters
from tests.support.disks import DISKS
from tests.support.own_home import here

from harness.agent.events import AnswerDelta, Notice, TurnStarted
from harness.agent.models import ModelProfile, OpenModel
from harness.agent.models.scripted import ScriptedCall, Step, open_scripted
from harness.agent.opening import open_agent
from harness.agent.trace import Trace, observed, open_trace, watching
from harness.agent.trace.observer import event_fields, json_of, line_of, type_of
from harness.agent.trace.reading import (
    TraceLine,
    context_of,
    context_steps,
    lines_of,
    read_trace,
    replayed,
    summary_of,
    turns_of,
)
from harness.context import ExecutionContext
from harness.errors import HarnessError
from harness.toolkit import CallOutcome, CallStatus, Image, Text, ToolCall, ToolResult
from harness.toolkit.assembly import ToolkitSettings, open_toolkit
from harness.toolkit.events import EventBus, ToolCallCompleted
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness.toolkit.redaction.redactor import PatternRedactor

__all__ = ["here"]

AUTO = ToolkitSettings(permissions=PermissionSettings(mode=Mode.AUTO))
SECRET = "correct-horse-battery-staple"
REDACTOR = PatternRedactor([SECRET])
PROFILE = ModelProfile("scripted", "scripted", "scripted")


@asynccontextmanager
async def traced_agent(execution: ExecutionContext, path: Path, *script: Step) -> AsyncIterator[object]:
    """An agent on a target, with its trace."""

    @asynccontextmanager
    async def open_one(profile: ModelProfile) -> AsyncIterator[OpenModel]:
        yield open_scripted(script)

    async with AsyncExitStack() as stack:
        toolkit = await stack.enter_async_context(open_toolkit(AUTO))
        trace = await stack.enter_async_context(open_trace(path, REDACTOR, {"target": str(execution.target)}))
        agent = await stack.enter_async_context(
            open_agent(execution, toolkit, PROFILE, open_one=observed(open_one, [trace]))
        )
        stack.enter_context(watching(agent.events, [trace]))
        yield agent


async def test_a_trace_of_a_conversation_has_every_event_request_and_answer(
    here: ExecutionContext, tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    script = (
        Step("I look. ", calls=[ScriptedCall("run_shell", {"command": f"echo {SECRET}; false"})]),
        Step("It failed."),
        Step("Nothing more."),
    )
    async with traced_agent(here, path, *script) as agent:
        await agent.turn("why?")  # type: ignore[attr-defined]  # an agent
        await agent.turn("and now?")  # type: ignore[attr-defined]  # an agent
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SECRET not in path.read_text()
    lines = read_trace(path)
    kinds = [line.kind for line in lines]
    assert kinds[0] == "trace"
    for kind in ("turn_started", "tool_call_requested", "tool_call_completed", "answer_completed", "turn_completed"):
        assert kind in kinds
    assert kinds.count("model_request") == kinds.count("model_response") == 3
    requests = [line.values for line in lines if line.kind == "model_request"]
    assert [(one["step"], one["turn_id"]) for one in requests] == [
        (step, turn.turn_id) for turn, steps in zip(turns_of(lines), ((1, 2), (1,)), strict=True) for step in steps
    ]
    assert "run_shell" in str(requests[0]["tools"])
    assert "instructions" in requests[0]
    assert "instructions" not in requests[1]
    for request in requests:
        context = context_of(lines, int(str(request["request"])))
        assert context is not None
        assert len(context) == request["messages"]
    assert "why?" in json.dumps(context_of(lines, int(str(requests[2]["request"]))))

    summary = summary_of(lines)
    assert (summary.target, summary.turns, summary.requests) == ("local:", {"completed": 2}, 3)
    assert (summary.tools["run_shell"].calls, summary.tools["run_shell"].errors) == (1, 1)
    assert summary.output_tokens > 0
    assert summary.damaged == summary.dropped == 0
    steps = context_steps(lines)
    assert [step.messages for step in steps] == [one["messages"] for one in requests]
    assert steps[2].input_tokens > 0

    told = "\n".join(replayed(turns_of(lines)))
    for part in ("== turn 1", "| why?", "call run_shell", "| I look.", "== turn 2", "and 2 answers"):
        assert part in told
    assert "== turn 1" not in "\n".join(replayed(turns_of(lines)[1:]))


async def test_the_summary_counts_the_calls_that_the_cache_answered(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    async with open_trace(path, REDACTOR) as trace:
        for cached in (False, True, True):
            outcome = CallOutcome(ToolCall("read_file", {}), ToolResult.of("x"), CallStatus.OK, cached=cached)
            trace.heard(ToolCallCompleted(outcome=outcome))
    figures = summary_of(read_trace(path)).tools["read_file"]
    assert (figures.calls, figures.cached) == (3, 2)


# -- the file


async def test_a_trace_goes_on_where_the_last_one_ended_also_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    for number in range(2):
        async with open_trace(path, REDACTOR) as trace:
            trace.heard(Notice(text=f"{number}"))
        with path.open("a") as file:
            file.write('{"type":"notice","te')
    lines = read_trace(path)
    assert [line.kind for line in lines] == ["trace", "notice", "", "trace", "notice", ""]
    assert summary_of(lines).damaged == 2


@pytest.mark.parametrize("content", [b"127.0.0.1 localhost\n", b"{}\n", b'{"type":"other"}\n'])
async def test_a_file_that_is_no_trace_is_left_as_it_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_bytes(content)
    path.chmod(0o644)
    with pytest.raises(HarnessError, match="is not a trace file"):
        async with open_trace(path, REDACTOR):
            raise AssertionError
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    with pytest.raises(HarnessError, match="is not a trace file"):
        read_trace(path)


async def test_two_do_not_write_one_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    async with open_trace(path, REDACTOR) as trace:
        trace.heard(Notice(text="one"))
        with pytest.raises(HarnessError, match="another harness writes the trace"):
            async with open_trace(path, REDACTOR):
                raise AssertionError
    async with open_trace(path, REDACTOR):
        pass
    assert [line.kind for line in read_trace(path)] == ["trace", "notice", "trace"]


async def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("pipe", "not a regular file"), ("", "is a directory"), ("no/such", "no such file")):
        with anyio.fail_after(60), pytest.raises(HarnessError, match=said):
            async with open_trace(tmp_path / name, REDACTOR):
                raise AssertionError
    with pytest.raises(HarnessError, match="cannot be read"):
        read_trace(tmp_path / "nothing")


async def test_a_trace_of_a_newer_harness_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text('{"type":"trace","at":1,"version":2}\n')
    with pytest.raises(HarnessError, match="a newer harness wrote"):
        read_trace(path)


async def test_a_slow_disk_holds_nobody_up_and_costs_pieces_first(tmp_path: Path) -> None:
    path, gate = tmp_path / "trace", threading.Event()

    def slow() -> tuple[str, dict[str, object]]:
        gate.wait(60)
        return "notice", {}

    async with open_trace(path, REDACTOR) as trace:
        trace.put(slow)  # type: ignore[arg-type]  # as good as JSON
        for number in range(6_000):
            trace.heard(AnswerDelta(turn_id="t", text=f"{number}"))
        trace.heard(Notice(text="kept"))
        gate.set()
    lines = read_trace(path)
    assert [line.values.get("text") for line in lines if line.kind == "notice"] == [None, "kept"]
    pieces = sum(line.kind == "answer_delta" for line in lines)
    assert 3_000 < pieces <= 4_500
    assert summary_of(lines).dropped == 6_000 - pieces


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("disk", DISKS)
async def test_a_full_disk_ends_the_trace_and_nothing_else(
    disk: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "small"
    with DISKS[disk](directory) as full:
        async with open_trace(directory / "trace-wal", REDACTOR) as trace:
            trace.heard(Notice(text="x" * 20_000))
            await trace.flush()
            with full():
                for _ in range(5):
                    trace.heard(Notice(text="x" * 200_000))
                    await trace.flush()
        assert caplog.text.count("ends here") == 1
        assert read_trace(directory / "trace-wal")[1].kind == "notice"


async def test_what_cannot_be_said_as_json_costs_a_line_at_most(tmp_path: Path) -> None:
    def broken() -> tuple[str, dict[str, object]]:
        raise RuntimeError(SECRET)

    path = tmp_path / "trace"
    async with open_trace(path, REDACTOR) as trace:
        trace.put(broken)  # type: ignore[arg-type]  # it fails before
        trace.heard(TurnStarted(turn_id="t", prompt="half \ud800 of a pair"))
    lines = read_trace(path)
    assert [line.kind for line in lines] == ["trace", "untraceable", "turn_started"]
    assert lines[2].values["prompt"] == "half \ud800 of a pair"
    assert SECRET not in path.read_text()


# -- lines


def test_an_event_becomes_an_object_without_what_is_empty() -> None:
    result = ToolResult((Text("out"), Image(b"12345", "image/png")))
    event = ToolCallCompleted(outcome=CallOutcome(ToolCall("look", {"path": "/x"}), result, CallStatus.OK))
    values = event_fields(event)
    assert type_of(event) == "tool_call_completed"
    assert "parent_call" not in values
    outcome = json.loads(json.dumps(values))["outcome"]
    assert outcome["status"] == "ok"
    assert outcome["result"]["content"] == [
        {"text": "out"},
        {"data": {"bytes": 5}, "media_type": "image/png"},
    ]


@given(st.recursive(st.none() | st.text() | st.binary() | st.floats(allow_nan=False), lambda one: st.lists(one)))  # noqa: PLW0108  # a strategy
def test_every_value_becomes_one_line(value: object) -> None:
    line = line_of("x", 1.0, {"value": json_of(value)}, REDACTOR)
    assert line.count(b"\n") == 1
    assert json.loads(line)["type"] == "x"


@given(st.text())
def test_no_text_breaks_the_reader(content: str) -> None:
    lines = tuple(lines_of(content.splitlines()))
    assert summary_of(lines).damaged == sum(not line.kind for line in lines)
    assert list(replayed(turns_of(lines))) == []


KINDS = ("turn_started", "model_request", "model_response", "tool_call_completed", "turn_completed")
NAMES = ("turn_id", "outcome", "same", "new", "request", "before", "usage", "call", "messages")


@given(
    st.lists(
        st.builds(
            TraceLine,
            st.sampled_from(
                ["turn_started", "model_request", "model_response", "tool_call_completed", "turn_completed"]
            ),
            st.floats(0, 1e9),
            st.dictionaries(
                st.sampled_from(
                    ["turn_id", "outcome", "same", "new", "request", "before", "usage", "call", "messages"]
                ),
                st.none() | st.integers() | st.text() | st.lists(st.none()) | st.dictionaries(st.text(), st.none()),
            ),
        )
    )
)
def test_lines_of_another_form_are_read_as_far_as_they_can_be(lines: list[TraceLine]) -> None:
    summary_of(lines)
    context_steps(lines)
    context_of(lines, 1)
    list(replayed(turns_of(lines)))


@pytest.mark.parametrize("figure", ["1e999", "-1e999", "NaN", "1e300", "9" * 400, "9" * 5000, "true"])
def test_figures_that_nothing_can_have_are_none(figure: str, tmp_path: Path) -> None:
    names = ("at", "request", "same", "before", "messages", "new_bytes", "step", "seconds", "cost", "lines")
    kinds = ("turn_started", "model_request", "model_response", "usage_changed", "dropped", "turn_completed")
    path = tmp_path / "trace"
    rest = ", ".join(f'"{name}": {figure}' for name in names)
    path.write_text(
        '{"type":"trace","at":' + figure + "}\n" + "".join(f'{{"type":"{kind}", {rest}}}\n' for kind in kinds)
    )
    lines = read_trace(path) if len(figure) < 5000 else tuple(lines_of(path.read_text().splitlines()))
    json.dumps([asdict(summary_of(lines)), *map(asdict, context_steps(lines))], allow_nan=False)
    assert context_of(lines, 7) is None
    list(replayed(turns_of(lines)))


def test_what_is_no_trace_is_refused_before_all_of_it_is_read() -> None:
    with pytest.raises(HarnessError, match="is not a trace file"):
        read_trace(Path("/dev/zero"))


def test_the_cost_of_a_trace_is_that_of_all_its_conversations() -> None:
    said = [("one", 0.5), ("two", 0.125), ("one", 0.75)]
    lines = [TraceLine("usage_changed", 0.0, {"session_id": session, "cost": cost}) for session, cost in said]
    assert summary_of(lines).cost == 0.875


async def test_a_context_whose_beginning_is_not_there_is_not_made_up(tmp_path: Path) -> None:
    def request(place: int, before: int, same: int, *new: str) -> TraceLine:
        return TraceLine("model_request", 0.0, {"request": place, "before": before, "same": same, "new": list(new)})

    lines = [request(1, 0, 0, "a", "b"), request(2, 1, 2, "c"), request(3, 2, 1, "s"), request(5, 4, 2, "d")]
    assert context_of(lines, 2) == ("a", "b", "c")
    assert context_of(lines, 3) == ("a", "s")
    assert context_of(lines, 5) is None
    assert context_of(lines, 9) is None


async def test_a_request_without_a_stream_and_one_that_fails_are_traced(tmp_path: Path) -> None:
    async def broken() -> None:
        raise RuntimeError(f"no {SECRET}")

    async with open_trace(tmp_path / "trace", REDACTOR) as trace:
        model = trace.model(open_scripted([Step("hello"), Step("never", wait_for=broken)]).model)
        messages: list[ModelMessage] = [ModelRequest.user_text_prompt("hi")]
        await model.request(messages, None, ModelRequestParameters())
        with pytest.raises(RuntimeError):
            await model.request([*messages, *messages], None, ModelRequestParameters())
    lines = read_trace(tmp_path / "trace")
    kinds = ["trace", "model_request", "model_response", "model_request", "model_failure"]
    assert [line.kind for line in lines] == kinds
    assert (lines[3].values["same"], lines[3].values["messages"]) == (1, 2)
    assert str(lines[4].values["error"]).startswith("RuntimeError: no ")
    assert SECRET not in (tmp_path / "trace").read_text()
    assert summary_of(lines).failures == 1


async def test_a_trace_hears_of_a_bus_only_while_it_is_watched(tmp_path: Path) -> None:
    bus = EventBus("s1")
    async with open_trace(tmp_path / "trace", REDACTOR) as trace:
        assert isinstance(trace, Trace)
        with watching(bus, [trace]):
            bus.publish(Notice(text="inside"))
        bus.publish(Notice(text="outside"))
    lines = read_trace(tmp_path / "trace")
    assert [(line.values["text"], line.values["session_id"]) for line in lines[1:]] == [("inside", "s1")]
