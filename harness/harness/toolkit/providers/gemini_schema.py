"""The part of JSON schema that Gemini takes, and the way back for what it cannot say."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ..values import Json
from .schemas import Schema

__all__ = ["gemini_schema", "restored"]

_KEPT = ("description", "minimum", "maximum")
_ARRAY = ("minItems", "maxItems")
_FORMATS = frozenset({"date-time", "float", "double", "int32", "int64"})
AS_TEXT = "a JSON object, written as text"


def gemini_schema(schema: Schema) -> Schema:
    """One plain schema as Gemini's ``Schema``: without defaults, with ``items``, enumerations as texts.

    An object of any keys, which Gemini refuses, is asked for as text; :func:`restored` undoes that.
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
    """Beside ``anyOf`` Gemini takes nothing else: the description goes to the first member, null to all."""
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
    """The choices, as the texts that Gemini wants; its enumerations hold no empty one."""
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
    """Arguments as the plain schema has them: choices that are no texts, and objects that came as text."""
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
    """A text stays one where a text is allowed."""
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
