"""``transform``: its steps, its three sources, and what each of them means to the policy."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.testing.memory import MemoryBackend, ScriptedReply
from harness.toolkit import CallOutcome, CallStatus, ToolCall
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.providers import provider
from harness.toolkit.values import Category, Json, Subject
from harness_tools.dev.transform import SIZE, Transform, parse_json, text_of, value_at

PEOPLE = [
    {"name": "ann", "age": 30, "at": {"city": "Bern"}, "tags": ["a", "b"]},
    {"name": "bob", "age": 4, "at": {"city": "Rome"}, "tags": []},
    {"name": "cid", "age": 30, "at": None},
]


async def call(made: Toolbox, *steps: Any, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(100):
        return await made.executor.call(ToolCall("transform", {**arguments, "pipeline": list(steps)}))


async def result(*steps: Any, data: Any = PEOPLE) -> Any:
    outcome = await call(toolbox([Transform()]), *steps, input=json.dumps(data))
    assert not outcome.result.is_error, outcome.result.text
    made: Any = outcome.result.data
    assert json.loads(outcome.result.content[0].text) == made["result"]  # type: ignore[union-attr]  # the first is text
    return made["result"]


def names(items: Any) -> list[str]:
    return [item["name"] for item in items]


# -- steps


async def test_groups_come_in_the_order_of_their_first_items_and_are_undone() -> None:
    groups = await result({"op": "group_by", "key": "age"})
    assert [(group["key"], names(group["items"])) for group in groups] == [("30", ["ann", "cid"]), ("4", ["bob"])]
    again = await result(
        {"op": "group_by", "key": "age"}, {"op": "sort_by", "key": "key", "desc": True}, {"op": "flatten"}
    )
    assert names(again) == ["bob", "ann", "cid"]


async def test_sorting_is_stable_and_knows_numbers_from_texts() -> None:
    assert names(await result({"op": "sort_by", "key": "age"})) == ["bob", "ann", "cid"]
    assert names(await result({"op": "sort_by", "key": "age", "desc": True})) == ["ann", "cid", "bob"]
    mixed = [{"v": value} for value in ("10", 9, None, True, 2.5, [1], "b")] + [{}]
    values = [item.get("v", "none") for item in await result({"op": "sort_by", "key": "v"}, data=mixed)]
    assert values == [None, "none", 2.5, 9, "10", [1], "b", True]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ({"key": "age", "eq": "30"}, ["ann", "cid"]),
        ({"key": "age", "eq": 30}, ["ann", "cid"]),
        ({"key": "age", "eq": 30.0}, ["ann", "cid"]),
        ({"key": "age", "neq": 30}, ["bob"]),
        ({"key": "name", "contains": "i"}, ["cid"]),
        ({"key": "tags", "contains": "a"}, ["ann"]),
        ({"key": "at.city", "eq": "Rome"}, ["bob"]),
        ({"key": "at", "exists": True}, ["ann", "bob"]),
        ({"key": "at", "exists": "false"}, ["cid"]),
        ({"key": "nothing", "exists": True}, []),
        ({"key": "tags.1", "eq": "b", "neq": None, "exists": None}, ["ann"]),
    ],
)
async def test_a_filter_keeps_what_its_one_condition_says(condition: Any, found: list[str]) -> None:
    assert names(await result({"op": "filter", **condition})) == found


async def test_counting_flattening_and_formatting() -> None:
    assert await result({"op": "count"}) == 3
    assert await result({"op": "count", "key": "age"}) == [{"key": "30", "count": 2}, {"key": "4", "count": 1}]
    assert await result({"op": "count"}, data={"a": 1}) == 1
    assert await result({"op": "count"}, data="x") == 1
    nested = [[1, [2]], {"items": [3], "key": "like a group"}, 4, []]
    assert await result({"op": "flatten"}, data=nested) == [1, [2], {"items": [3], "key": "like a group"}, 4]
    template = "{{{name}}} {at.city}|{nothing}|{tags} {"
    assert await result({"op": "format", "template": template}) == [
        '{ann} Bern||["a", "b"] {',
        "{bob} Rome||[] {",
        "{cid} ||  {".replace("  ", " "),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (True, "true"), (2.0, "2"), (2.5, "2.5"), (1e300, "1e+300"), ("x", "x"), ([1], "[1]")],
)
def test_values_have_one_text(value: Json, text: str) -> None:
    assert text_of(value) == text


def test_paths_lead_into_objects_and_lists() -> None:
    item: Json = {"a": {"b": [{"c": 1}]}, "a.b": 2, "0": {"x": 3}}
    assert [value_at(item, path) for path in ("a.b", ".a.b", "a.b.0", "a", "0.x", "", "a.")] == [
        *(2, 2, {"c": 1}, {"b": [{"c": 1}]}, 3, None, None)
    ]
    assert value_at(item, "a.b.0.c") == 1
    assert [value_at([1], path) for path in ("0", "1", "-1", "99999999999999999999", "²")] == [
        1,
        None,
        None,
        None,
        None,
    ]


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["k", "items", "key"]), inner, max_size=3)
    ),
    max_leaves=12,
)
STEPS = st.sampled_from(
    [
        {"op": "group_by", "key": "k"},
        {"op": "sort_by", "key": "k"},
        {"op": "sort_by", "key": "items.0", "desc": True},
        {"op": "filter", "key": "k", "exists": True},
        {"op": "filter", "key": "key", "contains": ""},
        {"op": "count", "key": "k"},
        {"op": "flatten"},
        {"op": "format", "template": "{k}-{items.0}{"},
    ]
)


@given(st.lists(JSONS, max_size=8), st.lists(STEPS, min_size=1, max_size=4))
async def test_any_list_goes_through_any_steps(items: list[Any], steps: list[Any]) -> None:
    await result(*steps, data=items)


# -- mistakes


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "pipeline: "),
        ([{}], "pipeline.0: "),
        ([3], "pipeline.0: "),
        ([{"op": "map"}], "op should be one of 'group_by'"),
        ([{"op": "count"}, {"op": "group_by"}], "pipeline.1.group_by.key: required"),
        ([{"op": "filter", "key": "a"}], "pipeline.0.filter: .*not none"),
        ([{"op": "filter", "key": "a", "eq": 1, "neq": 2}], "not eq and neq"),
        ([{"op": "sort_by", "kee": "a"}], "no such argument 'kee'; did you mean 'key'"),
        ([{"op": "format", "template": ""}], "template: "),
        ([{"op": "format", "template": "x" * 10_001}], "template: "),
        ([{"op": "count"}] * 101, "pipeline: "),
    ],
)
async def test_a_step_that_is_wrong_is_named(steps: Any, message: str) -> None:
    outcome = await call(toolbox([Transform()]), *steps, input="[]")
    assert outcome.result.error_code == "invalid_args"
    assert re.search(message, outcome.result.text), outcome.result.text


@pytest.mark.parametrize("arguments", [{}, {"input": "[]", "file": "a"}, {"exec": "x", "file": "a"}])
async def test_there_is_one_source(arguments: Any) -> None:
    outcome = await call(toolbox([Transform()]), {"op": "count"}, **arguments)
    assert "give one of exec, file and input" in outcome.result.text


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", "bad_json", "is empty"),
        ("[1,", "bad_json", "line 1 column"),
        ("[1] x", "bad_json", "found 'x'"),
        ("[NaN]", "bad_json", "NaN"),
        ("[1e999]", "bad_json", "out of the range of numbers"),
        (f"[{'9' * 5_000}]", "bad_json", "not JSON"),
        ("[" * 100_000, "bad_json", "nested too deeply"),
        ('{"items": [], "kind": 1}', "bad_step", "step 1 (flatten): it needs a list, but the data is an object"),
        ('{"items": [], "kind": 1}', "bad_step", "the keys items, kind"),
        ("3", "bad_step", "step 1 (flatten): it needs a list, but the data is a number"),
        ("null", "bad_step", "the data is null"),
    ],
)  # fmt: skip
async def test_data_that_does_not_fit_is_told(text: str, code: str, message: str) -> None:
    outcome = await call(toolbox([Transform()]), {"op": "flatten"}, input=text)
    assert (outcome.result.error_code, outcome.error) == (code, None)
    assert message in outcome.result.text


async def test_the_step_that_cannot_go_on_is_named() -> None:
    outcome = await call(toolbox([Transform()]), {"op": "flatten"}, {"op": "count"}, {"op": "flatten"}, input="[]")
    assert outcome.result.text == "step 3 (flatten): it needs a list, but the data is a number"


def test_one_value_in_each_line_is_a_list() -> None:
    assert parse_json('{"a": 1}\n\n{"a": 2}\n') == [{"a": 1}, {"a": 2}]
    with pytest.raises(ValueError, match="Extra data"):
        parse_json('{"a": 1}\n{"a": \n')


# -- limits


async def test_a_result_that_is_too_long_loses_whole_items_and_says_how_many() -> None:
    outcome = await call(toolbox([Transform()]), {"op": "flatten"}, input=json.dumps([{"n": "é" * 100}] * 5_000))
    data: Any = outcome.result.data
    first, note = (block.text for block in outcome.result.content)  # type: ignore[union-attr]  # both are texts
    assert json.loads(first) == data["result"]
    assert (data["count"], data["left_out"]) == (5_000, 5_000 - len(data["result"]))
    assert note.startswith(f"[the first {len(data['result'])} of 5000 items;")
    assert 50 < len(data["result"]) < 5_000
    one = await call(toolbox([Transform()]), {"op": "flatten"}, input=json.dumps(["x" * 100_000]))
    assert "the first item alone is too long" in one.result.text


async def test_a_template_makes_no_more_than_there_is_room_for() -> None:
    data = json.dumps([{"a": "x" * 100_000}] * 100)
    outcome = await call(toolbox([Transform()]), {"op": "format", "template": "{a}" * 3_000}, input=data)
    assert "step 1 (format): it would produce more than" in outcome.result.text


async def test_what_is_nested_deeply_is_an_error_and_no_crash() -> None:
    for depth in (50, 99, 101, 105, 300, 600, 900):
        outcome = await call(toolbox([Transform()]), {"op": "sort_by", "key": "a"}, input="[" * depth + "]" * depth)
        assert outcome.error is None
        assert json.dumps(outcome.result.data).count("[") <= 101
        assert (outcome.result.data is None) == (outcome.result.error_code == "too_deep")
    assert outcome.result.is_error or "too long" in outcome.result.text


# -- sources


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    async with connect("local:") as opened:
        yield opened


def test_each_call_is_judged_as_what_it_does() -> None:
    tool = Transform()
    step: Json = [{"op": "count"}]
    run, read, inside = (tool.parse({name: "x", "pipeline": step}) for name in ("exec", "file", "input"))
    assert [tool.traits_of(args).mutating for args in (run, read, inside)] == [True, False, False]
    assert [tool.traits_of(args).category for args in (run, read, inside)] == [
        Category.SHELL,
        Category.FILE_READ,
        Category.NONE,
    ]
    assert [tool.traits_of(args).cacheable for args in (run, read, inside)] == [False, True, False]
    assert tool.subjects(run) == (Subject("command", "x"),)
    assert tool.subjects(read) == (Subject("read", "x"),)
    assert tool.subjects(inside) == (Subject("other", "transform"),)
    assert tool.traits.mutating


async def test_the_policy_asks_for_a_command_that_may_change_something(here: ExecutionContext, tmp_path: Path) -> None:
    made = toolbox([Transform()], execution=here)
    made.executor = replace(made.executor, services=replace(made.executor.services, policy=RulePolicy()))
    count = {"op": "count"}
    (tmp_path / "a.json").write_text("[1, 2]")
    (tmp_path / ".env").write_text("[1]")
    assert (await call(made, count, exec=f"touch {tmp_path}/x; echo '[]'")).status is CallStatus.DENIED
    assert not (tmp_path / "x").exists()
    assert (await call(made, count, exec=f"cat {tmp_path}/a.json")).result.text == "2"
    assert (await call(made, count, file=f"{tmp_path}/a.json")).result.text == "2"
    assert (await call(made, count, input="[1]")).result.text == "1"
    assert (await call(made, count, file=f"{tmp_path}/.env")).status is CallStatus.DENIED


async def test_a_command_is_run_and_its_failure_told(here: ExecutionContext, tmp_path: Path) -> None:
    made = toolbox([Transform()], execution=here)
    flat = {"op": "flatten"}
    good = await call(made, flat, exec="printf '[1,\\n2]'; echo 'a warning' >&2")
    assert good.result.text == "[\n  1,\n  2\n]\nstderr:\na warning"
    assert made.ledger.ended[-1][3] != ""  # the job
    failed = await call(made, flat, exec="echo '[1]'; echo reason >&2; exit 3")
    assert (failed.result.error_code, "reason" in failed.result.text) == ("exit_code", True)
    much = await call(made, flat, exec="echo begin; head -c 3000000 /dev/zero | tr '\\0' x; echo end; exit 4")
    facts: Any = much.result.data
    assert (much.result.error_code, facts["exit_code"]) == ("exit_code", 4)
    assert facts["truncated"] == 3_000_000 + len("begin\nend\n") - (8 << 10)
    assert f"xend\n[{facts['truncated']} of " in much.result.text
    empty = await call(made, flat, exec="true")
    assert empty.result.text == "the command's output is empty: it must be a JSON list"
    long = await call(made, flat, exec=f"head -c {SIZE + 2} /dev/zero | tr '\\0' ' '")
    assert long.result.error_code == "too_large"
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf[1]")
    assert (await call(made, {"op": "count"}, file="~/bom.json")).result.text == "1"
    assert (await call(made, flat, file="~/missing")).result.error_code == "file_not_found"
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(SIZE + 1)
    assert (await call(made, flat, path="~/huge")).result.error_code == "too_large"


async def test_a_command_that_is_lost_is_told_as_such() -> None:
    from harness.results import Status

    made = toolbox([Transform()], backend=MemoryBackend({"x": ScriptedReply("[1", status=Status.TIMED_OUT)}))
    outcome = await call(made, {"op": "count"}, exec="x")
    assert (outcome.status, outcome.result.error_code) == (CallStatus.TIMEOUT, "timed_out")
    assert "[1" in outcome.result.text


# -- schemas


def test_the_pipeline_is_said_to_every_provider_with_its_items() -> None:
    tool = Transform()
    assert "discriminator" not in json.dumps(tool.schema)
    assert "$" not in json.dumps(tool.schema)
    strict: Any = provider("openai-strict").definitions([tool])[0]
    assert strict["function"]["strict"]
    gemini: Any = provider("gemini").definitions([tool])[0]
    pipeline = gemini["functionDeclarations"][0]["parameters"]["properties"]["pipeline"]
    ops = [item["properties"]["op"]["enum"] for item in pipeline["items"]["anyOf"]]
    assert ops == [["group_by"], ["sort_by"], ["filter"], ["count"], ["flatten"], ["format"]]
