"""OpenAI's chat completions API with strict schemas: the service itself holds the model to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from ..contract import Tool
from ..values import CallOutcome, JsonObject, ToolCall
from .base import Provider, Turn
from .openai import OpenAI
from .schemas import Schema, plain

__all__ = ["OpenAIStrict", "strict"]

_KEPT = frozenset({"type", "description", "enum", "const", "properties", "required", "items", "anyOf"})


class OpenAIStrict(Provider):
    """As :class:`OpenAI`, with ``strict`` for each tool that such a schema can say.

    In it every argument is required: one that may be left out may be null instead, and a null is left out again on
    the way back. A tool with an object of any keys, or any values, stays as it is.
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
    """The strict form of a plain schema; None when it has none."""
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
        return None  # any keys
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
    """The call as it would have come for the loose schema."""
    from ..arguments import decode

    if tool is None:
        return call
    try:
        arguments = decode(call.arguments, call.name)
    except Exception:  # the executor says what is wrong with it
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
