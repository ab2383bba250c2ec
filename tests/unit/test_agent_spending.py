"""What answers cost that were cancelled or cut off, and that no budget is got round by them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage
from tests.support.agent_desk import AgentDesk, agent_desk
from tests.support.model_server import Answer, Cut, Failure, Gate, Text, Usage, say

from harness.agent.events import AnswerDelta, ModelRetry, Notice
from harness.agent.models import ModelProfile, Price
from harness.agent.models.scripted import open_scripted
from harness.agent.settings import AgentSettings
from harness.agent.usage import Spent, spent_on

LIMIT = 60.0
PRICE = Price(Decimal(1), Decimal(10))
MODEL = replace(open_scripted([]), profile=ModelProfile("m", "scripted", "m", prices=PRICE))


def answer(text: str, *, ended: bool = True, **usage: int) -> ModelResponse:
    made = ModelResponse([TextPart(text)] if text else [], usage=RequestUsage(**usage))
    return replace(made, finish_reason="stop") if ended else replace(made, state="incomplete")


@pytest.mark.parametrize(
    ("response", "tokens"),
    [
        (answer("x" * 330, input_tokens=50, output_tokens=7), (50, 7, 0)),
        (answer("", input_tokens=50), (50, 0, 0)),
        (answer("x" * 330), (1000, 107, 1107)),
        (answer("x" * 330, input_tokens=50), (50, 0, 0)),
        (answer("x" * 330, ended=False, input_tokens=50, output_tokens=1), (50, 107, 106)),
        (answer("x", ended=False, input_tokens=50, output_tokens=400), (50, 400, 0)),
        (None, (1000, 0, 1000)),
    ],
)
def test_what_was_counted_counts_and_else_an_estimate_that_is_one(
    response: ModelResponse | None, tokens: tuple[int, int, int]
) -> None:
    spent = spent_on(response, MODEL, 1000)
    assert (spent.input_tokens, spent.output_tokens, spent.estimated) == tokens
    assert spent.cost == pytest.approx((tokens[0] + 10 * tokens[1]) / 1_000_000)
    assert Spent.of(spent.json()) == spent
    assert ("estimated_tokens" in spent.json()) is bool(tokens[2])


async def cancelled(desk: AgentDesk, gate: Gate) -> Any:
    """A turn that is cancelled when its answer is at a gate."""
    results: list[Any] = []

    async def work() -> None:
        results.append(await desk.agent.turn("go " + "on " * 300))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await gate.reached()
        await desk.seen_of(AnswerDelta)  # and with it what is reported at the beginning
        assert desk.agent.cancel()
    return results[0]


@pytest.mark.parametrize(("provider", "reported"), [("openai", 0), ("anthropic", 5000)])
async def test_a_cancelled_answer_is_counted_and_the_budget_holds(
    provider: str, reported: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    script = [Answer((Text("It begins.\n\n"), gate, Text("never read")), usage=Usage(5000, 10)), say("never asked for")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script, provider=provider) as desk:
            result = await cancelled(desk, gate)
            assert (result.status, result.spent.answers) == ("cancelled", 1)
            assert result.spent.input_tokens > 300
            assert (result.spent.estimated > 300) is (reported == 0)
            assert reported in (0, result.spent.input_tokens)
            assert desk.agent.state.spent == result.spent
            desk.agent.settings = AgentSettings(session_tokens=300)
            second = await desk.agent.turn("again")
            assert second.status == "limit"
            assert ("in part by an estimate" in second.failure) is (reported == 0)
            assert len(desk.server.asked) == 1


async def test_answers_that_are_cut_off_are_counted_and_asked_for_again_only_within_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = Answer((Text("half " * 100), Cut()))
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [cut, say("whole"), cut, say("never")]) as desk:
            first = await desk.agent.turn("go")
            assert (first.status, first.spent.answers, first.steps) == ("completed", 2, 1)
            assert first.spent.estimated > 100
            used = desk.agent.state.spent.tokens
            desk.agent.settings = AgentSettings(session_tokens=used + 1)
            second = await desk.agent.turn("go on")
    assert second.status == "limit"
    assert len(desk.of(ModelRetry)) == 1
    assert len(desk.server.asked) == 3


async def test_what_is_refused_before_an_answer_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = [Failure("overloaded", headers={"Retry-After": "0"}), Failure("auth")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk:
            result = await desk.agent.turn("go")
    assert (result.status, result.spent) == ("failed", Spent())


async def test_notes_that_are_cut_off_or_cancelled_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    turns = [say("word " * 2000) for _ in range(5)]
    script = [*turns, Answer((gate, Text("notes"))), Answer((Text("half"), Cut()))]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk:
            for number in range(5):
                await desk.agent.turn(f"turn {number}")
            before = desk.agent.state.spent
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(desk.agent.compact)
                await gate.reached()
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
            between = desk.agent.state.spent
            assert await desk.agent.compact() is not None
            after = desk.agent.state.spent
    assert between.answers == before.answers + 1
    assert between.estimated > before.estimated
    assert after.answers == between.answers + 1
    assert after.output_tokens > between.output_tokens
    assert any("without the model" in one.text for one in desk.of(Notice))
