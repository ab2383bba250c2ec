"""What requests cost and what models take, and the model that plays a script."""

from __future__ import annotations

from decimal import Decimal

import anyio
import pytest
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from harness.agent.models import ModelProfile, OpenModel, Price, context_limit_of, cost_of
from harness.agent.models.scripted import ScriptedCall, Step, open_scripted

USAGE = RequestUsage(
    input_tokens=1_000_000, output_tokens=100_000, cache_read_tokens=400_000, cache_write_tokens=200_000
)


@pytest.mark.parametrize(
    ("price", "cost"),
    [
        (Price(Decimal(3), Decimal(15), Decimal("0.3"), Decimal("3.75")), Decimal("3.57")),
        (Price(Decimal(3), Decimal(15)), Decimal("4.5")),
        (Price(Decimal(0), Decimal(0)), Decimal(0)),
    ],
)
def test_a_profiles_prices_count_cached_tokens_once(price: Price, cost: Decimal) -> None:
    assert cost_of(USAGE, ModelProfile("a", "openai", "m", prices=price)) == cost


def test_usage_that_contradicts_itself_costs_nothing_below_zero() -> None:
    odd = RequestUsage(input_tokens=10, cache_read_tokens=1000)
    price = Price(Decimal(1), Decimal(1), Decimal(0), Decimal(0))
    assert cost_of(odd, ModelProfile("a", "openai", "m", prices=price)) == 0


def test_known_models_have_a_price_and_a_limit_and_others_have_none() -> None:
    known = ModelProfile("a", "anthropic", "claude-sonnet-4-5")
    assert (cost_of(USAGE, known) or 0) > 0
    assert context_limit_of(known) >= 200_000
    for unknown in (
        ModelProfile("a", "anthropic", "no-such-model"),
        ModelProfile("a", "no-such-provider", "m"),
        ModelProfile("a", "anthropic", "claude-sonnet-4-5", base_url="http://localhost:1"),
    ):
        assert cost_of(USAGE, unknown) is None
        assert context_limit_of(unknown) == 0
    assert context_limit_of(ModelProfile("a", "ollama", "m", context_window=8192)) == 8192


# -- the script


async def answers(opened: OpenModel, conversation: list[ModelMessage]) -> tuple[ModelResponse, list[str]]:
    async with model_request_stream(opened.model, conversation, model_settings=opened.settings) as stream:
        kinds = [type(event).__name__ async for event in stream]
        return stream.get(), kinds


async def test_a_script_is_played_step_by_step_and_ends() -> None:
    opened = open_scripted(
        [
            Step(
                "I look at it.", "What fills it?", [ScriptedCall("run_shell", {"command": "df"}), ScriptedCall("time")]
            ),
            Step(),
            Step(calls=lambda messages: [ScriptedCall("count", {"messages": len(messages)})]),
        ]
    )
    asked: list[ModelMessage] = [ModelRequest.user_text_prompt("hi")]
    first, kinds = await answers(opened, asked)
    assert first.parts == [
        ThinkingPart("What fills it?"),
        TextPart("I look at it."),
        ToolCallPart("run_shell", '{"command":"df"}', tool_call_id="scripted_1_1"),
        ToolCallPart("time", "{}", tool_call_id="scripted_1_2"),
    ]
    assert kinds.count("PartDeltaEvent") >= 5
    assert not (await answers(opened, asked))[0].text
    third = await model_request(opened.model, [*asked, first])
    assert [part.args_as_dict() for part in third.tool_calls] == [{"messages": 2}]
    assert (await model_request(opened.model, asked)).text == "(The script is at its end.)"


async def test_a_step_waits_for_what_it_is_told_to_wait_for() -> None:
    ready = anyio.Event()
    opened = open_scripted([Step("done", wait_for=ready.wait)])
    found: list[ModelResponse] = []

    async def ask() -> None:
        found.append((await answers(opened, [ModelRequest.user_text_prompt("hi")]))[0])

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert found == []
            ready.set()
    assert found[0].text == "done"


def test_a_scripted_model_says_so() -> None:
    opened = open_scripted([], context_window=1000)
    assert (opened.profile.label, opened.model.system, opened.context_window) == ("scripted:scripted", "scripted", 1000)
    assert cost_of(USAGE, opened.profile) is None
