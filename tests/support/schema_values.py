"""Arguments for any tool, made from its schema: fitting ones with hostile texts, and such as do not fit."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from harness.toolkit.values import Json, JsonObject

WORDS = "- -- -rf --pre=id --output=/tmp/x .. ../../etc/passwd / ~ ~root $(id) `id` * **/* [ ("
MORE = "(a+)+$ \\ {a,b} 0 -1 1e9 true 10m HEAD"
URLS = "http://127.0.0.1/ http://[::ffff:169.254.169.254]/ file:///etc/passwd"
NASTY = (
    *("", " ", "'; id; '", "a\nb", "a\0b", "\x1b]0;x\x07", "\udcff", "é", "\u202e", "x" * 5000, "9" * 20),
    *WORDS.split(),
    *MORE.split(),
    *URLS.split(),
)
"""Texts that mean something to a shell, a program, a terminal or a parser."""
TEXTS = st.sampled_from(NASTY) | st.text(max_size=20)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
"""Any JSON value."""


def values_of(schema: JsonObject) -> st.SearchStrategy[Any]:
    """Objects that mostly fit the schema."""
    return _value(dict(schema), dict(schema))


def junk(schema: JsonObject) -> st.SearchStrategy[Json]:
    """Anything, and objects with the schema's names and values of any kind."""
    names = sorted(dict(schema).get("properties", {}))  # type: ignore[arg-type]  # an object, by the form of schemas
    return ANYTHING | st.fixed_dictionaries({}, optional=dict.fromkeys(names, ANYTHING))


def _value(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return st.deferred(lambda: _value(root["$defs"][schema["$ref"].rpartition("/")[2]], root))
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return st.one_of([_value(one, root) for one in schema[key]])
    if "allOf" in schema:
        return _value(schema["allOf"][0], root)
    return _typed(schema, root)


def _typed(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[Any]:
    kind = schema.get("type")
    if kind == "object":
        return _object(schema, root)
    if kind == "array":
        return st.lists(_value(schema.get("items", {}), root), max_size=4)
    if kind == "integer":
        return st.integers(-2, 5) | st.integers(schema.get("minimum", -(10**12)), schema.get("maximum", 10**12))
    simple = {
        "string": TEXTS,
        "number": st.floats(-2, 5) | st.integers(-2, 10**9),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return simple.get(kind or "", ANYTHING)


def _object(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[Any]:
    fields = {name: _value(one, root) for name, one in schema.get("properties", {}).items()}
    required = {name: value for name, value in fields.items() if name in schema.get("required", ())}
    optional = {name: value for name, value in fields.items() if name not in required}
    if not fields:
        return st.dictionaries(TEXTS, TEXTS, max_size=3)
    return st.fixed_dictionaries(required, optional=optional)
