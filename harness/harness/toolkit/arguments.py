"""Validates arguments from a model: decoding, coercion by the schema, and helpful error messages."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ..errors import ToolError
from .values import Json, JsonObject

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["coerce", "decode", "parse_arguments", "schema_of", "unique_keys", "with_choices"]

M = TypeVar("M", bound=BaseModel)
MISTAKES = 20
"""Maximum errors of one call in a message; the rest are counted."""
NAME_SHOWN = 100
"""Maximum characters of an invalid name in a message."""
_TRUTH = {"true": True, "false": False}


def with_choices(schema: JsonObject, choices: Mapping[str, Sequence[str]]) -> JsonObject:
    """Return the schema with an ``enum`` for arguments with known values. Pure.

    Args:
        schema: the schema of an object.
        choices: the values of string arguments, by argument.
    """
    properties = schema.get("properties")
    assert isinstance(properties, dict)
    named: dict[str, Json] = {
        name: {**_mapping(properties[name]), "enum": list(values)} for name, values in choices.items()
    }
    return {**schema, "properties": {**properties, **named}}


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def decode(arguments: JsonObject | Json, tool: str) -> JsonObject:
    """Return the argument object of a call; an empty text is an empty object.

    Raises:
        ToolError: ``invalid_args``: it is not JSON, not an object, or contains a key twice.
    """
    value: JsonObject | Json = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments, object_pairs_hook=unique_keys) if arguments.strip() else {}
        except (ValueError, RecursionError) as error:
            raise _invalid(tool, f"the arguments are not a JSON object: {error}") from error
    if not isinstance(value, Mapping):
        raise _invalid(tool, f"the arguments are a JSON {_kind(value)}, not an object")
    return value


def unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return the object for :func:`json.loads` if all keys are unique; parsers differ in which value they use.

    Raises:
        ValueError: a key is repeated.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))
        raise ValueError(f"duplicate key {twice!r}")
    return found


def parse_arguments(model: type[M], raw: JsonObject, tool: str) -> M:
    """Validate arguments strictly, after the coercions of :func:`coerce` and the renaming of aliases.

    Raises:
        ToolError: ``invalid_args``; one line for each error, with the closest name for an unknown one.
    """
    values = _canonical(model, raw, tool)
    coerced = {name: coerce(value, _type_of(model.model_fields.get(name))) for name, value in values.items()}
    try:
        return model.model_validate(coerced, strict=False)
    except ValidationError as error:
        raise _invalid(tool, ";\n".join(_mistakes(model, error))) from error


def _canonical(model: type[BaseModel], raw: JsonObject, tool: str) -> dict[str, Json]:
    """Rename aliases to canonical names; an argument under two names must have equal values."""
    names = _names(model)
    found: dict[str, Json] = {}
    for key, value in raw.items():
        name = names.get(key, key)
        if name in found and found[name] != value:
            raise _invalid(tool, f"{name}: given twice, under two names, with different values")
        found[name] = value
    return found


@lru_cache(maxsize=512)
def _names(model: type[BaseModel]) -> dict[str, str]:
    """Return the canonical name for every accepted name of a field."""
    names = {}
    for name, field in model.model_fields.items():
        names[name] = name
        alias = field.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias] if alias else []
        names |= {choice: name for choice in choices if isinstance(choice, str)}
    return names


def _type_of(field: FieldInfo | None) -> Any:
    return field.annotation if field is not None else Any


def coerce(value: Json, wanted: Any) -> Json:
    """Convert common mistakes of models: ``"3"`` to 3, ``"true"`` to true, 3.0 to 3, a single item to a list."""
    kinds = set(_kinds(wanted))
    if isinstance(value, str) and not kinds & {str, Any}:
        return _from_text(value, kinds)
    if isinstance(value, float) and value.is_integer() and int in kinds and float not in kinds:
        return int(value)
    if not isinstance(value, list | NoneType) and kinds & {list, tuple} and not kinds & {type(value), dict, Any}:
        return [value]
    return value


def _from_text(value: str, kinds: set[Any]) -> Json:
    text = value.strip()
    if bool in kinds and text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    for kind in (int, float):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                continue
    if kinds & {list, tuple, dict}:
        return _from_json(value, kinds)
    return value


def _from_json(value: str, kinds: set[Any]) -> Json:
    """Parse a list or object given as a string; any other string becomes the only item of a list."""
    try:
        parsed: Json = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, list | dict):
        return parsed
    return [value] if kinds & {list, tuple} else value


def _kinds(wanted: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows, without their parameters."""
    origin = get_origin(wanted)
    if origin is Annotated:
        yield from _kinds(get_args(wanted)[0])
    elif origin in (Union, UnionType):
        for member in get_args(wanted):
            yield from _kinds(member)
    elif origin is Literal:
        yield from {type(choice) for choice in get_args(wanted)}
    elif isinstance(wanted, type) and issubclass(wanted, BaseModel):
        yield dict
    else:
        kind = origin or wanted
        yield str if isinstance(kind, type) and issubclass(kind, str) else kind


