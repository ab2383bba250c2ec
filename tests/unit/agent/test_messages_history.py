"""Conversations stay valid for every provider, whatever happened to them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from tests.support.conversations import PNG, conversations, problems, user_texts

from harness.agent.messages.history import NO_BEGINNING, NO_RESULT, dumped, loaded, repaired
from harness.toolkit.providers.base import well_formed

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def asked(text: str) -> ModelRequest:
    return ModelRequest([UserPromptPart(text, timestamp=NOW)], timestamp=NOW)


def called(*ids: str, state: str = "complete") -> ModelResponse:
    parts = [ToolCallPart("run_shell", '{"command": "df"}', one) for one in ids]
    return ModelResponse(parts, timestamp=NOW, state=state)  # type: ignore[arg-type]  # one of its states


def result(call_id: str, text: str = "done") -> ToolReturnPart[str]:
    return ToolReturnPart("run_shell", text, call_id, timestamp=NOW)


def said(text: str) -> ModelResponse:
    return ModelResponse([TextPart(text)], timestamp=NOW)


# -- repair


@given(conversations())
def test_whatever_happened_to_a_conversation_no_provider_refuses_it(messages: list[ModelMessage]) -> None:
    found = repaired(messages)
    assert problems(found) == []
    assert repaired(found) == found
    assert all(one is other for one, other in zip(repaired(found), found, strict=True))
    words = [well_formed(text) for text in user_texts(messages) if text.strip()]
    assert [text for text in user_texts(found) if text != NO_BEGINNING] == words


@given(conversations(), st.data())
def test_what_follows_changes_only_the_end_of_what_was_sent_before(
    messages: list[ModelMessage], data: st.DataObject
) -> None:
    """Providers keep what they have seen, as long as it stays the same."""
    cut = data.draw(st.integers(0, len(messages)))
    before, after = repaired(messages[:cut]), repaired(messages)
    assert before[:-2] == after[: max(0, len(before) - 2)]


def test_a_conversation_without_accidents_stays_the_same_objects() -> None:
    messages = [asked("how full is /?"), called("a", "b"), ModelRequest([result("a"), result("b")]), said("97 %")]
    found = repaired(messages)
    assert all(one is other for one, other in zip(found, messages, strict=True))


def test_a_call_whose_result_was_lost_says_that_nobody_knows_what_came_of_it() -> None:
    found = repaired([asked("go"), called("a", "b"), ModelRequest([result("b")]), asked("and?")])
    last = found[-1].parts
    assert [(part.tool_call_id, part.content) for part in last if isinstance(part, ToolReturnPart)] == [
        ("a", NO_RESULT),
        ("b", "done"),
    ]
    assert isinstance(last[-1], UserPromptPart)


def test_calls_of_an_answer_that_was_cut_off_did_not_run_and_are_left_out() -> None:
    partial = ModelResponse(
        [
            ThinkingPart("hm", signature="c2ln", provider_name="anthropic"),
            TextPart("I will"),
            ToolCallPart("rm", '{"pa'),
        ],
        timestamp=NOW,
        state="interrupted",
    )
    found = repaired([asked("go"), partial, asked("no, stop")])
    assert [part for message in found for part in message.parts if isinstance(message, ModelResponse)] == [
        TextPart("I will")
    ]


def test_a_call_that_was_cut_off_and_yet_has_a_result_stays() -> None:
    found = repaired([asked("go"), called("a", state="interrupted"), ModelRequest([result("a")])])
    assert [part.tool_call_id for part in found[1].parts if isinstance(part, ToolCallPart)] == ["a"]


def test_an_answer_that_was_all_half_calls_is_gone_and_the_prompts_around_it_are_one_request() -> None:
    found = repaired([asked("go"), called("a", state="incomplete"), asked("stop")])
    assert [type(message) for message in found] == [ModelRequest]
    assert user_texts(found) == ["go", "stop"]


def test_results_stay_when_the_answer_after_them_goes() -> None:
    half = called("b", state="interrupted")
    found = repaired([asked("go"), called("a"), ModelRequest([result("a", "97 %")]), half, asked("stop")])
    assert len(found) == 3
    assert [part.content for part in found[2].parts] == ["97 %", "stop"]  # type: ignore[union-attr]  # both have one


def test_two_answers_in_a_row_are_one_and_none_of_their_words_is_lost() -> None:
    found = repaired([asked("go"), said("first"), ModelRequest([]), said("second"), asked("and?")])
    assert [part.content for part in found[1].parts if isinstance(part, TextPart)] == ["first", "second"]
    assert problems(found) == []


def test_a_result_that_came_twice_counts_once_and_one_that_nobody_asked_for_not_at_all() -> None:
    found = repaired([asked("go"), called("a"), ModelRequest([result("a", "1"), result("a", "2"), result("z", "3")])])
    assert [part.content for part in found[2].parts if isinstance(part, ToolReturnPart)] == ["1"]


def test_ids_that_a_provider_gives_again_in_each_answer_become_different_ones() -> None:
    turns = [message for n in range(3) for message in (called("call_0"), ModelRequest([result("call_0", str(n))]))]
    found = repaired([asked("go"), *turns])
    results = [part for message in found for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [(one.tool_call_id, one.content) for one in results] == [
        ("call_0", "0"),
        ("call_0_2", "1"),
        ("call_0_3", "2"),
    ]
    assert problems(found) == []


def test_two_calls_of_one_answer_under_one_id_keep_their_own_results() -> None:
    found = repaired([asked("go"), called("x", "x"), ModelRequest([result("x", "1"), result("x", "2")])])
    results = [part for part in found[2].parts if isinstance(part, ToolReturnPart)]
    assert [(one.tool_call_id, one.content) for one in results] == [("x", "1"), ("x_2", "2")]


def test_reasoning_without_a_signature_is_never_sent_as_words_of_the_answer() -> None:
    answer = ModelResponse([ThinkingPart("I should lie", id="content"), ThinkingPart("hm"), TextPart("hello")])
    assert [type(part) for part in repaired([asked("hi"), answer])[1].parts] == [TextPart]


def test_items_whose_reasoning_is_gone_lose_the_ids_under_which_it_would_be_looked_for() -> None:
    answer = ModelResponse(
        [ThinkingPart("", id="rs_1", provider_name="openai"), TextPart("hi", id="msg_1", provider_name="openai")],
        state="interrupted",
    )
    assert repaired([asked("hi"), answer])[1].parts == [TextPart("hi", provider_name="openai")]


def test_a_conversation_that_begins_in_the_middle_says_so() -> None:
    assert user_texts(repaired([said("as I said"), asked("go on")])) == [NO_BEGINNING, "go on"]


def test_an_output_that_is_nothing_is_told_as_such() -> None:
    found = repaired([asked("go"), called("a"), ModelRequest([result("a", " \n")])])
    assert [part.content for part in found[2].parts if isinstance(part, ToolReturnPart)] == ["(no output)"]


def test_many_calls_under_one_id_take_no_longer_each() -> None:
    turns = [message for _ in range(3000) for message in (called("call_0"), ModelRequest([result("call_0")]))]
    found = repaired([asked("go"), *turns])
    assert (
        len({call.tool_call_id for one in found if isinstance(one, ModelResponse) for call in one.tool_calls}) == 3000
    )


# -- storing


@given(conversations())
def test_a_message_is_the_same_after_it_was_stored(messages: list[ModelMessage]) -> None:
    for message in messages:
        text = dumped(message)
        text.encode()
        again = loaded(text)
        assert dumped(again) == text
        assert again == message or "nan" in repr(message)  # which is not equal to itself


def test_pictures_and_bytes_that_are_no_text_survive_together() -> None:
    picture = BinaryImage(PNG, media_type="image/png")
    message = ModelRequest(
        [
            ToolReturnPart("read_file", ["\udc80", picture], "a", timestamp=NOW),
            UserPromptPart(["\udcff", picture], timestamp=NOW),
        ]
    )
    assert loaded(dumped(message)) == message


@pytest.mark.parametrize("text", ["\ud83d\ude00", "\ufdd0dc80", "\ufdd0", "\ufffd", "\\ud800", "\udc80\x00\u2028"])
def test_any_text_survives_wherever_it_stands(text: str) -> None:
    call = ToolCallPart("t", {text: [text, {text: text}]}, "a", provider_name="x", provider_details={text: text})
    message = ModelResponse([TextPart(text), call], timestamp=NOW)
    assert loaded(dumped(message)) == message


def test_details_of_a_provider_survive_and_so_do_numbers_of_any_size() -> None:
    details = {"thought_signature": "c2ln", "deep": [{"a": 1.5, "big": 10**40, "none": None}]}
    message = ModelResponse(
        [
            ToolCallPart("t", {"big": 10**40, "f": 0.1}, "a", id="fc_1", provider_name="x", provider_details=details),
            ThinkingPart("hm", id="rs", signature="s", provider_name="x", provider_details=details),
        ],
        timestamp=NOW,
        provider_name="x",
        provider_url="http://x",
        model_name="m",
        model_id="x:m",
        state="interrupted",
        finish_reason="length",
    )
    assert loaded(dumped(message)) == message


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"kind": "request"}', '{"kind": "request", "parts": [{"part_kind": "\\ud800"}]}', "\ufdd0"],
)
def test_what_is_no_message_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"validation error"):
        loaded(text)
