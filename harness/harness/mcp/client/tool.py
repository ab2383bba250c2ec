"""Arguments checked against the schema that a server gives for its tool: somebody else's text, taken with care."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import reduce
from operator import or_
from types import NoneType
from typing import TYPE_CHECKING, Any, cast

from ..errors import ToolError
from ..toolkit.arguments import coerce
from ..toolkit.values import Json, JsonObject

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

__all__ = ["ArgumentSchema", "SchemaMistake", "usable_schema"]

LARGEST = 20_000
"""Values in one schema."""
WORK = 2_000
"""Schemas that one value may be held against, without those of its parts."""
MISTAKES = 5
NAMES = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Their keys are names, not words of the language."""
LITERAL = frozenset({"default", "enum", "const", "examples"})
SAME_VALUE = ("allOf", "anyOf", "oneOf")
KINDS: Mapping[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict, "null": NoneType,
}  # fmt: skip


class SchemaMistake(ValueError):
    """A schema that cannot be used; the text says why."""


def usable_schema(schema: JsonObject) -> JsonObject:
    """The schema as it is shown to models: an object, with a description of each argument that it requires. Pure.

    Raises:
        SchemaMistake: it describes no object, is too large, refers to elsewhere, or could not be worked off.
    """
    if schema.get("type", "object") != "object":
        raise SchemaMistake("its arguments are no object")
    _measure(schema)
    for reference in _references(schema):
        _target(schema, reference)
    try:
        known: dict[int, int] = {}
        for node in _schemas(schema):
            _work(schema, node, set(), known)
    except RecursionError:
        raise SchemaMistake("it is nested too deeply") from None
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise SchemaMistake("its properties are no object")
    missing: dict[str, Json] = {name: {} for name in required if isinstance(name, str) and name not in properties}
    return {**schema, "type": "object", "properties": {**properties, **missing}}


def _measure(schema: JsonObject) -> None:
    waiting: list[Any] = [schema]
    count = 0
    while waiting:
        node = waiting.pop()
        count += 1
        waiting += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        if count + len(waiting) > LARGEST:
            raise SchemaMistake(f"it has more than {LARGEST} parts")


def _schemas(node: Any) -> Iterator[dict[str, Any]]:
    """The schema and those in it."""
    if isinstance(node, list):
        for item in node:
            yield from _schemas(item)
    elif isinstance(node, dict):
        yield node
        for key, value in node.items():
            if key in NAMES and isinstance(value, dict):
                for item in value.values():
                    yield from _schemas(item)
            elif key not in LITERAL:
                yield from _schemas(value)


def _references(schema: JsonObject) -> set[str]:
    keys = ("$ref", "$dynamicRef", "$recursiveRef")
    found = {node[key] for node in _schemas(schema) for key in keys if isinstance(node.get(key), str)}
    if any("$id" in node for node in _schemas(schema)) and found:
        raise SchemaMistake("it gives its parts addresses of their own")
    return found


def _target(schema: JsonObject, reference: str) -> Any:
    """What a reference within the schema means."""
    if not reference.startswith("#"):
        raise SchemaMistake(f"it refers to {reference!r}, which is elsewhere")
    node: Any = schema
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict | bool) or (len(reference) > 1 and not reference.startswith("#/")):
        raise SchemaMistake(f"it refers to {reference!r}, which is not there")
    return node


def _work(root: JsonObject, node: Any, above: set[int], known: dict[int, int]) -> int:
    """How many schemas one value is held against: a short text can mean endless work."""
    if not isinstance(node, dict):
        return 1
    if id(node) in above:
        raise SchemaMistake("it refers to itself without an end")
    if id(node) not in known:
        inside = above | {id(node)}
        cost = 1 + sum(_work(root, part, inside, known) for part in _same_value(root, node))
        if cost > WORK:
            raise SchemaMistake("to check a value against it would take too long")
        known[id(node)] = cost
    return known[id(node)]


def _same_value(root: JsonObject, node: dict[str, Any]) -> list[Any]:
    """The schemas that hold for the same value as this one."""
    found = [item for key in SAME_VALUE for item in (node[key] if isinstance(node.get(key), list) else [])]
    found += [node[key] for key in ("not", "if", "then", "else") if key in node]
    found += [_target(root, node[key]) for key in ("$ref", "$dynamicRef", "$recursiveRef") if key in node]
    dependent = node.get("dependentSchemas")
    return found + (list(dependent.values()) if isinstance(dependent, dict) else [])


