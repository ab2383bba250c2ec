"""A conversation that is too long gives its older messages for notes, and stays valid."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition
from tests.support.conversations import conversations, problems, user_texts
from tests.support.model_server import Answer, Failure, ModelServer, Stop, Text, model_server, say

from harness.agent import turn as turns_of_agents
from harness.agent.messages.compaction import (
    CANCELLED,
    HEAD,
    CompactionResult,
    ConversationCompactor,
    cut_at,
    digest,
    is_prompt,
    needed,
    shortened,
    shortened_inside,
    transcript,
    trimmed,
)
from harness.agent.messages.history import NO_RESULT, dumped, estimate, loaded, overhead, repaired
from harness.agent.models import ModelProfile, OpenModel, open_model

LIMIT = 60.0


def asked(text: str) -> ModelRequest:
    return ModelRequest([UserPromptPart(text)])


def said(text: str) -> ModelResponse:
    return ModelResponse([TextPart(text)])


def step(name: str, output: str = "", outcome: str = "success", size: int = 100) -> list[ModelMessage]:
    """One call and its result, of about so many tokens."""
    text = f"[untrusted output 0a1b2c3d]\n{output or 'line ' * size}\n[end of output 0a1b2c3d]"
    call = ToolCallPart("run_shell", f'{{"command": "{name}"}}', name)
    result: ToolReturnPart[str] = ToolReturnPart("run_shell", text, name)
    result.outcome = outcome  # type: ignore[assignment]  # one of its outcomes
    return [ModelResponse([call]), ModelRequest([result])]


def turn(number: int, steps: int = 2, size: int = 100) -> list[ModelMessage]:
    calls = [message for n in range(steps) for message in step(f"c{number}-{n}", size=size)]
    return [asked(f"request {number}"), *calls, said(f"answer {number}")]


def turns(count: int, **more: int) -> list[ModelMessage]:
    return [message for number in range(count) for message in turn(number, **more)]


# -- how long it is


def test_an_estimate_is_rather_too_high_and_grows_with_what_is_said() -> None:
    assert 200 < estimate("word " * 200) < 400
    assert estimate("\u4f60" * 100) >= 100
    assert estimate("\udc80" * 10) > 0
    assert estimate([]) == 0
    one = estimate(turn(1))
    assert one < estimate(turns(2)) < 3 * one


def test_instructions_and_tools_count_too() -> None:
    tool = ToolDefinition(name="run_shell", description="Run it.", parameters_json_schema={"type": "object"})
    assert 20 < overhead("You are an agent.", [tool]) < 60


@given(conversations())
def test_every_conversation_has_an_estimate(messages: list[ModelMessage]) -> None:
    assert estimate(messages) >= 0


@pytest.mark.parametrize(
    ("used", "limit", "wanted"),
    [(0, 0, False), (99, 100_000, False), (85_000, 100_000, True), (0, 1_000, True), (0, 100_000, False)],
)
def test_compaction_is_due_near_the_limit_and_never_without_one(used: int, limit: int, wanted: bool) -> None:
    assert needed(turns(8), used, limit) is wanted


def test_what_came_after_the_last_answer_counts_too() -> None:
    messages = [asked("go"), *step("c", size=3_000)]
    assert not needed(messages[:2], 80_000, 100_000)
    assert needed(messages, 84_000, 100_000)
    assert needed(messages, 50_000, 100_000, share=0.5)


def test_a_server_that_counts_nothing_is_not_believed() -> None:
    assert needed(turns(40), 3, estimate(turns(40)) // 3)


# -- what stays


def test_the_last_three_turns_stay_when_there_is_room() -> None:
    messages = turns(6)
    place = cut_at(messages, 50_000)
    assert place is not None
    assert user_texts(messages[place:]) == ["request 3", "request 4", "request 5"]


def test_without_room_fewer_turns_stay() -> None:
    messages = turns(6)
    place = cut_at(messages, int(1.5 * estimate(turn(1))))
    assert place is not None
    assert user_texts(messages[place:]) == ["request 5"]


def test_of_one_long_turn_the_last_steps_stay() -> None:
    messages = turn(0, steps=50)
    place = cut_at(messages, estimate(messages) // 4)
    assert place is not None
    assert isinstance(messages[place], ModelResponse)
    assert estimate(messages[place:]) <= estimate(messages) // 4
    assert estimate(messages[place - 2 :]) > estimate(messages) // 4


@pytest.mark.parametrize(
    "messages", [[], [asked("go")], turns(1, size=1), [asked("go"), *step("huge", size=50_000)], [asked("x" * 9_000)]]
)
def test_what_is_not_worth_notes_has_none(messages: list[ModelMessage]) -> None:
    assert cut_at(messages, 100) is None


def test_notes_alone_are_not_summarised_again() -> None:
    notes = ModelRequest([UserPromptPart(HEAD + "fact " * 2_000), UserPromptPart("go on")])
    assert cut_at([notes, *step("huge", size=50_000)], 100) is None


@given(conversations(), st.integers(0, 2_000))
def test_no_cut_parts_a_call_from_its_result(messages: list[ModelMessage], budget: int) -> None:
    messages = repaired([*turn(1), *messages])
    place = cut_at(messages, budget)
    if place is not None:
        tail = repaired([asked("notes"), *messages[place:]])
        assert problems(tail) == []
        unknown = [one for one in messages[place:] for part in one.parts if getattr(part, "content", "") == NO_RESULT]
        assert len([1 for one in tail for part in one.parts if getattr(part, "content", "") == NO_RESULT]) == len(
            unknown
        )


def test_results_are_shortened_only_as_far_as_it_takes_and_stay_marked() -> None:
    messages = [asked("go"), *step("a", size=20_000), *step("b", size=100)]
    assert trimmed(messages, 10**9) == messages
    found = trimmed(messages, 5_000)
    assert estimate(found) <= 5_000
    first, second = (part for one in found for part in one.parts if isinstance(part, ToolReturnPart))
    assert str(first.content).startswith("[untrusted output 0a1b2c3d]\nline ")
    assert str(first.content).endswith("line \n[end of output 0a1b2c3d]")
    assert len(str(second.content)) > 400
    assert problems(repaired(found)) == []


# -- texts


@given(st.text(max_size=300), st.integers(0, 200))
def test_shortened_texts_fit(text: str, limit: int) -> None:
    assert len(shortened(text, limit)) <= max(limit, len(" [...] "))
    assert shortened(text, len(text)) == text
    marked = f"[untrusted output ab12]\n{text}\n[end of output ab12]"
    short = shortened_inside(marked, limit)
    assert short.startswith("[untrusted output ab12]\n")
    assert short.endswith("\n[end of output ab12]")


@given(conversations(), st.integers(50, 5_000))
def test_whatever_the_messages_are_a_transcript_fits_and_notes_need_no_model(
    messages: list[ModelMessage], limit: int
) -> None:
    older = repaired(messages)
    assert len(transcript(older, limit)) <= limit
    assert digest(older, "m").count("[untrusted output m]") <= 1


def test_a_transcript_tells_apart_who_says_what() -> None:
    messages = [asked("fix nginx"), asked("[harness: job 3 has ended]"), *step("nginx -t", "bad", "failed"), said("ok")]
    assert transcript(messages, 10_000).splitlines() == [
        "OPERATOR: fix nginx",
        "HARNESS: [harness: job 3 has ended]",
        'CALL: run_shell {"command": "nginx -t"}',
        "RESULT of run_shell (failed): [untrusted output 0a1b2c3d]",
        "bad",
        "[end of output 0a1b2c3d]",
        "AGENT: ok",
    ]
    assert is_prompt("[a-z]* does not match")
    assert not any(is_prompt(text) for text in (turns_of_agents.CANCELLED, turns_of_agents.CUT))
    assert turns_of_agents.CANCELLED.startswith(CANCELLED)


# -- with a model


@asynccontextmanager
async def compacting(
    server: ModelServer, limit: int = 0, provider: str = "openai"
) -> AsyncIterator[ConversationCompactor]:
    url = server.anthropic_url if provider == "anthropic" else server.openai_url
    profile = ModelProfile("test", provider, "test-model", url, context_window=limit)

    @asynccontextmanager
    async def opened() -> AsyncIterator[OpenModel]:
        async with open_model(profile) as found:
            yield found

    yield ConversationCompactor(opened)


async def compacted(
    messages: Sequence[ModelMessage], script: Sequence[Answer | Failure], limit: int = 0
) -> CompactionResult:
    with anyio.fail_after(LIMIT), model_server(list(script)) as server:
        async with compacting(server, limit) as one:
            done = await one.compact(messages, limit)
        assert server.refused == []
    assert done is not None
    assert done.before == len(messages)
    assert done.after == len(done.messages)
    assert problems(repaired(done.messages)) == []
    assert [loaded(dumped(message)) for message in done.messages] == list(done.messages)
    return done


def notes_of(done: CompactionResult) -> str:
    first = done.messages[0]
    assert isinstance(first, ModelRequest)
    assert first.parts[0].content == done.summary  # type: ignore[union-attr]  # a prompt
    return done.summary


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_older_turns_become_notes_and_the_last_ones_stay(provider: str) -> None:
    messages = [*turn(0), *step("failing", "disk full", "failed"), *turns(6)]
    with anyio.fail_after(LIMIT), model_server([say("## Done: changed /etc/fstab")]) as server:
        async with compacting(server, provider=provider) as one:
            done = await one.compact(messages)
        asked_for = server.asked[0]
    assert done is not None
    notes = notes_of(done)
    assert notes.startswith(HEAD)
    assert "## Done: changed /etc/fstab" in notes
    assert "- request 0\n- request 0\n- request 1\n- request 2" in notes
    assert "disk full" in notes
    assert user_texts(done.messages[1:]) == ["request 3", "request 4", "request 5"]
    assert done.messages[1] is messages[-18]
    assert done.answer is not None
    assert done.answer.usage.output_tokens > 0
    assert done.failure == ""
    assert "OPERATOR: request 0" in asked_for.text
    assert "request 5" not in asked_for.text
    assert "tools" not in asked_for.body


async def test_the_request_that_is_worked_on_stays_word_for_word_however_often_it_is_compacted() -> None:
    prompt = "free space on /, but never touch /var/lib/postgresql: " + "it is a long story " * 50
    messages: list[ModelMessage] = [asked("hello"), said("hi"), asked(prompt)]
    for round_ in range(3):
        messages += [message for n in range(12) for message in step(f"c{round_}-{n}")]
        done = await compacted(messages, [say(f"notes {round_}")], limit=4_000)
        assert user_texts(done.messages)[1] == prompt
        assert f"notes {round_}" in notes_of(done)
        messages = list(done.messages)
    assert "hello" not in user_texts(messages)[1:]


async def test_a_request_that_was_done_does_not_look_like_a_new_one() -> None:
    """The turn that goes on was begun by the end of a job, and the one before by a person, who got an answer."""
    steps = [message for n in range(30) for message in step(f"c{n}")]
    job = asked("[harness: the background job 3 has ended, with exit code 0.]")
    done = await compacted([*turn(0), job, *steps], [say("notes")], limit=4_000)
    assert user_texts(done.messages) == [done.summary]
    assert "- request 0" in done.summary
    cancelled = asked("[The operator cancelled this turn.]")
    done = await compacted([*turn(0), *turn(1)[:-1], cancelled, asked("and now?"), *steps], [say("notes")], limit=4_000)
    assert user_texts(done.messages) == [done.summary, "and now?"]


async def test_earlier_notes_are_shown_to_the_model_that_writes_the_next_ones() -> None:
    first = await compacted(turns(6), [say("the first fact")])
    with anyio.fail_after(LIMIT), model_server([say("both facts")]) as server:
        async with compacting(server) as one:
            done = await one.compact([*first.messages, *turns(6)])
    assert done is not None
    assert "the first fact" in server.asked[0].text
    assert "the first fact" not in notes_of(done)


async def test_the_call_of_the_compact_tool_itself_stays_to_be_answered() -> None:
    call = ModelResponse([ToolCallPart("compact", "{}", "now")])
    done = await compacted([*turns(6), call], [say("notes")])
    assert done.messages[-1] is call
    answered = repaired([*done.messages, ModelRequest([ToolReturnPart("compact", "done", "now")])])
    assert [part.content for part in answered[-1].parts if isinstance(part, ToolReturnPart)] == ["done"]


@pytest.mark.parametrize(
    "reply",
    [
        Failure("auth"),
        Failure("context_length"),
        Failure("overloaded"),
        Answer(()),
        Answer((Text("half a"), Stop())),
        Failure("server", body="<html>"),
    ],
)
async def test_without_the_model_the_notes_are_made_by_hand(reply: Answer | Failure) -> None:
    done = await compacted([*turns(5), *step("df", "97 % full"), *turns(3)], [reply])
    notes = notes_of(done)
    assert done.answer is None
    assert done.failure
    assert "No summary from the model" in notes
    assert 'called: run_shell {"command": "c4-1"}: success' in notes
    assert "97 % full" in notes
    assert "- request 4" in notes


async def test_a_model_that_cannot_be_opened_holds_nothing_up() -> None:
    profile = ModelProfile("test", "no-such-provider", "m")
    done = await ConversationCompactor(lambda: open_model(profile)).compact(turns(8))
    assert done is not None
    assert "no-such-provider" in done.failure


async def test_a_result_that_is_too_long_for_the_model_is_shortened_when_nothing_else_can_go() -> None:
    done = await ConversationCompactor(lambda: open_model(ModelProfile("t", "x", "m"))).compact(
        [asked("go"), *step("huge", size=50_000)], 8_000
    )
    assert done is not None
    assert estimate(done.messages) <= 4_000
    assert user_texts(done.messages) == ["go"]
    assert (
        await ConversationCompactor(lambda: open_model(ModelProfile("t", "x", "m"))).compact([asked("go")], 8_000)
        is None
    )


async def test_a_conversation_shrinks_whatever_its_shape() -> None:
    for messages in (turns(40), turn(0, steps=120), [*turns(20), *turn(9, steps=60)]):
        limit = int(estimate(messages) / 0.9)
        done = await compacted(messages, [say("notes")], limit=limit)
        assert estimate(done.messages) < 0.5 * limit
        assert not needed(done.messages, 0, limit)
