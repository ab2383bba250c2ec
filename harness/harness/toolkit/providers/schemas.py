"""JSON schemas in the form that every API accepts, from harness's own models, plugins and MCP servers.

References are resolved, ``allOf`` is merged, the top level is an object without alternatives, arrays have ``items``,
and enumerations are lists of JSON values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from ..values import Json, JsonObject

__all__ = ["Schema", "choices", "plain"]

Schema = dict[str, Any]
"""A JSON schema."""

NODES = 20_000
"""Maximum parts of one schema; references to each other could expand without limit."""
_META = frozenset({"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "$ref", "allOf"})
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LITERAL = frozenset({"default", "enum", "const", "examples", "required", "description"})


def plain(schema: JsonObject) -> Schema:
    """Return the schema of a tool's arguments in that form."""
    top = _Resolver(cast(Mapping[str, Any], schema)).node(schema, ())
    for word in ("anyOf", "oneOf"):
        top = _flat(top, word)
    for word in ("not", "enum", "const", "if", "then", "else"):
        top.pop(word, None)
    return {**top, "type": "object", "properties": top.get("properties", {})}


@dataclass(slots=True)
class _Resolver:
    """Inlines each definition where it is used."""

    root: Mapping[str, Any]
    left: int = NODES

    def node(self, value: object, inside: tuple[str, ...]) -> Schema:
        """Return one schema. ``inside`` are the references that led here, to detect recursion."""
        self.left -= 1
        if not isinstance(value, Mapping) or self.left < 0:
            return {}  # true and false are also schemas, but APIs do not accept them
        reference = value.get("$ref")
        found: Schema = {}
        if isinstance(reference, str):
            found = {} if reference in inside else self.node(_at(self.root, reference), (*inside, reference))
        own = {key: self._member(key, item, inside) for key, item in value.items() if key not in _META}
        for part in [own, *[self.node(part, inside) for part in _list(value.get("allOf"))]]:
            found = _merged(found, part)
        return _array(found)

    def _member(self, key: str, value: object, inside: tuple[str, ...]) -> Any:
        if key == "enum":
            return choices(value)
        if key in _LITERAL:
            return value
        if key in _BY_NAME:
            items = value.items() if isinstance(value, Mapping) else ()
            return {str(name): self.node(item, inside) for name, item in items}
        if isinstance(value, Mapping):
            return self.node(value, inside)
        if key in {"anyOf", "oneOf", "prefixItems", "items"} and isinstance(value, list | tuple):
            return [self.node(item, inside) for item in value]
        return value


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _at(root: Mapping[str, Any], reference: str) -> object:
    """Return what ``#/$defs/Name`` refers to; None for anything outside of the schema."""
    place: object = root
    for part in reference.removeprefix("#").split("/")[1:] if reference.startswith("#") else [reference]:
        name = part.replace("~1", "/").replace("~0", "~")
        place = place.get(name) if isinstance(place, Mapping) else None
    return place


def _merged(one: Schema, other: Schema) -> Schema:
    """Return a schema that requires both."""
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        both["required"] = [*dict.fromkeys([*one["required"], *other["required"]])]
    return both


def _flat(top: Schema, word: str) -> Schema:
    """Merge the alternatives of the top-level object; what only some of them require is optional."""
    alternatives = [item for item in top.get(word, ()) if isinstance(item, dict)]
    rest = {key: value for key, value in top.items() if key != word}
    if not alternatives:
        return rest
    joined: Schema = {}
    for item in alternatives:
        joined = _merged(joined, {"properties": item.get("properties", {})})
    needed = [set(item.get("required", ())) for item in alternatives]
    always = sorted(set.intersection(*needed))
    return _merged(_merged(joined, {"required": always} if always else {}), rest)


def _array(schema: Schema) -> Schema:
    """Give every array ``items``; a tuple's items may be any of its members."""
    members = schema.pop("prefixItems", None)
    members = schema.pop("items") if isinstance(schema.get("items"), list) else members
    if members:
        different = [item for number, item in enumerate(members) if item not in members[:number]]
        schema["items"] = different[0] if len(different) == 1 else {"anyOf": different}
    kinds = schema.get("type")
    if kinds == "array" or (isinstance(kinds, list | tuple) and "array" in kinds):
        schema.setdefault("items", {})
    return schema


def choices(value: object) -> list[Json]:
    """Return the values of an enumeration, given as a list, a tuple, a set or an ``Enum``."""
    if not isinstance(value, Iterable):
        return []
    items = sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
    return [item.value if isinstance(item, Enum) else item for item in items]