def _mistakes(model: type[BaseModel], error: ValidationError) -> Iterator[str]:
    details = list(_joined(error.errors(include_url=False)))
    for detail in details[:MISTAKES]:
        where = ".".join(str(part)[:NAME_SHOWN] for part in detail["loc"])
        if detail["type"] == "extra_forbidden":
            yield f"{where}: no such argument; {_advice(_model_at(model, detail['loc'][:-1]), str(detail['loc'][-1]))}"
        elif detail["type"] == "missing":
            yield f"{where}: required"
        else:
            said = _said(detail)
            yield f"{where or 'arguments'}: {said}"
    if len(details) > MISTAKES:
        yield f"and {len(details) - MISTAKES} more errors"


_KINDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text"}
_PLAIN = frozenset(
    {"bool_type", "bool_parsing", "int_type", "int_parsing", "int_from_float", "float_type", "float_parsing"}
    | {"string_type", "literal_error"}
)


def _joined(details: Iterable[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Combine the errors for each type that an argument may have into one error of the argument."""
    groups: dict[tuple[int | str, ...], ErrorDetails] = {}
    for detail in details:
        *place, last = detail["loc"] or ("",)
        kind = _KINDS.get(str(last)) or (str(last)[9:-2] if str(last).startswith("literal['") else "")
        if not place or not kind or detail["type"] not in _PLAIN:
            yield detail
        elif tuple(place) in groups:
            groups[tuple(place)]["msg"] += f" or {kind}"
        else:
            groups[tuple(place)] = {**detail, "loc": tuple(place), "msg": f"Input should be {kind}"}
    yield from groups.values()


def _said(detail: ErrorDetails) -> str:
    """Return pydantic's message without Python terms; the message of a validator is unchanged."""
    kind, message, context = detail["type"], detail["msg"], detail.get("ctx", {})
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "input should be an object"
    if kind.startswith("union_tag_"):
        name, known = str(context.get("discriminator", "")).strip("'"), context.get("expected_tags")
        return f"{name} should be one of {known}" if known else f"{name} is missing"
    message = message.replace(" after validation,", ",").replace("Tuple should", "List should")
    return message[:1].lower() + message[1:]


def _advice(model: type[BaseModel] | None, name: str) -> str:
    known = list(model.model_fields) if model is not None else []
    from difflib import get_close_matches  # only needed for errors

    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"


def _model_at(model: type[BaseModel] | None, path: Iterable[int | str]) -> type[BaseModel] | None:
    """Return the model of the object at a location in the arguments."""
    for part in path:
        field = model.model_fields.get(str(part)) if model is not None and isinstance(part, str) else None
        if field is not None:
            model = next(_models(field.annotation), None)
    return model


def _models(wanted: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation, including those of list items."""
    if isinstance(wanted, type) and not get_args(wanted) and issubclass(wanted, BaseModel):
        yield wanted
    for member in get_args(wanted):
        yield from _models(member)


def _invalid(tool: str, message: str) -> ToolError:
    return ToolError(f"{tool}: {message}", code="invalid_args")


def _kind(value: object) -> str:
    names = {str: "text", bool: "boolean", NoneType: "null", list: "list", int: "number", float: "number"}
    return names.get(type(value), type(value).__name__)


@lru_cache(maxsize=512)
def _schema(model: type[BaseModel]) -> JsonObject:
    schema = model.model_json_schema(by_alias=False)
    definitions = schema.pop("$defs", {})
    simple = _simplify(_inline(schema, definitions))
    assert isinstance(simple, dict)
    simple.pop("description", None)
    simple.setdefault("properties", {})
    return simple


def schema_of(model: type[BaseModel]) -> JsonObject:
    """Return a model's JSON schema in the form that every provider accepts: no references, titles or ``null`` types."""
    return copy.deepcopy(_schema(model))


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    """Inline each definition where it is used. Recursive models fail with a recursion error."""
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _inline({**definitions[node["$ref"].rpartition("/")[2]], **rest}, definitions)
    return {key: _inline(value, definitions) for key, value in node.items()}


def _simplify(node: Any, *, is_schema: bool = True) -> Any:
    """Remove titles, and ``null`` from optional values: they can be left out instead."""
    if isinstance(node, list):
        return [_simplify(item) for item in node]
    if not isinstance(node, dict):
        return node
    if not is_schema:  # the properties of an object: its keys are names
        return {key: _simplify(value) for key, value in node.items()}
    kept = dict(node)
    choices = [choice for choice in kept.get("anyOf", ()) if choice != {"type": "null"}]
    if "anyOf" in kept and len(choices) < len(kept["anyOf"]):
        kept.pop("anyOf")
        kept = {**choices[0], **kept} if len(choices) == 1 else {"anyOf": choices, **kept}
        if kept.get("default", ...) is None:
            kept.pop("default")
    literal = {"default", "enum", "const", "examples"}
    return {
        key: value if key in literal else _simplify(value, is_schema=key != "properties")
        for key, value in kept.items()
        if key != "title"
    }
