"""Google's Gemini API."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..contract import Tool
from ..values import CallOutcome, Json, JsonObject, ToolCall
from .base import Names, Provider, Turn, arguments_of, ended, member, names_of, objects, pieces, required, turn
from .schemas import Schema, plain

__all__ = [
    "Gemini",
    "gemini_schema",
    "restored",
]


# -- The subset of JSON schema that Gemini accepts, and the inverse for what it cannot express.


_KEPT = ("description", "minimum", "maximum")
_ARRAY = ("minItems", "maxItems")
_FORMATS = frozenset({"date-time", "float", "double", "int32", "int64"})
AS_TEXT = "a JSON object, written as text"


def gemini_schema(schema: Schema) -> Schema:
    """Return a plain schema as Gemini's ``Schema``: without defaults, with ``items``, enumerations as strings.

    An object with arbitrary keys, which Gemini refuses, becomes a string; :func:`restored` converts it back.
    """
    alternatives = _alternatives(schema)
    if len(alternatives) > 1:
        return _any_of(schema, alternatives)
    if alternatives:
        schema = {**schema, **alternatives[0], "nullable": _nullable(schema) or _nullable(alternatives[0])}
    kind = _kind(schema)
    kept = {name: schema[name] for name in _KEPT if name in schema}
    if _nullable(schema):
        kept["nullable"] = True
    if schema.get("format") in _FORMATS:
        kept["format"] = schema["format"]
    texts = _texts(schema)
    if texts:
        kept = {name: value for name, value in kept.items() if name not in {"minimum", "maximum", "format"}}
        return {**kept, "type": "STRING", "format": "enum", "enum": texts}
    if kind == "array":
        arrays = {name: schema[name] for name in _ARRAY if name in schema}
        return {**kept, **arrays, "type": "ARRAY", "items": gemini_schema(schema.get("items") or {})}
    if kind == "object":
        return _object(schema, kept)
    return {**kept, "type": kind.upper()}


def _alternatives(schema: Schema) -> list[Schema]:
    found = [item for item in schema.get("anyOf") or schema.get("oneOf") or () if item != {"type": "null"}]
    kinds = schema.get("type")
    if not found and isinstance(kinds, list | tuple):
        found = [{**schema, "type": kind} for kind in kinds if kind != "null"]
    different: list[Schema] = [item for number, item in enumerate(found) if item not in found[:number]]
    return [{key: value for key, value in item.items() if key != "description"} for item in different]


def _any_of(schema: Schema, alternatives: Iterable[Schema]) -> Schema:
    """Return a schema with ``anyOf``, next to which Gemini accepts nothing else: its siblings move to the members."""
    members = [gemini_schema({**item, "nullable": True} if _nullable(schema) else item) for item in alternatives]
    different = [member for number, member in enumerate(members) if member not in members[:number]]
    if "description" in schema:
        different[0] = {"description": schema["description"], **different[0]}
    return {"anyOf": different} if len(different) > 1 else different[0]


def _nullable(schema: Schema) -> bool:
    kinds = schema.get("type")
    alone = {"type": "null"} in (schema.get("anyOf") or schema.get("oneOf") or ())
    return bool(schema.get("nullable")) or alone or (isinstance(kinds, list | tuple) and "null" in kinds)


def _kind(schema: Schema) -> str:
    kinds = schema.get("type")
    named = kinds if isinstance(kinds, str) else next((kind for kind in kinds or () if kind != "null"), "")
    if named in {"object", "array", "integer", "number", "boolean"}:
        return str(named)
    return "object" if not named and "properties" in schema else "string"


def _values(schema: Schema) -> list[Json]:
    found = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    return [value for value in found if value is not None]


def _texts(schema: Schema) -> list[str]:
    """Return the choices as strings, as Gemini requires; its enumerations cannot contain an empty one."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in _values(schema)]
    return [text for text in dict.fromkeys(texts) if text]


def _object(schema: Schema, kept: Schema) -> Schema:
    properties = {str(name): gemini_schema(item) for name, item in schema.get("properties", {}).items()}
    if not properties:
        described = f"{kept['description']} ({AS_TEXT})" if "description" in kept else AS_TEXT
        return {**kept, "type": "STRING", "description": described}
    required = [name for name in schema.get("required", ()) if name in properties]
    return {**kept, "type": "OBJECT", "properties": properties, **({"required": required} if required else {})}


