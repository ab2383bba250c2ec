"""A turn whose model, provider and operator do their worst: the history stays valid, and nothing runs twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.agent_desk import AgentDesk, agent_desk
from tests.support.model_server import (
    Answer,
    Call,
    Cut,
    Failure,
    Gate,
    Raw,
    Reasoning,
    ReportedUsage,
    Stop,
    Text,
    call,
    say,
)
from tests.support.model_wire.dialect import Setting
from tests.support.model_wire.responses import ResponsesDialect

from harness.agent.events import AnswerDelta, ModelRetry
from harness.agent.messages.history import loaded
from harness.agent.models import Price
from harness.agent.opening import HumanHandlers
from harness.agent.settings import AgentSettings
from harness.agent.storage import MemoryLog
from harness.toolkit.events import ToolCallCompleted, ToolCallProgress
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.questions import ApprovalDecision as Reply
from harness.toolkit.permissions.questions import ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.rules.settings import Mode
from harness.toolkit.values import CallStatus

pytestmark = pytest.mark.usefixtures("needs_process")

LIMIT = 100.0
PROVIDERS = ("openai", "anthropic")


def shell(command: str) -> dict[str, Any]:
    return {"command": command, "risk": "low", "mutation": True, "privesc": False, "why": "a test"}


def counted(name: str) -> dict[str, Any]:
    """A command that leaves a line in a file each time it runs."""
    return shell(f"echo ran >> {name}")


def runs(desk: AgentDesk, name: str) -> int:
    path = desk.home / name
    return path.read_text().count("ran") if path.exists() else 0


@dataclass
class Judge(Approver):
    """Refuses what names a word, and takes a moment over everything."""

    asked: list[str] = field(default_factory=list)

    async def ask(self, question: ApprovalRequest) -> Reply:
        self.asked.append(question.what)
        await anyio.sleep(0.05)
        return (
            Reply(ApprovalScope.DENY_ONCE, reason="use staging")
            if "refused" in question.what
            else Reply(ApprovalScope.ONCE)
        )


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_calls_of_one_answer_that_end_in_every_way_each_have_their_one_result(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [
        Call("run_shell", counted("first"), "a"),
        Call("run_shell", counted("refused"), "b"),
        Call("run_shell", shell("echo ran >> failed; exit 3"), "c"),
        Call("no_such_tool", {}, "d"),
        Call("run_shell", {"command": 5, "wrong": []}, "e"),
        Call("run_shell", shell("echo ran >> held; echo holding; cat fifo"), "f"),
        Call("run_shell", counted("never"), "g"),
    ]
    judge = Judge()
    with anyio.fail_after(LIMIT):
        async with agent_desk(
            tmp_path, monkeypatch, [Answer(tuple(calls)), say("I see")],
            provider=provider, mode=Mode.ASK, handlers=HumanHandlers(judge),
        ) as desk:  # fmt: skip
            await desk.execution.run_shell("mkfifo fifo", cwd=str(desk.home))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(desk.agent.turn, "go")
                await desk.seen_of(ToolCallCompleted, 5)
                await desk.until(lambda: any("holding" in one.text for one in desk.of(ToolCallProgress)))
                assert desk.agent.cancel()
            second = await desk.agent.turn("and?")
            done = {one.outcome.call.provider_id: one.outcome for one in desk.of(ToolCallCompleted)}
            ran = {name: runs(desk, name) for name in ("first", "refused", "failed", "held", "never")}
    assert second.status == "completed"  # and the server found nothing wrong with the history
    assert ran == {"first": 1, "refused": 0, "failed": 1, "held": 1, "never": 0}
    assert [done[name].status for name in "abf"] == [CallStatus.OK, CallStatus.DENIED, CallStatus.CANCELLED]
    assert len(desk.of(ToolCallCompleted)) == len(calls)
    assert done["a"].waited >= 0.05
    assert done["a"].running < done["a"].seconds
    told = desk.server.asked[-1].text
    assert "use staging" in told
    assert "The operator cancelled this turn" in told


ODD: Sequence[tuple[str, Answer, str]] = (
    ("nothing", Answer(()), "(the model said nothing)"),
    ("only reasoning", Answer((Reasoning("hm " * 200),)), "(the model said nothing)"),
    ("thousands of pieces", Answer((Text("a b\n" * 750 + "c", size=1),)), "a b\n" * 750 + "c"),
    ("5 MB in one piece", Answer((Text("x" * 5_000_000, size=5_000_000),)), "x" * 5_000_000),
)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_answers_of_any_shape_end_the_turn_and_the_next_one_goes_on(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [one for _, odd, _ in ODD[:-1] for one in (odd, say("next"))]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script, provider=provider) as desk:
            for name, _, text in ODD[:-1]:
                assert (await desk.agent.turn("go")).text == text, name
                assert (await desk.agent.turn("and?")).text == "next", name


async def test_an_answer_of_megabytes_in_one_piece_is_shown_and_kept_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, odd, text = ODD[-1]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [odd]) as desk:
            assert (await desk.agent.turn("go")).text == text
            assert sum(len(event.text) for event in desk.of(AnswerDelta)) == len(text)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_calls_that_share_an_id_or_have_broken_arguments_run_once_each_or_not_at_all(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = (
        Call("run_shell", counted("one"), "same"),
        Call("run_shell", counted("two"), "same"),
        Call("run_shell", '{"command": "echo ran >> broken"', "x"),
        Call("run_shell", '{"command": "true", "command": "echo ran >> broken"}', "y"),
        Call("run_shell", "[1]", "z"),
    )
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [Answer(calls), say("ok")], provider=provider) as desk:
            assert (await desk.agent.turn("go")).status == "completed"
            assert {name: runs(desk, name) for name in ("one", "two", "broken")} == {"one": 1, "two": 1, "broken": 0}
            assert len(desk.of(ToolCallCompleted)) == 5


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("3600", "failed"),  # longer than anybody waits: said at once
        ("Wed, 21 Oct 2015 07:28:00 GMT", "completed"),
        ("-5", "completed"),
        ("soon", "completed"),
        ("1e999", "completed"),
    ],
)
async def test_a_rate_limit_is_waited_for_only_as_long_as_makes_sense(
    header: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [Failure("rate_limit", headers={"Retry-After": header}), say("whole")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk:
            result = await desk.agent.turn("go")
            assert result.status == status
            assert len(desk.of(ModelRetry)) == (status == "completed")
            if status == "failed":
                assert "3600" in result.failure
                assert (await desk.agent.turn("again")).text == "whole"


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_connection_that_is_cut_in_the_middle_of_a_call_runs_nothing_and_then_once(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Call("run_shell", counted("made"), "a")
    script = [
        Answer((whole, Call("run_shell", '{"command": "echo ran >> ma', "b"), Cut())),
        Answer((whole,)),
        say("ok"),
    ]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script, provider=provider) as desk:
            assert (await desk.agent.turn("go")).text == "ok"
            assert runs(desk, "made") == 1


async def test_an_answer_that_is_cancelled_with_whole_calls_in_it_runs_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    script = [Answer((Text("I do it"), Call("run_shell", counted("made"), "a"), gate)), say("ok")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(desk.agent.turn, "go")
                await gate.reached()
                assert desk.agent.cancel()
            assert (await desk.agent.turn("and?")).text == "ok"
            assert runs(desk, "made") == 0


async def test_a_budget_that_is_reached_lets_the_calls_of_the_answer_end_and_asks_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tuple(Call("run_shell", counted(f"n{number}"), f"c{number}") for number in range(3))
    script = [Answer(calls, usage=ReportedUsage(1_000_000, 0)), say("went on")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk:
            price = Price(Decimal(2), Decimal(2))
            await desk.agent.switch_model(replace(desk.agent.profile, name="dear", prices=price))
            desk.agent.settings = AgentSettings(turn_budget_usd=1.0)
            first = await desk.agent.turn("go")
            assert [runs(desk, f"n{number}") for number in range(3)] == [1, 1, 1]
            assert len(desk.server.asked) == 1
            desk.agent.settings = AgentSettings(turn_budget_usd=1.0)
            second = await desk.agent.turn("go on")
            assert [runs(desk, f"n{number}") for number in range(3)] == [1, 1, 1]
    assert first.status == "limit"
    assert "its budget is $1.00" in first.failure
    assert second.text == "went on"


async def test_a_model_that_calls_the_same_tool_that_is_not_there_ends_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with anyio.fail_after(LIMIT):
        async with agent_desk(
            tmp_path, monkeypatch, [call("nope") for _ in range(5)], settings=AgentSettings(max_steps=5)
        ) as desk:
            result = await desk.agent.turn("go")
    assert (result.status, result.steps) == ("limit", 5)


ODD_CALLS = (
    {"index": 0, "id": "c", "type": "function", "function": {"name": 5, "arguments": "{}"}},
    {"index": 0, "id": 7, "type": "function", "function": {"name": "time", "arguments": "{}"}},
)


async def test_values_of_another_kind_than_the_protocol_says_are_an_answer_that_is_not_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def odd(call_of_it: object) -> Answer:
        delta = {"index": 0, "delta": {"tool_calls": [call_of_it]}, "finish_reason": None}
        said = json.dumps({**chunk, "choices": [delta]}).encode()
        return Answer((Raw(b"data: " + said + b"\n\n"),))

    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [*map(odd, ODD_CALLS), say("whole")]) as desk:
            result = await desk.agent.turn("go")
    assert (result.status, result.text, len(desk.of(ModelRetry))) == ("completed", "whole", 2), result.failure
    assert "invalid response" in desk.of(ModelRetry)[0].reason
    assert result.spent.input_tokens > 0 < result.spent.output_tokens
    assert isinstance(desk.log, MemoryLog)
    assert [loaded(text).kind for text in desk.log.messages] == ["request", "response"]


def responses_without(number: int, call_of_it: Call) -> Answer:
    """The stream of an answer of OpenAI's responses in which one event is missing."""
    sent = list(ResponsesDialect().stream(Answer((call_of_it,)), Setting("test-model", 1, 1)))[2:]
    del sent[number]
    return Answer((Raw(b"".join(one for one in sent if isinstance(one, bytes))), Stop()))


@pytest.mark.parametrize("number", range(1, 8))
async def test_a_call_of_which_a_piece_was_lost_runs_as_it_was_meant_or_not_at_all(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meant = Call("run_shell", '{"command": "echo ran >> made-by-the-call"}', "a")
    with anyio.fail_after(LIMIT):
        async with agent_desk(
            tmp_path, monkeypatch, [responses_without(number, meant), say("whole"), say("ok")],
            provider="openai-responses",
        ) as desk:  # fmt: skip
            assert (await desk.agent.turn("go")).status == "completed"
            made = {path.name for path in desk.home.iterdir() if not path.name.startswith(".")} - {"harness"}
    assert made <= {"made-by-the-call"}


async def test_a_value_of_another_kind_in_a_stream_is_an_answer_that_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = (
        b'data: {"type": "response.function_call_arguments.delta", "item_id": [], "output_index": 0, "delta": "x"}\n\n'
    )
    script = [Answer((Raw(odd), Stop())), say("whole")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script, provider="openai-responses") as desk:
            assert (await desk.agent.turn("go")).text == "whole"
            assert "invalid response" in desk.of(ModelRetry)[0].reason
