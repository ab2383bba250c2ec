"""The decisions about other servers: lines, names, schemas, restarts, what changed, what a log keeps."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ToolError
from harness.mcp.client.channel import LINES, LineSplitter, OversizedMessage, ServerLog, plain, request_of
from harness.mcp.client.configuration import server_config
from harness.mcp.client.definitions import (
    KnownTools,
    ToolDefinition,
    changed_tools,
    definition_from,
    definition_of,
    is_nameable,
    local_name,
)
from harness.mcp.client.session import RestartBudget, RestartPolicy
from harness.mcp.client.stdio import child_environment
from harness.mcp.client.tool import ArgumentSchema, SchemaError, is_mutating, usable_schema
from harness.toolkit.contract import NAME

# -- lines


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_lines_are_the_same_however_the_stream_is_cut(lines: list[bytes], size: int) -> None:
    stream = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    whole = LineSplitter(30).feed(stream)
    splitter = LineSplitter(30)
    pieces = [found for at in range(0, len(stream), size) for found in splitter.feed(stream[at : at + size])]
    assert pieces == whole
    assert [len(item) if isinstance(item, bytes) else item.size for item in whole] == [
        len(line.replace(b"\n", b"")) for line in lines
    ]
    assert all(len(item) <= 30 if isinstance(item, bytes) else item.size > 30 for item in whole)


@pytest.mark.parametrize(
    ("message", "request_id"),
    [
        ('{"jsonrpc":"2.0","method":"tools/call","id":7,"params":{"x":"%s"}}', 7),
        ('{"method":"tools/call","params":{"result":"%s"},"id":"seven"}', "seven"),
        ('{"jsonrpc":"2.0","method":"m","params":{"id":7,"x":"%s"}}', None),
        ('{"jsonrpc":"2.0","id":1.5,"method":"m","params":{"x":"%s"}}', None),
        ('{"jsonrpc":"2.0","id":7,"result":{"x":"%s"}}', 7),
        ('{"jsonrpc": "2.0", "id": 7, "result": {"x": "%s"}}', 7),
        ('{"id":7,"jsonrpc":"2.0","result":{"x":"%s"}}', 7),
        ('{"result":{"x":"%s"},"jsonrpc":"2.0","id":7}', 7),
        ('{"jsonrpc":"2.0","result":{"x":"%s"},"id":7}', 7),
        ('{"result":{"x":"%s"},"id":7,"jsonrpc":"2.0"}\r', 7),
        ('{"jsonrpc":"2.0","method":"m","params":{"x":"%s","id":7}}', None),
        ('{"jsonrpc":"2.0","id":"seven","result":{"x":"%s"}}', "seven"),
    ],
)
def test_a_message_that_is_too_long_is_known_by_the_request_that_it_answers(
    message: str, request_id: int | str | None
) -> None:
    line = (message % ("x" * 5_000)).encode()
    splitter = LineSplitter(1_000)
    found = [item for at in range(0, len(line), 100) for item in splitter.feed(line[at : at + 100])]
    found += splitter.feed(b'\n{"next": 1}\n')
    assert found == [OversizedMessage(len(line), request_id, '"method"' not in message), b'{"next": 1}']


def test_the_ends_of_a_message_are_not_mixed_up() -> None:
    assert request_of(b'{"a": 1', b', "id": 3}') == 3
    assert request_of(b'{"a": 1', b'"id": 3}') is None


# -- names


@given(st.text(max_size=150), st.sampled_from(["a", "a_b", "web"]))
def test_every_name_is_one_that_providers_take(remote: str, server: str) -> None:
    assert NAME.fullmatch(local_name(server, remote, ("a", "a_b", "web")))


def test_two_tools_never_share_a_name() -> None:
    servers = ("a", "a_b", "a-b")
    remotes = ["x", "b_x", "b.x", "b x", "b/x", "B_x", "_b_x", "x" * 63, "x" * 64, "x" * 65, "ü", "é", "", "b_b_x"]
    names = [local_name(server, remote, servers) for server in servers for remote in remotes]
    assert len(set(names)) == len(names)


def test_a_name_does_not_depend_on_the_other_tools() -> None:
    assert local_name("git", "log") == "git_log"
    assert local_name("git", "a.b") == local_name("git", "a.b", ("git", "other"))
    assert local_name("git", "a.b") != "git_a_b"
    assert (
        local_name("git", "hub_x", ("git", "git_hub")) != local_name("git_hub", "x", ("git", "git_hub")) == "git_hub_x"
    )


@pytest.mark.parametrize(
    ("name", "usable"),
    [
        ("a.b/c", True),
        ("ü", True),
        ("", False),
        ("a b", False),
        ("a\nb", False),
        ("a\u200bb", False),
        ("x" * 129, False),
    ],
)
def test_a_name_must_be_one_that_can_be_told(name: str, usable: bool) -> None:
    assert is_nameable(name) is usable


# -- schemas


def check(schema: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    return ArgumentSchema(usable_schema(schema)).check(values, "t")


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


@pytest.mark.parametrize(
    ("kind", "given", "taken"),
    [
        ({"type": "integer"}, "3", 3),
        ({"type": "integer"}, 3.0, 3.0),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "boolean"}, "true", True),
        ({"type": "array", "items": {"type": "string"}}, "a", ["a"]),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": ["integer", "null"]}, "4", 4),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "4", 4),
        ({"type": ["string", "integer"]}, "4", "4"),
        ({}, "4", "4"),
        ({"enum": ["1", 2]}, "1", "1"),
    ],
)
def test_what_models_write_is_taken_for_what_it_means(kind: dict[str, Any], given: Any, taken: Any) -> None:
    assert check(of(a=kind), {"a": given}) == {"a": taken}


@pytest.mark.parametrize(
    ("schema", "values", "message"),
    [
        (of(a={"type": "integer"}), {"a": "x"}, "t: a: 'x' is not of type 'integer'"),
        (of(a={"type": "number"}), {"a": "nan"}, "'nan' is not of type 'number'"),
        (of(path={}), {"paht": 1}, "paht: no such argument; did you mean 'path'?"),
        (of(path={}), {"zzz": 1}, "zzz: no such argument; known: path"),
        ({**of(a={}, b={}), "required": ["a", "b"]}, {}, "a: required; b: required"),
        ({"type": "object", "required": ["a"]}, {}, "a: required"),
    ],
)
def test_a_mistake_in_the_arguments_is_said(schema: dict[str, Any], values: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolError) as caught:
        check(schema, values)
    assert caught.value.code == "invalid_args"
    assert message in str(caught.value)


def test_a_required_argument_that_is_not_described_is_shown_to_models() -> None:
    assert usable_schema({"required": ["a"]}) == {"required": ["a"], "type": "object", "properties": {"a": {}}}


def test_a_schema_that_refers_to_itself_works_as_deep_as_the_value_goes() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}
    schema = {**of(root={"$ref": "#/$defs/node"}), "$defs": {"node": node}}
    assert check(schema, {"root": {"next": {"n": 1}}})
    with pytest.raises(ToolError, match=r"root.next.next.n: 'x'"):
        check(schema, {"root": {"next": {"next": {"n": "x"}}}})
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"next": deep}
    with pytest.raises(ToolError, match="nested too deeply"):
        check(schema, {"root": deep})


def bomb(width: int) -> dict[str, Any]:
    """Short, and every value would be held against 2**width schemas."""
    parts: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(width)}
    return {**of(a={"$ref": "#/$defs/d0"}), "$defs": {**parts, f"d{width}": {}}}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "array"}, "not an object"),
        ({"type": "object", "properties": []}, "not an object"),
        (of(a={"$ref": "https://example.invalid/x"}), "external reference"),
        (of(a={"$ref": "#/$defs/none"}), "has no target"),
        (of(a={"$ref": "#anchor"}), "has no target"),
        (of(a={"$id": "https://x/", "$ref": "#/$defs/x"}), "ids of their own"),
        ({"type": "object", "$ref": "#"}, "endless reference"),
        ({**of(), "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}, "endless reference"),
        (bomb(40), "take too long"),
        (of(**{f"p{n}": {} for n in range(20_001)}), "more than 20000 parts"),
    ],
)
def test_a_schema_that_cannot_be_worked_off_is_refused(schema: dict[str, Any], message: str) -> None:
    began = time.process_time()
    with pytest.raises(SchemaError, match=message):
        usable_schema(schema)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("schema", [of(a={"type": "nonsense"}), of(a={"minimum": "x"}), of(a={"enum": 5})])
def test_what_is_no_schema_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        ArgumentSchema(usable_schema(schema)).verify()


def test_a_strangers_regular_expressions_are_left_to_the_stranger() -> None:
    slow = {"type": "string", "pattern": "^(a+)+$", "format": "regex"}
    began = time.process_time()
    assert check(of(a=slow), {"a": "a" * 40 + "!"})
    assert check({**of(), "patternProperties": {"^(a+)+$": {}}}, {"a" * 40 + "!": 1})
    assert time.process_time() - began < 2
    with pytest.raises(ToolError, match="pattern: 3 is not"):
        check(of(pattern={"type": "string"}), {"pattern": 3})


def test_a_draft_that_the_schema_names_is_kept_to() -> None:
    schema = {
        **of(a={"type": "number", "minimum": 1, "exclusiveMinimum": True}),
        "$schema": "http://json-schema.org/draft-04/schema#",
    }
    with pytest.raises(ToolError, match="a: 1"):
        check(schema, {"a": 1})


# -- restarts


def test_three_restarts_a_minute_with_growing_pauses_and_no_more() -> None:
    budget = RestartBudget(RestartPolicy())
    assert [budget.next_delay(now) for now in (0.0, 1.0, 2.0, 3.0, 59.9)] == [0.5, 1.0, 2.0, None, None]
    assert budget.next_delay(60.0) == 2.0
    assert budget.next_delay(60.5) is None
    budget.forget()
    assert budget.next_delay(60.6) == 0.5


# -- what is read-only, and what changed


@pytest.mark.parametrize(
    ("settings", "claims", "mutating"),
    [
        ({}, False, True),
        ({}, True, True),
        ({"trust_annotations": True}, True, False),
        ({"trust_annotations": True}, False, True),
        ({"read_only": ["x"]}, False, False),
        ({"read_only": ["y"]}, True, True),
        ({"read_only": True}, False, False),
    ],
)
def test_a_tool_changes_something_unless_somebody_trusted_says_otherwise(
    settings: dict[str, Any], claims: bool, mutating: bool
) -> None:
    config = server_config("s", {"command": "c", **settings}, "file")
    assert is_mutating(config, ToolDefinition("x", read_only=claims)) is mutating


def test_what_is_first_seen_is_accepted_and_later_changes_are_not() -> None:
    first, second = ToolDefinition("a", "old"), ToolDefinition("a", "new")
    assert changed_tools(KnownTools(), [first]) == frozenset()
    known = KnownTools().accepting([first])
    assert changed_tools(known, [first]) == frozenset()
    assert changed_tools(known, [second, ToolDefinition("b")]) == {"a", "b"}
    assert changed_tools(known.accepting([second]), [second]) == frozenset()
    assert changed_tools(KnownTools(damaged=True), [first]) == {"a"}


@pytest.mark.parametrize(
    "other",
    [
        ToolDefinition("b", "text", {"a": 1}, True),
        ToolDefinition("a", "texts", {"a": 1}, True),
        ToolDefinition("a", "text", {"a": 2}, True),
        ToolDefinition("a", "text", {"a": 1}, False),
    ],
)
def test_the_digest_changes_with_all_that_anybody_goes_by(other: ToolDefinition) -> None:
    assert ToolDefinition("a", "text", {"a": 1}, True).digest != other.digest


def test_a_definition_comes_back_from_its_file() -> None:
    definition = ToolDefinition("a", "text", {"type": "object"}, True)
    assert definition_from(json.loads(json.dumps(definition.as_json()))) == definition
    with pytest.raises(ValueError, match="not a tool definition"):
        definition_from({"name": "a"})


def test_what_nobody_can_see_is_not_in_a_description() -> None:
    from mcp.types import Tool

    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    tool = Tool(
        name="a",
        description=f"Read{hidden}\u200b \x1b[8mthis\u202e",
        input_schema={"type": "object", "properties": {"p": {"description": f"x{hidden}", "default": "\u200b"}}},
    )
    definition = definition_of(tool)
    assert definition.description == "Read [8mthis"
    assert definition.schema["properties"] == {"p": {"description": "x", "default": "\u200b"}}


# -- the log and the environment


def test_the_log_is_bounded_and_knows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = ServerLog("x", ["s3cret-value", "1"])
    log.feed(b"key=s3cret-")
    log.feed(b"value 1\n" + b"y" * 10_000 + b"\n\xff\n")
    assert caplog.messages == ["x: key=[redacted] 1", "x: " + "y" * 500, "x: \ufffd"]
    for _ in range(LINES + 50):
        log.feed(b"again\n")
    assert len(caplog.messages) == LINES + 1
    assert "the rest is omitted" in caplog.messages[-1]
    log.feed(b"last \x1b[31mwords s3cret-value")
    assert log.last == "again / last [31mwords [redacted]"


def test_plain_text_keeps_lines_and_letters() -> None:
    assert plain("ä\n\tb\r\x07c") == "ä\n\tbc"


def test_only_the_usual_variables_are_handed_on() -> None:
    ours = {"PATH": "p", "LC_TIME": "C", "AWS_PROFILE": "x", "HARNESS_TARGET": "y", "HOME": "() { :; }", "USER": "u"}
    assert child_environment(ours, {"A": "b", "PATH": "q"}) == {"PATH": "q", "LC_TIME": "C", "USER": "u", "A": "b"}
