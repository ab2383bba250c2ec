"""What answers cost that were cancelled or cut off, and that no budget is got round by them."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage
from tests.support.agent_desk import AgentDesk, agent_desk
from tests.support.model_server import Answer, Cut, Failure, Gate, ReportedUsage, Text, call, say

from harness.agent.events import AnswerDelta, ModelRetry, Notice
from harness.agent.models import ModelProfile, Price
from harness.agent.models.failures import may_be_billed
from harness.agent.models.scripted import open_scripted
from harness.agent.opening import ResumedConversation
from harness.agent.settings import AgentSettings
from harness.agent.storage import (
    ConversationNote,
    ConversationStore,
    ConversationSummary,
    NewConversation,
    StoredConversation,
    StoredTurn,
)
from harness.agent.stored_usage import SPENT, note_of, spent_in
from harness.agent.usage import Usage, budgets_nearly_used, over_limit, spent_on

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
        (answer("", input_tokens=-5_000, output_tokens=1 << 90), (1000, 1 << 40, 1000)),
    ],
)
def test_what_was_counted_counts_and_else_an_estimate_that_is_one(
    response: ModelResponse | None, tokens: tuple[int, int, int]
) -> None:
    spent = spent_on(response, MODEL, 1000)
    assert (spent.input_tokens, spent.output_tokens, spent.estimated) == tokens
    assert spent.cost == pytest.approx((tokens[0] + 10 * tokens[1]) / 1_000_000)
    assert Usage.of(spent.json()) == spent
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


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize(("provider", "reported"), [("openai", 0), ("anthropic", 5000)])
async def test_a_cancelled_answer_is_counted_and_the_budget_holds(
    provider: str, reported: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    script = [Answer((Text("It begins.\n\n"), gate, Text("never read")), usage=ReportedUsage(5000, 10)), say("done")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script, provider=provider) as desk:
            result = await cancelled(desk, gate)
            assert (result.status, result.spent.answers) == ("cancelled", 1)
            assert result.spent.input_tokens > 300
            assert (result.spent.estimated > 300) is (reported == 0)
            assert reported in (0, result.spent.input_tokens)
            assert desk.agent.state.spent == result.spent
            desk.agent.settings = AgentSettings(conversation_max_tokens=300)
            second = await desk.agent.turn("again")
            # What nobody counted may be wrong, and a closed conversation cannot be opened again.
            assert (second.status, len(desk.server.asked)) == (("limit", 1) if reported else ("completed", 2))


@pytest.mark.usefixtures("needs_process")
async def test_answers_that_are_cut_off_are_counted_and_close_no_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = Answer((Text("half " * 100), Cut()))
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [cut, say("whole"), cut, say("again")]) as desk:
            first = await desk.agent.turn("go")
            assert (first.status, first.spent.answers, first.steps) == ("completed", 2, 1)
            assert first.spent.estimated > 100
            spent = desk.agent.state.spent
            desk.agent.settings = AgentSettings(conversation_max_tokens=spent.tokens)
            second = await desk.agent.turn("go on")
    assert second.status == "completed"
    assert second.spent.estimated > 0
    assert len(desk.of(ModelRetry)) == 2
    assert len(desk.server.asked) == 4


@pytest.mark.usefixtures("needs_process")
async def test_what_is_refused_before_an_answer_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = [Failure("overloaded", headers={"Retry-After": "0"}), Failure("auth")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk:
            result = await desk.agent.turn("go")
    assert (result.status, result.spent) == ("failed", Usage())


@pytest.mark.usefixtures("needs_process")
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
    assert any("without a summary from the model" in one.text for one in desk.of(Notice))


# -- what never began


class ReadTimeout(Exception): ...


class ConnectError(Exception): ...


class Status(Exception):
    def __init__(self, status_code: int) -> None:
        super().__init__()
        self.status_code = status_code


def raised(*errors: Exception) -> Exception:
    """The first, caused by the second, and so on."""
    for one, cause in pairwise(errors):
        one.__cause__ = cause
    return errors[0]


@pytest.mark.parametrize(
    ("error", "costs"),
    [
        (raised(ValueError(), ReadTimeout()), True),
        (ExceptionGroup("", [ReadTimeout()]), True),
        (raised(ValueError(), ConnectError()), False),
        (raised(ReadTimeout(), ConnectError()), False),
        (raised(Status(529), ReadTimeout()), False),
        (raised(ValueError(), Status(504)), True),
        (ValueError(), False),
    ],
)
def test_what_was_sent_may_cost_and_what_was_refused_or_never_sent_does_not(error: Exception, costs: bool) -> None:
    assert may_be_billed(error) is costs


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic", "google"])
async def test_a_request_whose_connection_ends_before_its_answer_begins_is_counted_by_an_estimate(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [Answer((Cut(),)), say("whole")], provider=provider) as desk:
            result = await desk.agent.turn("go " * 3000)
    assert (result.status, result.spent.answers, result.steps) == ("completed", 2, 1)
    assert result.spent.estimated > 2000 or provider == "anthropic"  # which says at once what it counted


# -- what is stored

LONG = "word " * 2000
SUMMARY = ConversationSummary(session_id="s", created=0, changed=0, target="local:", identity="local:")


async def resumed(store: ConversationStore, session_id: str) -> Usage:
    return spent_in(await store.load(session_id))


@pytest.mark.usefixtures("needs_process")
async def test_what_a_compaction_costs_is_there_when_the_conversation_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ConversationStore(tmp_path / "sessions")
    session_id = (await store.create(NewConversation(target="local:", identity="local:"))).session_id
    script = [*(say(LONG) for _ in range(5)), say("notes"), call("compact", {}), say("notes again"), say("done")]
    with anyio.fail_after(LIMIT):
        async with (
            store.writing(session_id) as log,
            agent_desk(tmp_path, monkeypatch, script, log=log, session_id=session_id) as desk,
        ):
            for number in range(5):
                await desk.agent.turn(f"turn {number} {LONG}")
            assert await desk.agent.compact_between() is not None
            assert await resumed(store, session_id) == desk.agent.state.spent
            assert desk.agent.state.spent.answers == 6
            result = await desk.agent.turn(f"and now {LONG}")
            assert result.spent.answers == 3
            assert await resumed(store, session_id) == desk.agent.state.spent
            used = desk.agent.state.spent
        again = ResumedConversation(spent=await resumed(store, session_id))
        assert again.spent == used
        settings = AgentSettings(conversation_max_tokens=used.tokens)
        async with agent_desk(tmp_path, monkeypatch, [], resumed=again, settings=settings) as desk:
            assert (await desk.agent.turn("go on")).status == "limit"


@pytest.mark.usefixtures("needs_process")
async def test_answers_of_a_turn_that_never_ended_are_stored_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ConversationStore(tmp_path / "sessions")
    session_id = (await store.create(NewConversation(target="local:", identity="local:"))).session_id
    gate = Gate()
    script = [call("time", {}), Answer((Text("It begins.\n\n"), gate))]
    with anyio.fail_after(LIMIT):
        async with (
            store.writing(session_id) as log,
            agent_desk(tmp_path, monkeypatch, script, log=log, session_id=session_id) as desk,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(desk.agent.turn, "go")
            await gate.reached()
            killed = await store.load(session_id)  # as a kill -9 would leave it here
            assert killed.unfinished is not None
            assert spent_in(killed) == desk.agent.state.spent != Usage()
            tasks.cancel_scope.cancel()
        ended = await store.load(session_id)
    assert ended.unfinished is None  # harness was ended, and could say so
    assert spent_in(ended).answers == 2
    assert ended.turns[-1].usage["answers"] == 2


def test_each_request_counts_once_whether_its_turn_has_an_end_or_not() -> None:
    one = Usage(10, 1, cost=0.5, answers=1)
    turns = (
        StoredTurn(turn_id="ended", prompt="", status="completed", usage=(one + one).json()),
        StoredTurn(turn_id="cut off", prompt=""),
        StoredTurn(turn_id="older", prompt="", status="completed", usage=one.json()),
    )
    notes = [
        ConversationNote(at=0.0, kind=SPENT, text=note_of(one, turn_id))
        for turn_id in ("ended", "ended", "cut off", "", "below")
    ]
    below = {"agent": "s.1", "what": "turn_ended", "turn_id": "below", "usage": dict(one.json())}
    others = [
        ConversationNote(at=0.0, kind="subagent", text=json.dumps(below)),
        ConversationNote(at=0.0, kind=SPENT, text="{"),
    ]
    stored = StoredConversation(session=SUMMARY, turns=turns, notes=(*notes, *others))
    assert spent_in(stored) == Usage(60, 6, cost=3.0, answers=6)


@pytest.mark.parametrize(
    ("limits", "reached"),
    [
        ({"conversation_budget_usd": 1.0}, ""),
        ({"conversation_budget_usd": 0.5}, "the conversation has cost $0.50"),
        ({"conversation_max_tokens": 1000}, ""),
        ({"conversation_max_tokens": 600}, "the conversation has used 600 tokens"),
        ({"turn_budget_usd": 1.0}, "the turn has cost $1.25, in part by an estimate"),
    ],
)
def test_an_estimate_ends_a_turn_but_closes_no_conversation(limits: dict[str, float], reached: str) -> None:
    spent = Usage(input_tokens=1000, output_tokens=200, cost=1.25, answers=2, estimated=600, estimated_cost=0.75)
    assert Usage.of(spent.json()) == spent
    settings = AgentSettings(**limits)  # type: ignore[arg-type]  # numbers of the table
    assert over_limit(settings, 2, spent, spent).startswith(reached)
    assert bool(over_limit(settings, 2, spent, spent)) is bool(reached)


@pytest.mark.parametrize(
    ("settings", "turn", "session", "names"),
    [
        (AgentSettings(), 9.0, 9.0, []),
        (AgentSettings(turn_budget_usd=1.0), 0.79, 5.0, []),
        (AgentSettings(turn_budget_usd=1.0), 0.8, 5.0, ["turn_budget_usd"]),
        (
            AgentSettings(turn_budget_usd=1.0, conversation_budget_usd=5.0),
            0.8,
            4.9,
            ["conversation_budget_usd", "turn_budget_usd"],
        ),
        (AgentSettings(conversation_max_tokens=10), 0.0, 0.0, ["conversation_max_tokens"]),
    ],
)
def test_a_budget_is_nearly_used_from_80_percent_on(
    settings: AgentSettings, turn: float, session: float, names: list[str]
) -> None:
    uses = budgets_nearly_used(settings, Usage(cost=turn), Usage(cost=session, input_tokens=4, output_tokens=4))
    assert [use.setting for use in uses] == names
