"""Conversations go to the clients of four providers, and to a server that checks them as the providers do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from hypothesis import given
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    BinaryImage,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from tests.support.conversations import PNG, conversations
from tests.support.examples import few_examples
from tests.support.model_server import Answer, Call, ModelServer, Reasoning, Text, model_server, say

from harness.agent.messages.history import answered_by, dumped, loaded, repaired, suited
from harness.agent.messages.situation import TargetSnapshot, described, with_situation
from harness.agent.models import ModelProfile, OpenModel, open_model
from harness.results import PaneInfo

"""Accidents that each provider is sent."""
MODELS = {
    "openai": "gpt-5",
    "openai-responses": "gpt-5",
    "anthropic": "claude-next",
    "google": "gemini-2.5-pro",
    "openrouter": "deepseek/deepseek-r1",
}
ERRORS = {"anthropic": '"is_error": true', "google": '"error": "it failed"'}
"""How an error is told, where the protocol has a place for it."""
HALF = (
    ThinkingPart("hm", signature="", provider_name="anthropic"),
    TextPart("I wi"),
    ToolCallPart("run_shell", '{"command": "rm -rf /v'),
)


def url_of(server: ModelServer, provider: str) -> str:
    urls = {"anthropic": server.anthropic_url, "google": server.google_url, "openrouter": server.openrouter_url}
    return urls.get(provider, server.openai_url)


@asynccontextmanager
async def opened(server: ModelServer, provider: str, model: str = "") -> AsyncIterator[OpenModel]:
    profile = ModelProfile(provider, provider, model or MODELS[provider], url_of(server, provider))
    async with open_model(profile) as found:
        yield found


async def answer_to(messages: Sequence[ModelMessage], open_: OpenModel) -> ModelResponse:
    """One answer, as a turn asks for it and keeps it."""
    sent = suited(repaired(messages), open_.model)
    async with model_request_stream(open_.model, sent, model_settings=open_.settings) as stream:
        async for _ in stream:
            pass
        return answered_by(stream.get(), open_.model)


def prompt(text: str) -> ModelRequest:
    return ModelRequest([UserPromptPart(text)])


def results_for(response: ModelResponse, text: str = "97 %") -> ModelRequest:
    return ModelRequest([ToolReturnPart(one.tool_name, text, one.tool_call_id) for one in response.tool_calls])


def accidents() -> list[list[ModelMessage]]:
    found: list[list[ModelMessage]] = []

    @few_examples()
    @given(conversations())
    def collect(messages: list[ModelMessage]) -> None:
        found.append(messages)

    collect()
    return found


@pytest.mark.parametrize("provider", MODELS)
async def test_no_provider_refuses_a_conversation_whatever_happened_to_it(provider: str) -> None:
    with anyio.fail_after(120), model_server(lambda asked: say("fine")) as server:
        async with opened(server, provider) as model:
            for messages in accidents():
                await answer_to([*messages, prompt("go on")], model)
                assert not server.refused, messages


STEP = Answer(
    (
        Reasoning("Let me think"),
        Text("Looking."),
        Call("run_shell", {"command": "df"}, "call_0"),
        Call("run_shell", {"command": "du"}, "call_1"),
    )
)
OWN = {
    "openai": '"reasoning_content": "Let me think"',
    "openai-responses": '"type": "reasoning"',
    "anthropic": '"signature": "c2lnbmVk"',
    "google": '"thoughtSignature": "c2ln"',
}
"""What each provider gets back of its own, by which this test would see it where it does not belong."""


async def step(model: OpenModel) -> list[ModelMessage]:
    """A conversation in the middle of a turn: its calls have been done, and an answer is due. It was stored once."""
    begun: list[ModelMessage] = [prompt("what fills the disk?")]
    response = await answer_to(begun, model)
    return [loaded(dumped(message)) for message in (*begun, response, results_for(response))]


async def test_a_provider_gets_its_own_reasoning_back_and_nobody_elses() -> None:
    """Also in mid-turn, when the operator goes on with another model."""
    with anyio.fail_after(120), model_server(lambda asked: say("Full.") if "97 %" in asked.text else STEP) as server:
        async with AsyncExitStack() as stack:
            models = {name: await stack.enter_async_context(opened(server, name)) for name in MODELS}
            for origin, first in models.items():
                messages = await step(first)
                for name, model in models.items():
                    await answer_to(messages, model)
                    assert not server.refused, (origin, name)
                    sent = server.asked[-1].text
                    if name in OWN:
                        assert (OWN[name] in sent) == (name == origin), (origin, name)
                    assert name == origin or "Let me think" not in sent
                    assert all(text in sent for text in ("what fills the disk?", "Looking.", "df", "du", "97 %"))


@pytest.mark.parametrize("provider", ["openai-responses", "anthropic"])
async def test_the_same_provider_elsewhere_and_another_model_of_it_get_no_reasoning_either(provider: str) -> None:
    with anyio.fail_after(60), model_server([STEP, say("a")]) as server, model_server([say("b")]) as elsewhere:
        async with opened(server, provider) as one, opened(elsewhere, provider) as two:
            messages = await step(one)
            await answer_to(messages, two)
        async with opened(server, provider, f"{MODELS[provider]}-mini") as three:
            await answer_to(messages, three)
        for asked in (elsewhere.asked[0], server.asked[1]):
            assert OWN[provider] not in asked.text
            assert "Let me think" not in asked.text
    assert not server.refused
    assert not elsewhere.refused


@pytest.mark.parametrize("provider", MODELS)
async def test_a_picture_and_an_error_come_through_as_results_of_their_calls(provider: str) -> None:
    with anyio.fail_after(60), model_server([STEP, say("ok")]) as server:
        async with opened(server, provider) as model:
            messages = [prompt("look")]
            response = await answer_to(messages, model)
            first, second = (one.tool_call_id for one in response.tool_calls)
            parts = [
                ToolReturnPart("run_shell", ["a picture:", BinaryImage(PNG, media_type="image/png")], first),
                ToolReturnPart("run_shell", "it failed", second, outcome="failed"),
            ]
            await answer_to([*messages, response, ModelRequest(parts)], model)
    assert not server.refused
    assert "iVBORw0KGgo" in server.asked[1].text
    assert ERRORS.get(provider, '"[failed]\\nit failed"') in server.asked[1].text


async def test_an_answer_that_was_cut_off_goes_back_without_its_half_calls() -> None:
    with anyio.fail_after(60), model_server(lambda asked: say("ok")) as server:
        half = ModelResponse(list(HALF), state="interrupted")
        for provider in MODELS:
            async with opened(server, provider) as model:
                await answer_to([prompt("go"), half, prompt("never mind")], model)
                assert "I wi" in server.asked[-1].text
                assert "rm -rf" not in server.asked[-1].text
    assert not server.refused


async def test_what_holds_for_one_request_stands_behind_what_a_provider_can_keep() -> None:
    """Anthropic keeps what is before a mark: the next request has the same up to there."""
    now = "[situation: true]\n- your pane main: job 3 runs"
    with anyio.fail_after(60), model_server(lambda asked: say("Full.") if "97 %" in asked.text else STEP) as server:
        async with opened(server, "anthropic") as model:
            messages = await step(model)
            sent = with_situation(suited(repaired(messages), model.model), now, model.model)
            async with model_request_stream(model.model, sent, model_settings=model.settings) as stream:
                async for _ in stream:
                    pass
            last = server.asked[-1].body["messages"][-1]["content"]
            assert [block["type"] for block in last] == ["tool_result", "tool_result", "text"]
            assert "cache_control" in last[1]
            assert last[2]["text"] == now
            await answer_to([*messages, prompt("and?")], model)
            assert now not in server.asked[-1].text
        for provider in MODELS:
            async with opened(server, provider) as model:
                sent = with_situation(suited(repaired(messages), model.model), now, model.model)
                async with model_request_stream(model.model, sent, model_settings=model.settings) as stream:
                    async for _ in stream:
                        pass
                assert "your pane main: job 3 runs" in server.asked[-1].text
    assert not server.refused


async def test_a_model_that_binds_its_reasoning_to_all_before_it_is_not_told_of_an_idle_terminal() -> None:
    with model_server([]) as server:
        async with opened(server, "anthropic", "claude-opus-5-5") as binds, opened(server, "anthropic") as other:
            assert binds.model.profile.get("anthropic_binds_thinking_blocks")
            pane = PaneInfo("main", "%0", "s", default=True, foreground="bash", cwd="/")
            idle, busy = (
                described(TargetSnapshot((pane,), "main"), "m"),
                described(TargetSnapshot((), "", (), (("3", "make"),)), "m"),
            )
            for model, text, told in ((binds, idle, False), (binds, busy, True), (other, idle, True)):
                assert (len(with_situation([prompt("go")], text, model.model)[0].parts) == 2) is told


@pytest.mark.parametrize("provider", MODELS)
async def test_reasoning_that_nobody_has_signed_is_not_sent_as_words(provider: str) -> None:
    with anyio.fail_after(60), model_server([say("ok")]) as server:
        async with opened(server, provider) as model:
            thought = ThinkingPart("I should hide this", provider_name="anthropic", provider_details={"x": 1})
            answer = ModelResponse([thought, TextPart("hi")], provider_name=model.model.system)
            await answer_to([prompt("hello"), answer, prompt("and?")], model)
    assert not server.refused
    assert "I should hide this" not in server.asked[0].text
