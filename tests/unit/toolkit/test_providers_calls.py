"""From responses of models, as their makers' own clients write them, to calls."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from anthropic.types import Message
from google.genai import types as gemini_types
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from tests.support.schemas import Choices, Deep, Limits, nasty

from harness.errors import ToolError
from harness.toolkit import Arguments, CallStatus
from harness.toolkit.providers import PROVIDERS, provider
from harness.toolkit.providers.gemini import gemini_schema
from harness.toolkit.providers.openai import strict
from harness.toolkit.providers.schemas import plain
from harness.toolkit.values import Json, JsonObject

TOOLS = nasty()
ASKED: list[tuple[str, str, dict[str, Any]]] = [("id_1", "deep", {"point": {"x": 1}}), ("id_2", "empty", {})]
Asked = list[tuple[str, str, dict[str, Any]]]


def anthropic_response(asked: Asked, stop: str | None = "tool_use") -> JsonObject:
    blocks = [{"type": "tool_use", "id": key, "name": name, "input": values} for key, name, values in asked]
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": "I will."}, *blocks],
            "stop_reason": stop,
            "usage": usage,
        }
    )
    found: JsonObject = message.model_dump(mode="json")
    return found


def openai_response(asked: Asked, stop: str | None = "tool_calls") -> JsonObject:
    calls = [
        {"id": key, "type": "function", "function": {"name": name, "arguments": json.dumps(values)}}
        for key, name, values in asked
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    whole = ChatCompletion.model_validate(
        {
            "id": "msg_1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": stop or "stop", "message": message}],
        }
    )
    found: JsonObject = whole.model_dump(mode="json")
    return found


def responses_response(asked: Asked, stop: str | None = "completed") -> JsonObject:
    items = [
        {"type": "function_call", "call_id": key, "name": name, "arguments": json.dumps(values), "status": "completed"}
        for key, name, values in asked
    ]
    whole = Response.model_validate(
        {
            "id": "msg_1",
            "object": "response",
            "created_at": 1,
            "model": "m",
            "output": items,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "status": "completed" if stop == "completed" else "incomplete",
            "incomplete_details": None if stop == "completed" else {"reason": stop},
        }
    )
    found: JsonObject = whole.model_dump(mode="json")
    return found


def gemini_response(asked: Asked, stop: str | None = "STOP", *, by_alias: bool = True, ids: bool = True) -> JsonObject:
    parts = [
        {"functionCall": {"name": name, "args": values} | ({"id": key} if ids else {})} for key, name, values in asked
    ]
    whole = gemini_types.GenerateContentResponse.model_validate(
        {"responseId": "msg_1", "candidates": [{"content": {"parts": parts}, "finishReason": stop}]}
    )
    found: JsonObject = whole.model_dump(mode="json", by_alias=by_alias, exclude_none=True)
    return found


def generic_response(asked: Asked, stop: str | None = "stop") -> JsonObject:
    return {"calls": [{"id": key, "name": name, "arguments": values} for key, name, values in asked], "finish": stop}


RESPONSES: dict[str, Any] = {
    "anthropic": anthropic_response,
    "openai": openai_response,
    "openai-strict": openai_response,
    "openai-responses": responses_response,
    "gemini": gemini_response,
    "generic": generic_response,
}
LENGTH = {
    "anthropic": "max_tokens",
    "openai": "length",
    "openai-strict": "length",
    "openai-responses": "max_output_tokens",
    "gemini": "MAX_TOKENS",
    "generic": "length",
}
OTHER = {
    "anthropic": "refusal",
    "openai": "content_filter",
    "openai-strict": "content_filter",
    "openai-responses": "content_filter",
    "gemini": "SAFETY",
    "generic": "error",
}


def test_every_provider_is_tested_here() -> None:
    assert set(RESPONSES) == set(LENGTH) == set(OTHER) == set(PROVIDERS)


@pytest.mark.parametrize("name", PROVIDERS)
def test_calls_come_in_order_with_the_ids_of_the_provider(name: str) -> None:
    turn = provider(name).calls(RESPONSES[name](ASKED), TOOLS)
    assert turn.withheld == ()
    assert [(call.provider_id, call.name) for call in turn.calls] == [("id_1", "deep"), ("id_2", "empty")]
    assert {call.call_id for call in turn.calls} == {""}
    arguments = [
        json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments for call in turn.calls
    ]
    assert arguments == [{"point": {"x": 1}}, {}]


@pytest.mark.parametrize("name", [name for name in PROVIDERS if name != "generic"])
def test_calls_know_their_message(name: str) -> None:
    assert {call.message_id for call in provider(name).calls(RESPONSES[name](ASKED)).calls} == {"msg_1"}


@pytest.mark.parametrize("name", PROVIDERS)
def test_calls_of_a_response_that_was_cut_off_never_run_and_are_answered(name: str) -> None:
    turn = provider(name).calls(RESPONSES[name](ASKED, LENGTH[name]), TOOLS)
    assert turn.calls == ()
    assert [(item.call.provider_id, item.status) for item in turn.withheld] == [
        ("id_1", CallStatus.ERROR),
        ("id_2", CallStatus.ERROR),
    ]
    assert all("length limit" in item.result.text and item.result.is_error for item in turn.withheld)
    assert "length limit" in json.dumps(provider(name).results(turn.withheld, TOOLS))


@pytest.mark.parametrize("name", PROVIDERS)
def test_calls_of_a_response_that_ended_badly_never_run(name: str) -> None:
    turn = provider(name).calls(RESPONSES[name](ASKED, OTHER[name]), TOOLS)
    assert turn.calls == ()
    assert all("not run: the response ended" in item.result.text for item in turn.withheld)


def test_calls_of_a_response_without_an_end_do_not_run() -> None:
    assert provider("anthropic").calls(anthropic_response(ASKED, None)).calls == ()
    assert provider("generic").calls(generic_response(ASKED, None)).calls == ()


def test_one_call_that_was_cut_is_withheld_alone() -> None:
    response: Any = responses_response(ASKED)
    response["output"][0]["status"] = "incomplete"
    turn = provider("openai-responses").calls(response)
    assert [call.provider_id for call in turn.calls] == ["id_2"]
    assert [item.call.provider_id for item in turn.withheld] == ["id_1"]


def test_gemini_without_ids_is_answered_in_the_order_of_the_calls() -> None:
    for by_alias in (True, False):
        turn = provider("gemini").calls(gemini_response(ASKED, by_alias=by_alias, ids=False), TOOLS)
        assert [(call.provider_id, call.name) for call in turn.calls] == [("", "deep"), ("", "empty")]


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("response", [{}, {"error": None}, {"error": {}}, {"content": "x", "choices": {}}])
def test_what_is_no_response_is_an_error(name: str, response: JsonObject) -> None:
    with pytest.raises(ToolError, match="this is not a response of"):
        provider(name).calls(response)


APIS_OWN_REASON_IS = [
    ({"error": {"message": "overloaded"}}, "overloaded"),
    (
        {"type": "error", "error": {"type": "overloaded_error", "message": "Over\nloaded"}},
        "Over loaded (overloaded_error)",
    ),
    ({"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}}, "Quota (RESOURCE_EXHAUSTED)"),
    ({"error": {"message": "x", "type": None, "code": "server_error"}}, "x (server_error)"),
    ({"error": {"why": "odd"}}, '{"why": "odd"}'),
    ({"error": "model not found"}, "model not found"),
    ({"object": "error", "message": "too long"}, "too long"),
    ({"detail": "Not Found"}, "Not Found"),
    ({"error": {"message": "m" * 9_000}}, "m" * 500 + "..."),
]


def test_the_apis_own_reason_is_in_the_error() -> None:
    for response, said in APIS_OWN_REASON_IS:
        for name in PROVIDERS:
            with pytest.raises(ToolError, match="returned an error: " + re.escape(said)):
                provider(name).calls(response)


@pytest.mark.parametrize("empty", [{}, {"candidates": []}])
@pytest.mark.parametrize(
    ("feedback", "said"),
    [
        ({"blockReason": "SAFETY", "safetyRatings": []}, "the prompt was blocked: SAFETY"),
        ({"blockReason": "OTHER", "blockReasonMessage": "Not so."}, "Not so. (the prompt was blocked: OTHER)"),
    ],
)
def test_gemini_says_why_it_blocked_a_prompt(empty: JsonObject, feedback: JsonObject, said: str) -> None:
    with pytest.raises(ToolError, match=re.escape(said)):
        provider("gemini").calls({**empty, "promptFeedback": dict(feedback)})


@pytest.mark.parametrize("output", [[], [{"type": "reasoning", "summary": []}]])
def test_a_failed_response_of_openai_says_why(output: list[Json]) -> None:
    error: JsonObject = {"code": "server_error", "message": "It broke."}
    with pytest.raises(ToolError, match=re.escape("It broke. (server_error)")):
        provider("openai-responses").calls({"status": "failed", "error": dict(error), "output": output})


def test_calls_of_a_failed_response_are_withheld_with_the_apis_reason() -> None:
    response: JsonObject = {**responses_response(ASKED), "status": "failed", "error": {"message": "It broke."}}
    turn = provider("openai-responses").calls(response, TOOLS)
    assert (turn.calls, len(turn.withheld)) == ((), 2)
    assert "the response ended with 'failed': It broke.; nothing happened" in turn.withheld[0].result.text


def test_a_response_without_calls_is_none_of_the_errors() -> None:
    assert provider("generic").calls({"calls": [], "message": "Hello.", "error": None}).calls == ()
    assert provider("anthropic").calls({"content": [], "error": False}).calls == ()


def test_calls_of_unknown_kinds_and_malformed_ones_become_calls_that_fail_by_themselves() -> None:
    items: Any = [
        {"id": "a", "type": "custom", "custom": {"name": "x", "input": "text"}},
        {"id": "b", "function": {"name": "deep", "arguments": ["no", "object"]}},
        {"id": "c"},
    ]
    calls = provider("openai").calls({"choices": [{"message": {"tool_calls": items}}]}).calls
    assert [(call.name, call.arguments) for call in calls] == [("x", "text"), ("deep", '["no", "object"]'), ("", "")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.sampled_from(PROVIDERS))
def test_no_response_whatever_breaks_an_adapter(value: Any, name: str) -> None:
    key = {"anthropic": "content", "gemini": "candidates", "generic": "calls", "openai-responses": "output"}
    try:
        provider(name).calls({key.get(name, "choices"): [value], "id": value}, TOOLS)
    except ToolError:
        assert name.startswith("openai")


# -- round trips

POINT = st.fixed_dictionaries(
    {"x": st.integers(0, 100)}, optional={"y": st.floats(0, 1), "kind": st.sampled_from([1, 2, 3])}
)
WORD = st.text(max_size=8)
ARGUMENTS: dict[type[Arguments], st.SearchStrategy[dict[str, Any]]] = {
    Deep: st.fixed_dictionaries(
        {"point": POINT},
        optional={
            "points": st.lists(POINT, max_size=3),
            "matrix": st.lists(st.lists(st.integers(-9, 9), max_size=2), max_size=2),
            "named": st.dictionaries(WORD, POINT, max_size=2),
            "environment": st.dictionaries(WORD, WORD, max_size=2),
        },
    ),
    Choices: st.fixed_dictionaries(
        {},
        optional={
            "colour": st.sampled_from(["red", "green"]),
            "level": st.sampled_from([1, 2]),
            "mode": st.sampled_from(["a", "b"]),
            "number": st.sampled_from([1, 2, 3]),
            "truth": st.sampled_from([True, "auto"]),
            "wait": st.booleans() | st.sampled_from(["30s", "true", "1"]) | st.floats(0, 9),
            "several": st.lists(st.sampled_from(["x", "y"]), max_size=2),
            "what": st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=2),
        },
    ),
    Limits: st.fixed_dictionaries({}, optional={"count": st.integers(1, 9), "text": WORD}),
}
CASES = st.sampled_from(list(ARGUMENTS)).flatmap(lambda model: st.tuples(st.just(model), ARGUMENTS[model]))


def as_gemini_says_it(value: Any, schema: dict[str, Any]) -> Any:
    """Arguments as a model writes them that was given this schema in Gemini's form."""
    shown = gemini_schema(schema)
    if isinstance(value, dict) and shown.get("type") == "STRING":
        return json.dumps(value)
    if isinstance(value, dict):
        return {name: as_gemini_says_it(item, schema["properties"][name]) for name, item in value.items()}
    if isinstance(value, list):
        return [as_gemini_says_it(item, schema.get("items", {})) for item in value]
    if "enum" in shown and not isinstance(value, str):
        return json.dumps(value)
    return value


