"""OpenAI's APIs: chat completions and responses, and strict schemas."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ...errors import ToolError
from ..contract import Tool
from ..values import CallOutcome, Image, Json, JsonObject, ToolCall, ToolResult
from .base import (
    CUT,
    Names,
    Provider,
    Turn,
    arguments_of,
    ended,
    failure_in,
    member,
    names_of,
    not_run,
    objects,
    pieces,
    required,
    turn,
)
from .schemas import Schema, plain

__all__ = [
    "OpenAI",
    "OpenAIResponses",
    "OpenAIStrict",
    "data_url",
    "marked",
    "strict",
]


# -- OpenAI's chat completions API, which many other services support as well.


PROPER = frozenset({"tool_calls", "function_call", "stop"})
LENGTH = frozenset({"length"})
PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
FAILED = "[ERROR] "


class OpenAI(Provider):
    """Reads ``tool_calls``, and writes one ``tool`` message for each id; images follow in a user message."""

    def definitions(self, tools: Iterable[Tool[Any]]) -> list[JsonObject]:
        tools = list(tools)
        names = names_of(tools)
        return [
            {
                "type": "function",
                "function": {
                    "name": names.shown(tool.name),
                    "description": tool.description,
                    "parameters": plain(tool.schema),
                },
            }
            for tool in tools
        ]

    def calls(self, response: JsonObject, tools: Iterable[Tool[Any]] = ()) -> Turn:
        names = names_of(tools)
        choice = next(objects(required(response, "OpenAI", "choices")), None)
        if choice is None:
            raise ToolError("this response of OpenAI has no choices")
        message_id = str(member(response, "id") or "")
        items = objects(member(member(choice, "message"), "tool_calls"))
        why_not = ended(choice.get("finish_reason"), PROPER, LENGTH, given="finish_reason" in choice)
        return turn([_call(item, names, message_id) for item in items], why_not)

    def results(self, outcomes: Sequence[CallOutcome], tools: Iterable[Tool[Any]] = ()) -> list[JsonObject]:
        messages: list[JsonObject] = []
        pictures: list[Json] = []
        for outcome in outcomes:
            text, images = marked(outcome.result)
            messages.append({"role": "tool", "tool_call_id": outcome.call.provider_id, "content": text})
            if images:
                pictures.append({"type": "text", "text": f"From the call {outcome.call.provider_id}:"})
            pictures += [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in images]
        return [*messages, {"role": "user", "content": pictures}] if pictures else messages


def _call(item: Mapping[str, Any], names: Names, message_id: str) -> ToolCall:
    """Return a call; an unsupported kind of call has no known name and ends as an unknown tool."""
    function = member(item, "function", "custom") or {}
    return ToolCall(
        names.own(str(member(function, "name") or "")),
        arguments_of(member(function, "arguments", "input")),
        provider_id=str(item.get("id") or ""),
        message_id=message_id,
    )


def marked(result: ToolResult) -> tuple[str, tuple[Image, ...]]:
    """Return the text, marked if it is a failure: the API has no other field for it."""
    found = pieces(result, PICTURES)
    return (FAILED if result.is_error else "") + found.text, found.images


def data_url(image: Image) -> str:
    """Return an image as a data URL."""
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"


# -- OpenAI's responses API.


PROPER_RESPONSES = frozenset({"completed"})
BY_LENGTH = "max_output_tokens"


class OpenAIResponses(Provider):
    """Reads ``function_call`` items, and writes ``function_call_output`` items."""

    def definitions(self, tools: Iterable[Tool[Any]]) -> list[JsonObject]:
        tools = list(tools)
        names = names_of(tools)
        return [
            {
                "type": "function",
                "name": names.shown(tool.name),
                "description": tool.description,
                "parameters": plain(tool.schema),
                "strict": False,  # this API's default is true, which would refuse optional arguments
            }
            for tool in tools
        ]

    def calls(self, response: JsonObject, tools: Iterable[Tool[Any]] = ()) -> Turn:
        names = names_of(tools)
        message = str(member(response, "id") or "")
        why_not = _why_not(response)
        items = [
            item for item in objects(required(response, "OpenAI", "output")) if item.get("type") == "function_call"
        ]
        calls = [
            ToolCall(
                names.own(str(item.get("name"))),
                arguments_of(item.get("arguments")),
                provider_id=str(item.get("call_id") or ""),
                message_id=message,
            )
            for item in items
        ]
        if why_not and not calls and failure_in(response):
            raise ToolError(f"OpenAI: {why_not}")
        if why_not:
            return turn(calls, why_not)
        whole = [item.get("status") in {None, "completed"} for item in items]
        return Turn(
            tuple(call for call, good in zip(calls, whole, strict=True) if good),
            tuple(not_run(call, CUT) for call, good in zip(calls, whole, strict=True) if not good),
        )

    def results(self, outcomes: Sequence[CallOutcome], tools: Iterable[Tool[Any]] = ()) -> list[JsonObject]:
        return [
            {"type": "function_call_output", "call_id": outcome.call.provider_id, "output": _output(outcome)}
            for outcome in outcomes
        ]


def _why_not(response: JsonObject) -> str:
    if member(member(response, "incomplete_details"), "reason") == BY_LENGTH:
        return CUT
    why_not = ended(member(response, "status"), PROPER_RESPONSES, frozenset(), given="status" in response)
    said = failure_in(response)
    return f"{why_not}: {said}" if why_not and said else why_not


def _output(outcome: CallOutcome) -> Json:
    text, images = marked(outcome.result)
    if not images:
        return text
    pictures: list[Json] = [{"type": "input_image", "image_url": data_url(image), "detail": "auto"} for image in images]
    return [{"type": "input_text", "text": text}, *pictures]


# -- OpenAI's chat completions API with strict schemas, which the service enforces.


_KEPT = frozenset({"type", "description", "enum", "const", "properties", "required", "items", "anyOf"})


class OpenAIStrict(Provider):
    """:class:`OpenAI` with ``strict`` for each tool whose schema can be strict.

    A strict schema requires every argument: an optional one may be null instead, and nulls are removed from the calls.
    A tool with an object of arbitrary keys or values is not strict.
    """

    def __init__(self) -> None:
        self._loose = OpenAI()

    def definitions(self, tools: Iterable[Tool[Any]]) -> list[JsonObject]:
        tools = list(tools)
        return [
            _strict(definition, strict(plain(tool.schema)))
            for definition, tool in zip(self._loose.definitions(tools), tools, strict=True)
        ]

    def calls(self, response: JsonObject, tools: Iterable[Tool[Any]] = ()) -> Turn:
        tools = list(tools)
        by_name = {tool.name: tool for tool in tools}
        found = self._loose.calls(response, tools)
        return replace(found, calls=tuple(_without_nulls(call, by_name.get(call.name)) for call in found.calls))

    def results(self, outcomes: Sequence[CallOutcome], tools: Iterable[Tool[Any]] = ()) -> list[JsonObject]:
        return self._loose.results(outcomes, tools)


def _strict(definition: JsonObject, schema: Schema | None) -> JsonObject:
    if schema is None:
        return definition
    function = cast("dict[str, Any]", definition["function"])
    return {**definition, "function": {**function, "parameters": schema, "strict": True}}


def strict(schema: Schema) -> Schema | None:
    """Return the strict form of a plain schema; None if it has none."""
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        members = [strict(item) for item in alternatives]
        return None if None in members else {**_described(schema), "anyOf": members}
    if "type" not in schema and not schema.get("enum") and "const" not in schema:
        return None
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    if schema.get("type") == "array":
        items = strict(schema["items"])
        return None if items is None else {**kept, "items": items}
    return _object(schema, kept) if schema.get("type") == "object" or "properties" in schema else kept


def _described(schema: Schema) -> Schema:
    return {"description": schema["description"]} if "description" in schema else {}


def _object(schema: Schema, kept: Schema) -> Schema | None:
    if schema.get("additionalProperties", False) is not False or schema.get("patternProperties"):
        return None
    if not schema.get("properties") and "additionalProperties" not in schema:
        return None  # arbitrary keys
    properties = {name: strict(item) for name, item in schema.get("properties", {}).items()}
    needed = schema.get("required", ())
    if any(item is None for item in properties.values()):
        return None
    asked = {name: item if name in needed else _or_null(item or {}) for name, item in properties.items()}
    return {**kept, "properties": asked, "required": list(asked), "additionalProperties": False}


def _or_null(schema: Schema) -> Schema:
    bare = {key: value for key, value in schema.items() if key != "description"}
    return {**_described(schema), "anyOf": [*bare.get("anyOf", [bare]), {"type": "null"}]}


def _without_nulls(call: ToolCall, tool: Tool[Any] | None) -> ToolCall:
    """Return the call as the original schema would have it."""
    from ..arguments import decode

    if tool is None:
        return call
    try:
        arguments = decode(call.arguments, call.name)
    except Exception:  # the executor reports the error
        return call
    return replace(call, arguments=cast(JsonObject, _pruned(dict(arguments), plain(tool.schema))))


def _pruned(value: Any, schema: Schema) -> Any:
    if isinstance(value, list):
        return [_pruned(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    needed, properties = schema.get("required", ()), schema.get("properties", {})
    return {
        name: _pruned(item, properties.get(name, {}))
        for name, item in value.items()
        if item is not None or name in needed or name not in properties
    }
