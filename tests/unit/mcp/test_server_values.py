"""What the server says of tools and outcomes, address by address and field by field."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.mcp.server.protocol_types import (
    CALL_ID,
    STATUS,
    handle_note,
    log_uri,
    plain,
    result_of,
    running_job,
    title_of,
    tool_of,
)
from harness.mcp.server.resources import page_of, parse_uri, screen_uri
from harness.toolkit import (
    Arguments,
    CallOutcome,
    CallStatus,
    Category,
    Image,
    Text,
    ToolCall,
    ToolContext,
    ToolResult,
    tool,
)

CALL = ToolCall("look", {}, call_id="c1")


class Look(Arguments):
    """Look at a thing."""

    path: str


def made(**traits: Any) -> Any:
    @tool(Look, name="look_at-it", **traits)
    async def look(args: Look, ctx: ToolContext) -> ToolResult:
        return ToolResult.of("")

    return look


@pytest.mark.parametrize(
    ("traits", "read_only", "destructive", "open_world"),
    [
        ({"category": Category.FILE_READ}, True, False, False),
        ({"category": Category.FILE_WRITE, "mutating": True}, False, True, False),
        ({"category": Category.SHELL, "mutating": True}, False, True, True),
        ({"category": Category.NETWORK}, True, False, True),
        ({"category": Category.MCP, "mutating": True}, False, True, True),
        ({"category": Category.NONE, "mutating": True}, False, False, False),
    ],
)
def test_hints_follow_from_the_traits(
    traits: dict[str, Any], read_only: bool, destructive: bool, open_world: bool
) -> None:
    hints = tool_of(made(**traits)).annotations
    assert hints is not None
    assert (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint) == (read_only, destructive, open_world)
    assert hints.idempotent_hint == read_only


def test_a_definition_has_the_name_a_title_the_description_and_the_schema() -> None:
    found = tool_of(made())
    assert (found.name, found.title, found.description) == ("look_at-it", "Look at it", "Look at a thing.")
    assert found.input_schema["type"] == "object"
    assert found.input_schema["required"] == ["path"]
    assert found.output_schema is None
    assert title_of("x") == "X"


def test_texts_images_and_data_become_blocks_and_structured_content() -> None:
    result = ToolResult((Text("a"), Image(b"\x89PNG", "image/png")), data={"n": 1}, metadata={"secret": "s"})
    found = result_of(CallOutcome(CALL, result, CallStatus.OK)).model_dump(by_alias=True, exclude_none=True)
    assert found["content"] == [
        {"type": "text", "text": "a"},
        {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
    ]
    assert found["structuredContent"] == {"n": 1}
    assert found["isError"] is False
    assert found["_meta"] == {CALL_ID: "c1", STATUS: "ok"}
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize(
    ("data", "structured"), [(None, None), ([1], {"result": [1]}), ("x", {"result": "x"}), ({}, {})]
)
def test_data_that_is_no_object_is_put_into_one(data: Any, structured: Any) -> None:
    assert result_of(CallOutcome(CALL, ToolResult((), data=data), CallStatus.OK)).structured_content == structured


def test_a_result_without_content_says_so_and_an_error_is_marked() -> None:
    failed = result_of(CallOutcome(CALL, ToolResult.failure("denied", "not allowed"), CallStatus.DENIED))
    assert failed.is_error
    assert failed.meta is not None
    assert failed.meta[STATUS] == "denied"
    (block,) = result_of(CallOutcome(CALL, ToolResult(), CallStatus.OK)).content
    assert block.model_dump()["text"] == "(no output)"


@given(st.binary())
def test_whatever_a_command_put_out_can_be_sent(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    outcome = CallOutcome(CALL, ToolResult.of(text, data={text: [text]}), CallStatus.OK)
    sent = result_of(outcome).model_dump_json(by_alias=True)
    assert json.loads(sent)["content"][0]["text"] == plain(text)


@pytest.mark.parametrize("text", ["plain", "größer", "\N{PILE OF POO}"])
def test_text_that_is_unicode_is_sent_as_it_is(text: str) -> None:
    assert plain(text) == text


# -- addresses


@pytest.mark.parametrize(
    ("uri", "tool_name", "arguments"),
    [
        ("harness://jobs", "resource_jobs", {}),
        ("harness://describe", "resource_describe", {}),
        ("harness://job/7/log", "resource_log", {"job_id": "7"}),
        ("harness://job/7/log?offset=10&limit=5", "resource_log", {"job_id": "7", "offset": 10, "limit": 5}),
        ("harness://job/a%2Fb/log", "resource_log", {"job_id": "a/b"}),
        ("harness://pane/main/screen", "resource_screen", {"pane": "main"}),
        ("harness://pane/%250/screen", "resource_screen", {"pane": "%0"}),
    ],
)
def test_an_address_stands_for_a_call(uri: str, tool_name: str, arguments: dict[str, Any]) -> None:
    place = parse_uri(uri)
    assert (place.tool, place.arguments, place.uri) == (tool_name, arguments, uri)


@pytest.mark.parametrize(
    "uri",
    [
        *("", "jobs", "file:///etc/passwd", "harness://", "harness://jobs/", "harness://jobs?x=1", "harness://jobs#x"),
        *("harness://job//log", "harness://job/7", "harness://job/7/log/..", "harness://job/7/log?offset=-1"),
        *("harness://job/7/log?offset=1&offset=2", "harness://job/7/log?offset=²", "harness://job/7/log?size=1"),
        *("harness://job/%ff/log", "harness://pane//screen", "harness://pane/x/screen?y=1", "harness://[/x"),
        "harness://job/7/log?offset",
    ],
)
def test_any_other_address_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"resource|offset and limit"):
        parse_uri(uri)


@given(st.text(min_size=1))
def test_every_name_of_a_pane_and_id_of_a_job_has_an_address(name: str) -> None:
    assert parse_uri(screen_uri(name)).arguments == {"pane": name}
    assert parse_uri(log_uri(name)).arguments == {"job_id": name}


@given(st.text())
def test_no_address_breaks_the_parser(uri: str) -> None:
    with suppress(ValueError):
        assert parse_uri(f"harness://{uri}").tool.startswith("resource_")


# -- pages of a log


@given(st.text(), st.integers(1, 40))
def test_pages_put_together_are_the_log(text: str, limit: int) -> None:
    data, pages, at = text.encode(), "", 0
    while at < len(data):
        page, used = page_of(data[at : at + limit + 1], limit)
        assert 0 < used <= max(limit, 1)
        pages, at = pages + page, at + used
    if limit >= 4:  # no character is longer
        assert pages == text
    assert at == len(data)


@pytest.mark.parametrize(
    ("data", "limit", "page"),
    [
        (b"one\ntwo\nthree\n", 9, ("one\ntwo\n", 8)),
        (b"one\ntwo", 100, ("one\ntwo", 7)),
        (b"abcdef", 3, ("abc", 3)),
        ("aé".encode()[:2], 100, ("a", 1)),
        ("é".encode()[:1], 100, ("\ufffd", 1)),
        (b"", 10, ("", 0)),
    ],
)
def test_a_page_ends_with_a_line_where_it_can_and_never_inside_a_character(
    data: bytes, limit: int, page: tuple[str, int]
) -> None:
    assert page_of(data, limit) == page


# -- jobs that go on


def test_a_running_job_is_told_with_the_ways_to_follow_it() -> None:
    outcome = CallOutcome(CALL, ToolResult.of("", data={"status": "running", "job_id": "7"}), CallStatus.OK)
    assert running_job(outcome) == "7"
    note = handle_note("7", ["run_shell"])
    assert "harness://job/7/log" in note
    assert "must not be started again" in note
    assert "capture_pane" not in note
    assert "capture_pane" in handle_note("7", ["capture_pane"])


@pytest.mark.parametrize("data", [None, {}, {"status": "completed", "job_id": "7"}, {"status": "running"}, ["running"]])
def test_what_has_ended_has_no_handle(data: Any) -> None:
    outcome = CallOutcome(CALL, ToolResult.of("", data=data), CallStatus.OK)
    assert running_job(outcome) == ""
    failed = ToolResult.failure("unknown", "", data={"status": "running", "job_id": "7"})
    assert running_job(replace(outcome, result=failed)) == ""