def restored(value: Any, schema: Schema) -> Any:
    """Return arguments as the plain schema has them: choices that are not strings, and objects that came as strings."""
    if isinstance(value, list):
        return [restored(item, schema.get("items") or {}) for item in value]
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return {name: restored(item, properties.get(name, {})) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    members = _alternatives(schema)
    if members:
        return _restored_member(value, members)
    chosen = [choice for choice in _values(schema) if not isinstance(choice, str) and json.dumps(choice) == value]
    if chosen and value not in _values(schema):
        return chosen[0]
    return _parsed(value) if _kind(schema) == "object" and not schema.get("properties") else value


def _restored_member(value: str, members: Iterable[Schema]) -> Any:
    """Convert a string to the type of a member, unless a member allows strings."""
    found = [restored(value, member) for member in members]
    if any(_kind(member) == "string" and not _values(member) for member in members):
        return value
    return next((item for item in found if item != value), value)


def _parsed(text: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, dict) else text


# -- Google's Gemini API (``generateContent``).


FIRST = "[A-Za-z_]"
"""The pattern of a name's first character."""
PROPER = frozenset({"STOP"})
LENGTH = frozenset({"MAX_TOKENS"})
PICTURES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})


class Gemini(Provider):
    """Reads ``functionCall`` parts, and writes one user message of ``functionResponse`` parts, in order of the calls.

    Most models give their calls no ids: results are matched by order, so pass them in the order of the calls.
    """

    def definitions(self, tools: Iterable[Tool[Any]]) -> list[JsonObject]:
        tools = list(tools)
        names = names_of(tools, FIRST)
        found: list[Json] = [_declaration(tool, names) for tool in tools]
        return [{"functionDeclarations": found}] if found else []

    def calls(self, response: JsonObject, tools: Iterable[Tool[Any]] = ()) -> Turn:
        tools = list(tools)
        schemas = {tool.name: plain(tool.schema) for tool in tools}
        candidate = next(objects(required(response, "Gemini", "candidates")), {})
        message = str(member(response, "responseId", "response_id") or "")
        parts = objects(member(member(candidate, "content"), "parts"))
        items = [item for part in parts if isinstance(item := member(part, "functionCall", "function_call"), Mapping)]
        names = names_of(tools, FIRST)
        reason = member(candidate, "finishReason", "finish_reason")
        given = "finishReason" in candidate or "finish_reason" in candidate
        calls = [_call(item, names, schemas, message) for item in items]
        return turn(calls, ended(reason, PROPER, LENGTH, given=given))

    def results(self, outcomes: Sequence[CallOutcome], tools: Iterable[Tool[Any]] = ()) -> list[JsonObject]:
        names = names_of(tools, FIRST)
        responses: list[Json] = []
        pictures: list[Json] = []
        for outcome in outcomes:
            found = pieces(outcome.result, PICTURES)
            responses.append(_response(outcome, names, found.text))
            pictures += [
                {"inlineData": {"mimeType": image.media_type, "data": base64.b64encode(image.data).decode()}}
                for image in found.images
            ]
        return [{"role": "user", "parts": [*responses, *pictures]}] if responses else []


def _declaration(tool: Tool[Any], names: Names) -> Json:
    schema = plain(tool.schema)
    declared: dict[str, Json] = {"name": names.shown(tool.name), "description": tool.description}
    if schema["properties"]:  # Gemini refuses an object without members, but not a function without parameters
        declared["parameters"] = gemini_schema({key: value for key, value in schema.items() if key != "description"})
    return declared


def _call(item: Mapping[str, Any], names: Names, schemas: Mapping[str, Schema], message: str) -> ToolCall:
    name = names.own(str(item.get("name")))
    arguments = arguments_of(item.get("args"))
    if not isinstance(arguments, str):
        arguments = restored(dict(arguments), schemas.get(name, {}))
    return ToolCall(name, arguments, provider_id=str(item.get("id") or ""), message_id=message)


def _response(outcome: CallOutcome, names: Names, text: str) -> Json:
    said: dict[str, Json] = {"content": text, "is_error": outcome.result.is_error}
    response: dict[str, Json] = {"name": names.shown(outcome.call.name), "response": said}
    return {"functionResponse": response | ({"id": outcome.call.provider_id} if outcome.call.provider_id else {})}
