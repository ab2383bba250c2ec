"""From what a model wrote to validated arguments, and the schema that it was shown."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, AliasChoices, BaseModel, Field

from harness.errors import ToolError
from harness.toolkit import Arguments, MutatingArguments
from harness.toolkit.arguments import coerce, decode, parse_arguments, schema_of


class Item(BaseModel):
    name: str
    count: int | None = None


class Wanted(Arguments):
    """Everything that models get wrong."""

    path: str = Field(validation_alias=AliasChoices("path", "file_path", "file"), description="where")
    lines: list[int] = Field([])
    names: list[str] = Field([])
    limit: int | None = Field(None, ge=1)
    ratio: float = 1.0
    deep: bool = False
    mode: Literal["a", "b"] = "a"
    wait: bool | float | str = True
    item: Item | None = None


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"path": "x"}, {"path": "x"}),
        ({"file_path": "x"}, {"path": "x"}),
        ({"path": "x", "file": "x"}, {"path": "x"}),
        ({"path": "x", "limit": "3"}, {"limit": 3}),
        ({"path": "x", "limit": 3.0}, {"limit": 3}),
        ({"path": "x", "limit": None}, {"limit": None}),
        ({"path": "x", "ratio": "0.5"}, {"ratio": 0.5}),
        ({"path": "x", "deep": "true"}, {"deep": True}),
        ({"path": "x", "deep": "False"}, {"deep": False}),
        ({"path": "x", "lines": 3}, {"lines": [3]}),
        ({"path": "x", "lines": "[1, 2]"}, {"lines": [1, 2]}),
        ({"path": "x", "names": "one"}, {"names": ["one"]}),
        ({"path": "x", "names": '["one", "two"]'}, {"names": ["one", "two"]}),
        ({"path": "x", "wait": "30s"}, {"wait": "30s"}),
        ({"path": "x", "wait": False}, {"wait": False}),
        ({"path": "3"}, {"path": "3"}),
        ({"path": "x", "item": '{"name": "n"}'}, {"item": Item(name="n")}),
    ],
)
def test_what_models_write_is_taken_as_the_schema_means_it(raw: Any, expected: dict[str, Any]) -> None:
    found = parse_arguments(Wanted, raw, "t")
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "t: path: required"),
        ({"path": "x", "limt": 3}, "limt: no such argument; did you mean 'limit'?"),
        ({"path": "x", "zzz": 3}, "zzz: no such argument; known: path, lines"),
        ({"path": "x", "limit": 0}, "limit: input should be greater than or equal to 1"),
        ({"path": "x", "limit": "three"}, "limit: input should be a valid integer"),
        ({"path": "x", "limit": 2.5}, "limit: input should be a valid integer"),
        ({"path": "x", "deep": "perhaps"}, "deep: "),
        ({"path": "x", "mode": "c"}, "mode: input should be 'a' or 'b'"),
        ({"path": "x", "file": "y"}, "path: given twice, under two names, with different values"),
        ({"path": 3}, "path: input should be a valid string"),
        ({"path": None}, "path: input should be a valid string"),
        ({"path": "x", "item": "y"}, "t: item: input should be an object"),
        ({"path": "x", "wait": None}, "t: wait: input should be true or false or a number or a text"),
        ({"path": "x", "wait": [1], "limit": 0}, "wait: input should be true or false or a number or a text"),
        ({"path": "x", "lines": [1, [2]]}, "t: lines.1: input should be a valid integer"),
    ],
)
def test_each_mistake_is_said_in_a_line(raw: Any, message: str) -> None:
    with pytest.raises(ToolError) as caught:
        parse_arguments(Wanted, raw, "t")
    assert message in str(caught.value)
    assert caught.value.code == "invalid_args"


def test_a_check_of_a_tool_s_own_is_said_in_its_own_words() -> None:
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("Odd numbers are for others")
        return value

    class Checked(BaseModel):
        number: Annotated[int, AfterValidator(even)]

    with pytest.raises(ToolError) as caught:
        parse_arguments(Checked, {"number": 3}, "t")
    assert str(caught.value) == "t: number: Odd numbers are for others"


def test_several_mistakes_stay_apart_where_a_message_becomes_one_line() -> None:
    with pytest.raises(ToolError) as caught:
        parse_arguments(Wanted, {"pth": "x", "limit": 0}, "t")
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert all(line.endswith(";") for line in lines[:-1])
    assert not lines[-1].endswith(";")


@pytest.mark.parametrize("text", ["{", "[]", "3", "null", '{"a": 1, "a": 2}', "[" * 100_000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ToolError) as caught:
        decode(text, "t")
    assert caught.value.code == "invalid_args"


@pytest.mark.parametrize(("text", "value"), [("", {}), ("  ", {}), ('{"a": [1]}', {"a": [1]}), ({"a": 1}, {"a": 1})])
def test_an_object_is_an_object_as_text_or_not(text: Any, value: Any) -> None:
    assert decode(text, "t") == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=5,
)


@given(value=JSON, wanted=st.sampled_from([int, str, float, bool, list[int], list[str], str | None, dict[str, int]]))
def test_coercion_never_fails_and_is_done_after_once(value: Any, wanted: Any) -> None:
    once = coerce(value, wanted)
    assert coerce(once, wanted) == once


@given(raw=st.dictionaries(st.sampled_from([*Wanted.model_fields, "file_path", "other"]), JSON))
def test_arguments_are_valid_or_refused_and_nothing_else(raw: Any) -> None:
    with suppress(ToolError):
        assert set(parse_arguments(Wanted, raw, "t").model_dump()) == set(Wanted.model_fields)


def test_the_schema_is_plain_and_shows_no_aliases() -> None:
    schema: Any = schema_of(Wanted)
    text = json.dumps(schema)
    assert (schema["type"], schema["required"], schema["additionalProperties"]) == ("object", ["path"], False)
    assert schema["properties"]["path"] == {"type": "string", "description": "where"}
    assert schema["properties"]["limit"] == {"type": "integer", "minimum": 1}
    assert schema["properties"]["lines"] == {"type": "array", "items": {"type": "integer"}, "default": []}
    assert schema["properties"]["mode"]["enum"] == ["a", "b"]
    assert schema["properties"]["item"]["properties"]["name"] == {"type": "string"}
    assert [word for word in ("$ref", "$defs", '"title"', "file_path", "null") if word in text] == []


class Titled(Arguments):
    title: str = "x"
    properties: list[str] = Field([])


def test_an_argument_may_be_called_as_a_word_of_schemas() -> None:
    assert set(schema_of(Titled)["properties"]) == {"title", "properties"}  # type: ignore[arg-type]  # an object


def test_each_schema_is_a_copy_of_its_own() -> None:
    schema_of(Wanted)["properties"].clear()  # type: ignore[union-attr]  # an object
    assert schema_of(Wanted)["properties"]


class Change(MutatingArguments):
    path: str


def test_what_the_caller_says_of_a_change_is_optional() -> None:
    assert schema_of(Change)["required"] == ["path"]
    assert parse_arguments(Change, {"path": "x", "risk": "low", "why": "tidy"}, "t").why == "tidy"
    with pytest.raises(ToolError):
        parse_arguments(Change, {"path": "x", "risk": "none"}, "t")