def _without_patterns(node: Any, *, is_schema: bool = True) -> Any:
    """Without regular expressions: those of a stranger can take for ever, and the server checks them itself."""
    if isinstance(node, list):
        return [_without_patterns(item) for item in node]
    if not isinstance(node, dict):
        return node
    dropped = {"pattern", "patternProperties", "format"} if is_schema else set()
    if is_schema and "patternProperties" in node:
        dropped |= {"additionalProperties", "unevaluatedProperties"}
    return {
        key: value
        if is_schema and key in LITERAL
        else _without_patterns(value, is_schema=not is_schema or key not in NAMES)
        for key, value in node.items()
        if key not in dropped
    }


class ArgumentSchema:
    """Checks the arguments of one tool. Made when it is first needed: the library takes a while to load.

    Args:
        schema: as :func:`usable_schema` gives it.
    """

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema
        self._compiled: Validator | None = None

    def check(self, raw: JsonObject, tool: str) -> dict[str, Json]:
        """The arguments, with texts that mean numbers, truth values or lists taken as such where they are none else.

        Raises:
            ToolError: ``invalid_args``, with one line for each of the first mistakes.
        """
        mistakes = self._mistakes(raw)
        if not mistakes:
            return dict(raw)
        coerced = self._coerced(raw)
        mistakes = self._mistakes(coerced)
        if mistakes:
            raise ToolError(f"{tool}: " + "\n".join(mistakes), code="invalid_args")
        return coerced

    def _mistakes(self, values: JsonObject) -> list[str]:
        try:
            errors = sorted(self._validator().iter_errors(dict(values)), key=lambda error: error.json_path)
        except RecursionError:
            return ["the arguments are nested too deeply"]
        known = list(cast(dict[str, Any], self._schema["properties"]))
        return list(dict.fromkeys(_mistake(error, known) for error in errors))[:MISTAKES]

    def _validator(self) -> Validator:
        if self._compiled is None:
            from jsonschema.validators import Draft202012Validator, validator_for
            from referencing import Registry

            schema = _without_patterns(self._schema)
            kind = validator_for(schema, default=Draft202012Validator)
            self._compiled = kind(schema, registry=Registry())
        return self._compiled

    def verify(self) -> None:
        """Say at once whether it is a schema at all.

        Raises:
            SchemaMistake: it is none.
        """
        from jsonschema.exceptions import SchemaError

        validator = self._validator()
        try:
            type(validator).check_schema(cast(dict[str, Any], validator.schema))
            next(iter(validator.iter_errors({})), None)
        except SchemaError as error:
            raise SchemaMistake(f"its schema is wrong: {error.message[:200]}") from error
        except Exception as error:  # whatever else a stranger's schema does to the library
            raise SchemaMistake(f"its schema cannot be used: {type(error).__name__}") from error

    def _coerced(self, raw: JsonObject) -> dict[str, Json]:
        properties = cast(dict[str, Any], self._schema["properties"])
        return {name: _coerced(value, properties.get(name)) for name, value in raw.items()}


def _coerced(value: Json, schema: Any) -> Json:
    kinds = _kinds(schema)
    if not kinds:
        return value
    found = coerce(value, reduce(or_, kinds))
    return value if isinstance(found, float) and not math.isfinite(found) else found


def _kinds(schema: Any) -> list[Any]:
    """The types that a schema names; none when it may be anything."""
    if not isinstance(schema, dict):
        return []
    named = schema.get("type")
    if isinstance(named, str | list):
        names = [named] if isinstance(named, str) else named
        return [KINDS[name] for name in names if isinstance(name, str) and name in KINDS]
    choices = schema.get("anyOf", schema.get("oneOf"))
    found = [_kinds(choice) for choice in choices] if isinstance(choices, list) else []
    return [kind for kinds in found for kind in kinds] if all(found) else []


def _mistake(error: ValidationError, known: list[str]) -> str:
    where = error.json_path.removeprefix("$").removeprefix(".")
    if error.validator == "additionalProperties" and not where and isinstance(error.instance, dict):
        unknown = next((name for name in error.instance if name not in known), "")
        close = get_close_matches(unknown, known, n=1, cutoff=0.5)
        return f"{unknown}: no such argument; " + (
            f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        )
    if error.validator == "required" and isinstance(error.instance, dict) and isinstance(error.validator_value, list):
        names = [name for name in error.validator_value if name not in error.instance]
        return "; ".join(f"{where + '.' if where else ''}{name}: required" for name in names)
    return f"{where or 'arguments'}: {error.message[:300]}"