@given(CASES)
def test_arguments_mean_the_same_through_geminis_schema(case: tuple[type[Arguments], dict[str, Any]]) -> None:
    model, values = case
    schema = plain(next(tool for tool in TOOLS if tool.arguments is model).schema)
    said = as_gemini_says_it(values, schema)
    (call,) = provider("gemini").calls(gemini_response([("1", model.__name__.lower(), said)]), TOOLS).calls
    assert call.arguments == values


@given(CASES)
def test_arguments_mean_the_same_through_a_strict_schema(case: tuple[type[Arguments], dict[str, Any]]) -> None:
    model, values = case
    schema = strict(plain(next(tool for tool in TOOLS if tool.arguments is model).schema))
    said = values if schema is None else {**dict.fromkeys(schema["properties"]), **values}
    (call,) = provider("openai-strict").calls(openai_response([("1", model.__name__.lower(), said)]), TOOLS).calls
    assert call.arguments == values


@given(CASES, st.sampled_from([name for name in PROVIDERS if name not in {"gemini", "openai-strict"}]))
def test_arguments_arrive_as_they_were_sent(case: tuple[type[Arguments], dict[str, Any]], name: str) -> None:
    model, values = case
    (call,) = provider(name).calls(RESPONSES[name]([("1", model.__name__.lower(), values)]), TOOLS).calls
    tool = next(tool for tool in TOOLS if tool.arguments is model)
    assert (json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments) == values
    assert tool.parse(values) == model.model_validate(values)
