"""What is sent to models, checked against the request types of their makers' own clients."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import anthropic.types as anthropic_types
import openai.types.chat as chat_types
import openai.types.responses as responses_types
import pytest
from google.genai import types as gemini_types
from pydantic import TypeAdapter
from tests.support.schemas import FOREIGN, Empty, Foreign, Plain, nasty

from harness.errors import ConfigError
from harness.toolkit import CallOutcome, CallStatus, Image, Text, Tool, ToolCall, ToolResult
from harness.toolkit.catalog import load_catalogue
from harness.toolkit.providers import PROVIDERS, provider
from harness.toolkit.providers.base import names_of
from harness.toolkit.providers.schemas import plain
from harness.toolkit.values import JsonObject

PNG = Image(b"\x89PNG", "image/png")
TIFF = Image(b"II*", "image/tiff")


TOOLS = [*nasty(), *load_catalogue().registry.list()]
"""Those that adapters get wrong, and every tool that there is."""
BY_NAME = {tool.name: tool for tool in TOOLS}
REQUESTS: dict[str, Any] = {
    "anthropic": TypeAdapter(anthropic_types.ToolParam),
    "openai": TypeAdapter(chat_types.ChatCompletionFunctionToolParam),
    "openai-strict": TypeAdapter(chat_types.ChatCompletionFunctionToolParam),
    "openai-responses": TypeAdapter(responses_types.FunctionToolParam),
    "gemini": TypeAdapter(gemini_types.Tool),
}
MESSAGES: dict[str, Any] = {
    "anthropic": TypeAdapter(anthropic_types.MessageParam),
    "openai": TypeAdapter(chat_types.ChatCompletionMessageParam),
    "openai-strict": TypeAdapter(chat_types.ChatCompletionMessageParam),
    "openai-responses": TypeAdapter(responses_types.ResponseInputItemParam),
    "gemini": TypeAdapter(gemini_types.Content),
}

CHAT_PICTURES: Any = TypeAdapter(chat_types.ChatCompletionUserMessageParam)


def the_same(adapter: TypeAdapter[Any], value: JsonObject) -> None:
    """The client takes the value, and nothing of it is unknown to it."""
    written = adapter.dump_json(adapter.validate_python(value), exclude_none=True, by_alias=True)
    assert json.loads(written) == json.loads(json.dumps(value))


def nodes(value: Any, *, is_schema: bool = True) -> Iterator[dict[str, Any]]:
    """Every schema inside a schema."""
    if isinstance(value, list):
        for item in value:
            yield from nodes(item)
    elif isinstance(value, dict):
        if is_schema:
            yield value
        for key, item in value.items():
            if key not in {"enum", "required", "default", "const", "examples"}:
                yield from nodes(item, is_schema=key != "properties")


def schema_in(definition: JsonObject) -> dict[str, Any]:
    """The schema of a definition, whatever the API calls it."""
    found: Any = definition.get("functionDeclarations", [definition])
    found = found[0] if isinstance(found, list) else found
    found = found.get("function", found)
    return next((found[key] for key in ("input_schema", "parameters") if key in found), {})


def outcome(result: ToolResult, call: ToolCall | None = None) -> CallOutcome:
    status = CallStatus.ERROR if result.is_error else CallStatus.OK
    return CallOutcome(call or ToolCall("empty", {}, "ours", provider_id="call_1"), result, status)


RESULTS = {
    "text": ToolResult.of("hello"),
    "nothing": ToolResult.of(""),
    "blank": ToolResult.of(" \n"),
    "failure": ToolResult.failure("not_found", "no such file"),
    "silent failure": ToolResult((), True, "timeout"),
    "picture": ToolResult((Text("a screen"), PNG)),
    "only a picture": ToolResult((PNG,)),
    "strange picture": ToolResult((TIFF,)),
    "no characters": ToolResult.of("\udcff\ud83d\ude00\ud800"),
}


def test_the_tools_that_come_with_harness_are_tested_here() -> None:
    assert {"run_shell", "read_file", "write_file", "time"} <= set(BY_NAME)


def test_every_tool_is_a_definition_that_the_makers_client_takes() -> None:
    for name, request in REQUESTS.items():
        for tool in TOOLS:
            for definition in provider(name).definitions([tool]):
                the_same(request, definition)


def test_no_schema_holds_what_some_api_refuses() -> None:
    for name in PROVIDERS:
        for tool in TOOLS:
            for definition in provider(name).definitions([tool]):
                schema = schema_in(definition)
                json.dumps(schema, allow_nan=False)
                for node in nodes(schema):
                    assert not node.keys() & {"$ref", "$defs", "$schema", "allOf", "prefixItems", "title"}
                    assert "array" not in str(node.get("type")).lower() or isinstance(node["items"], dict)
                if schema:
                    assert schema["type"].lower() == "object"
                    assert not schema.keys() & {"anyOf", "oneOf", "enum", "not"}
                    assert set(schema.get("required", ())) <= set(schema["properties"])


GEMINI_KEYS = {
    *("type", "format", "description", "nullable", "enum", "items", "minItems", "maxItems"),
    *("properties", "required", "anyOf", "minimum", "maximum"),
}


def test_gemini_gets_only_what_its_schema_has() -> None:
    for tool in TOOLS:
        schema = schema_in(provider("gemini").definitions([tool])[0])
        assert bool(schema) == bool(plain(tool.schema)["properties"])
        for node in nodes(schema) if schema else ():
            assert node.keys() <= GEMINI_KEYS
            if "anyOf" in node:
                assert node.keys() == {"anyOf"}
                continue
            assert node["type"] in {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"}
            assert ("enum" in node) <= (node["type"] == "STRING")
            assert all(isinstance(value, str) and value for value in node.get("enum", ()))
            assert node["type"] != "OBJECT" or node["properties"]
            assert node["type"] != "STRING" or node.get("format", "enum") in {"enum", "date-time"}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool.name))
def test_a_strict_schema_requires_everything_and_allows_nothing_else(tool: Tool[Any]) -> None:
    definition: Any = provider("openai-strict").definitions([tool])[0]
    if not definition["function"].get("strict"):
        return
    for node in nodes(definition["function"]["parameters"]):
        assert not node.keys() & {"default", "pattern", "minimum", "oneOf", "examples"}
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
            assert set(node["required"]) == set(node["properties"])


def test_what_can_be_strict_is() -> None:
    definitions: list[Any] = provider("openai-strict").definitions(nasty())
    strict = {item["function"]["name"] for item in definitions if item["function"].get("strict")}
    assert strict == {"choices", "empty", "tuples", "all_of", "top_alternatives"}


def test_enumerations_are_kept_whatever_their_type_in_python() -> None:
    choices: Any = schema_in(provider("gemini").definitions([BY_NAME["choices"]])[0])["properties"]
    assert choices["colour"]["enum"] == ["red", "green"]
    assert choices["level"]["enum"] == ["1", "2"]
    assert choices["several"]["items"]["enum"] == ["x", "y"]
    for name in PROVIDERS:
        pick = schema_in(provider(name).definitions([BY_NAME["tuples"]])[0])["properties"]["pick"]
        assert pick.get("anyOf", [pick])[0]["enum"] == ["b", "a"]


def test_alternatives_of_the_whole_object_become_one_object() -> None:
    found = plain(FOREIGN["top_alternatives"])
    assert set(found["properties"]) == {"a", "b", "c"}
    assert found["required"] == ["c"]


def test_references_are_resolved_and_end() -> None:
    found = plain(FOREIGN["references"])
    assert found["properties"]["node"]["properties"] == {"name": {"type": "string"}, "next": {}}
    assert found["properties"]["far"] == {}


def test_references_that_multiply_do_not_fill_the_memory() -> None:
    defs: dict[str, Any] = {
        f"d{n}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "abcdefgh"}}
        for n in range(12)
    }
    found = plain({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs})
    assert len(json.dumps(found)) < 5_000_000


@pytest.mark.parametrize("name", PROVIDERS)
def test_without_tools_the_request_says_nothing_of_tools(name: str) -> None:
    assert provider(name).request([]) == {}
    assert provider(name).definitions([]) == []
    assert set(provider(name).request([BY_NAME["deep"]])) == {"tools"}
    assert provider(name).results([]) == []


def test_gemini_gets_one_tool_with_all_declarations() -> None:
    definitions: list[Any] = provider("gemini").definitions(TOOLS)
    assert len(definitions) == 1
    assert len(definitions[0]["functionDeclarations"]) == len(TOOLS)


@pytest.mark.parametrize("name", PROVIDERS)
def test_definitions_are_the_same_each_time_and_leave_the_schema_alone(name: str) -> None:
    before = json.dumps([plain(tool.schema) for tool in TOOLS])
    first = json.dumps(provider(name).definitions(TOOLS))
    assert json.dumps(provider(name).definitions(TOOLS)) == first
    assert json.dumps([plain(tool.schema) for tool in TOOLS]) == before


def test_an_unknown_provider_is_an_error_that_names_those_that_are_there() -> None:
    with pytest.raises(ConfigError, match=r"unknown provider 'aleph'.*anthropic, openai"):
        provider("aleph")


# -- names

STRANGE = ["server.tool", "a b", "a_b", "", "x" * 80, "x" * 90, "naïve", "9lives", "-dash", "plain"]


@pytest.mark.parametrize("first", ["", "[A-Za-z_]"])
def test_names_are_such_as_every_api_takes_and_lead_back(first: str) -> None:
    tools = [Foreign({}, name) for name in STRANGE]
    names = names_of(tools, first)
    shown = [names.shown(name) for name in STRANGE]
    assert len(set(shown)) == len(STRANGE)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) and re.match(first, name) for name in shown)
    assert [names.own(name) for name in shown] == STRANGE
    assert names_of(reversed(tools), first) == names
    assert names.shown("plain") == "plain"


def test_a_changed_name_leads_back_from_the_models_call_and_again_to_it() -> None:
    tools = [Foreign({}, "9lives"), Plain("fine", "Fine.", Empty)]
    gemini = provider("gemini")
    shown = gemini.definitions(tools)[0]["functionDeclarations"]
    assert isinstance(shown, list)
    assert [item["name"] for item in shown if isinstance(item, dict)] == ["_9lives", "fine"]
    response: JsonObject = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "_9lives"}}]}}]}
    (call,) = gemini.calls(response, tools).calls
    assert call.name == "9lives"
    (message,) = gemini.results([outcome(ToolResult.of("x"), call)], tools)
    assert '"name": "_9lives"' in json.dumps(message)


# -- results


def test_every_result_is_a_message_that_the_makers_client_takes() -> None:
    for name, known in MESSAGES.items():
        for result in RESULTS.values():
            messages = provider(name).results([outcome(result), outcome(ToolResult.of("second"))])
            for message in messages:
                picture = name.startswith("openai") and message.get("role") == "user"
                the_same(CHAT_PICTURES if picture else known, message)
                json.dumps(message, ensure_ascii=False).encode()


def test_anthropic_gets_all_results_in_one_message() -> None:
    outcomes = [outcome(ToolResult.of("one")), outcome(ToolResult.failure("x", "two"))]
    (message,) = provider("anthropic").results(outcomes)
    blocks: Any = message["content"]
    assert message["role"] == "user"
    assert [block["is_error"] for block in blocks] == [False, True]
    assert [block["content"][0]["text"] for block in blocks] == ["one", "two"]


def test_openai_gets_a_message_for_each_id_that_says_that_it_failed() -> None:
    first, second, third = provider("openai").results(
        [outcome(ToolResult((Text("a"), PNG))), outcome(ToolResult.failure("x", "b"))]
    )
    assert first == {"role": "tool", "tool_call_id": "call_1", "content": "a"}
    assert second["content"] == "[ERROR] b"
    assert third["role"] == "user"
    assert "data:image/png;base64,iVBORw==" in json.dumps(third)


def test_gemini_gets_whether_it_failed_and_an_id_only_where_it_gave_one() -> None:
    without = ToolCall("empty", {}, "ours")
    (message,) = provider("gemini").results(
        [outcome(ToolResult.failure("x", "no"), without), outcome(ToolResult.of("y"))]
    )
    parts: Any = message["parts"]
    assert parts[0] == {"functionResponse": {"name": "empty", "response": {"content": "no", "is_error": True}}}
    assert parts[1]["functionResponse"]["id"] == "call_1"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("nothing", "(no output)"),
        ("blank", "(no output)"),
        ("silent failure", "timeout"),
        ("only a picture", "(an image)"),
        ("strange picture", "[an image of type image/tiff was omitted]"),
        ("no characters", "\ufffd\U0001f600\ufffd"),
    ],
)
def test_a_result_is_never_empty_and_always_text(result: str, text: str) -> None:
    (message,) = provider("anthropic").results([outcome(RESULTS[result])])
    blocks: Any = message["content"]
    assert blocks[0]["content"][0]["text"] == text
