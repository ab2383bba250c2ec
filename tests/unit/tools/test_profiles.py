"""Profiles: what the model sees is theirs, and everything else goes by our own names."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from pydantic import Field
from tests.support.toolbox import Toolbox, toolbox

from harness.errors import ConfigError, FileNotFound
from harness.toolkit import (
    Arguments,
    CallStatus,
    MutatingArguments,
    Registry,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    Traits,
)
from harness.toolkit.contract import Hook, OutputLimit
from harness.toolkit.events import ToolCallCompleted, ToolCallRequested
from harness.toolkit.interfaces import Verdict
from harness.toolkit.providers import PROVIDERS
from harness.toolkit.providers import provider as provider_of
from harness.toolkit.tool_profiles import (
    AdaptedTool,
    RenderedResult,
    ToolAdapter,
    ToolProfile,
    load_profile,
    profile_names,
)
from harness.toolkit.values import Category, Json, Subject, Text

# -- a tool, and a face for it


class Put(MutatingArguments):
    """Put a text into a place."""

    place: str = Field(min_length=2)
    text: str = ""
    times: int = Field(1, ge=1, le=3)


class PutTool(Tool[Put]):
    def __init__(self, result: ToolResult | Exception | None = None, traits: Traits | None = None) -> None:
        made = traits or Traits(category=Category.FILE_WRITE, mutating=True, aliases=("store",), packs=("core",))
        super().__init__("put", "Put a text into a place.", Put, made)
        self.result = result
        self.seen: list[Put] = []

    def subjects(self, args: Put) -> tuple[Subject, ...]:
        return (Subject("write", args.place),)

    def preview(self, args: Put) -> str | None:
        return args.text

    async def run(self, args: Put, ctx: ToolContext) -> ToolResult:
        self.seen.append(args)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result or ToolResult.of(f"put {args.text * args.times}", data={"place": args.place})


class Save(Arguments):
    """What the other product calls it."""

    filePath: str
    body: str = ""
    twice: bool = False


def shown(args: Save, result: ToolResult) -> RenderedResult | None:
    if result.is_error or not isinstance(result.data, dict):
        return None
    return RenderedResult(f"Saved {args.body} to {result.data['place']}")


FACE = ToolAdapter(
    tool="put",
    name="Save",
    description="Save a text.",
    arguments=Save,
    fields={"filePath": "place", "body": "text"},
    more=lambda args: {"times": 2 if args.twice else 1},
    render=shown,
)


def failed(text: str) -> str:
    return f"Error: {text}"


def box(tool: PutTool | None = None, face: ToolAdapter[Any] = FACE, **options: Any) -> Toolbox:
    registry = ToolProfile("other", (face,), failed).over(Registry([tool or PutTool()]))
    made = toolbox([], **options)
    made.executor = replace(made.executor, registry=registry)
    return made


async def save(made: Toolbox, name: str = "Save", call_id: str = "c1", **arguments: Json) -> Any:
    return await made.executor.call(ToolCall(name, arguments, call_id))


async def test_the_model_sees_their_names_and_forms_and_everybody_else_ours() -> None:
    tool = PutTool()
    made = box(tool)
    with made.events.subscribe() as events:
        outcome = await save(made, filePath="/a", body="x", twice=True)
        heard = events.drain()
    assert (outcome.status, outcome.result.text, outcome.result.data) == (CallStatus.OK, "Saved x to /a", None)
    assert (outcome.call.name, outcome.call.arguments) == ("Save", {"filePath": "/a", "body": "x", "twice": True})
    own = {"place": "/a", "text": "x", "times": 2}
    assert tool.seen == [Put(place="/a", text="x", times=2)]
    request, entry = made.policy.requests[0], made.ledger.begun[0]
    assert (request.call.name, request.call.arguments, request.tool) == ("put", own, tool)
    assert (request.subjects, request.preview) == ((Subject("write", "/a"),), "x")
    assert (entry.call.name, entry.call.arguments) == ("put", own)
    assert made.ledger.ended[0][:3] == ("c1", CallStatus.OK, "put xx")
    requested, completed = (event for event in heard if isinstance(event, ToolCallRequested | ToolCallCompleted))
    assert isinstance(requested, ToolCallRequested)
    assert (requested.call.name, requested.call.arguments, requested.mutating) == ("put", own, True)
    assert isinstance(completed, ToolCallCompleted)
    assert (completed.outcome.call.name, completed.outcome.result.text) == ("put", "put xx")


async def test_hooks_and_middleware_know_the_tool_by_our_name_and_may_change_our_arguments() -> None:
    seen: list[tuple[str, Any]] = []

    class Changing(Hook):
        async def before(self, call: ToolCall, ctx: ToolContext) -> ToolCall | str:
            assert ctx.offered is not None
            seen.append((call.name, [tool.name for tool in ctx.registry.list()]))
            seen.append(("offered", [tool.name for tool in ctx.offered.list()]))
            assert isinstance(call.arguments, dict)
            return replace(call, arguments={**call.arguments, "place": "/b"})

    async def watching(call: ToolCall, ctx: ToolContext, following: Any) -> Any:
        seen.append(("middleware", call.name))
        return await following(call)

    outcome = await save(box(hooks=(Changing(),), middleware=(watching,)), filePath="/a", body="x")
    assert outcome.result.text == "Saved x to /b"
    assert seen == [("middleware", "put"), ("put", ["put"]), ("offered", ["Save"])]


async def test_a_form_shows_nothing_that_a_hook_or_a_middleware_has_taken_out_of_the_text() -> None:
    class Covering(Hook):
        async def after(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> ToolResult:
            return replace(result, content=(Text("covered"),))

    async def covering(call: ToolCall, ctx: ToolContext, following: Any) -> Any:
        outcome = await following(call)
        return replace(outcome, result=replace(outcome.result, content=(Text("covered"),)))

    for made in (box(hooks=(Covering(),)), box(middleware=(covering,))):
        outcome = await save(made, filePath="/secret", body="x")
        assert (outcome.result.text, outcome.result.data) == ("covered", None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Error: Save: filePath: required"),
        ({"filePath": "/a", "bdy": ""}, "Error: Save: bdy: no such argument; did you mean 'body'?"),
        ({"filePath": "/a", "text": ""}, "Error: Save: text: no such argument; known: filePath, body, twice"),
        ({"filePath": "/"}, "Error: Save: filePath: string should have at least 2 characters"),
        ({"filePath": "/a", "risk": "low"}, "Error: Save: risk: no such argument; known: filePath, body, twice"),
    ],
)
async def test_mistakes_are_told_in_their_words_and_nothing_runs(arguments: dict[str, Json], message: str) -> None:
    made = box()
    outcome = await save(made, **arguments)
    assert (outcome.result.error_code, outcome.result.text, outcome.result.is_error) == ("invalid_args", message, True)
    assert (outcome.call.name, made.ledger.begun, made.policy.requests) == ("Save", [], [])


async def test_a_name_that_is_not_offered_is_answered_with_theirs() -> None:
    outcome = await save(box(), name="Sav")
    assert outcome.result.text == "unknown tool 'Sav'; did you mean 'Save'?"
    assert (await save(box(), name="put", filePath="/a")).call.name == "Save"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult.failure("full", "no room"), "Error: no room"),
        (FileNotFound("/a: there is no such file"), "Error: /a: there is no such file"),
        (RuntimeError("boom"), "Error: put failed: RuntimeError: boom (this is a defect of the tool)"),
    ],
)
async def test_failures_have_the_form_of_the_profile(result: ToolResult | Exception, text: str) -> None:
    outcome = await save(box(PutTool(result)), filePath="/a")
    assert (outcome.status, outcome.result.is_error, outcome.result.text) == (CallStatus.ERROR, True, text)


async def test_what_is_refused_has_the_form_of_the_profile_and_is_recorded_as_ours() -> None:
    made = box(answer=lambda request: Verdict(False, f"{request.call.name} is not for you", "rule 1"))
    outcome = await save(made, filePath="/a")
    assert (outcome.status, outcome.result.text) == (CallStatus.DENIED, "Error: not allowed: put is not for you")
    assert [entry.call.name for entry in made.ledger.denied] == ["put"]


async def test_a_form_that_cannot_be_made_leaves_the_result(caplog: pytest.LogCaptureFixture) -> None:
    def broken(args: Save, result: ToolResult) -> RenderedResult:
        raise KeyError("lines")

    outcome = await save(box(face=replace(FACE, render=broken)), filePath="/a", body="x")
    assert (outcome.status, outcome.result.text) == (CallStatus.OK, "put x")
    assert "could not be rendered" in caplog.text


async def test_a_form_holds_no_secret_also_where_it_joins_what_was_apart() -> None:
    parts: Json = {"place": ["hun", "ter2"]}
    face = replace(FACE, render=lambda args, result: RenderedResult("".join(result.data["place"])))
    outcome = await save(box(PutTool(ToolResult.of("x", data=parts)), face), filePath="/a")
    assert outcome.result.text == "[redacted]"


async def test_the_face_decides_how_much_the_model_gets() -> None:
    long = ToolResult.of("0123456789" * 1_000)
    traits = Traits(limit=OutputLimit(100, 50))
    face = replace(FACE, render=lambda args, result: RenderedResult(result.text))
    whole = await save(box(PutTool(long, traits), replace(face, limit=OutputLimit(20_000, 0))), filePath="/a")
    assert whole.result.text == long.text, "the tool's own limit is for our form"
    ours = await save(box(PutTool(long, traits), face), filePath="/a")
    assert ours.result.text.endswith("[... 9900 of 10000 characters left out ...]\n" + "0123456789" * 5)
    cut = await save(box(PutTool(long, traits), replace(face, limit=OutputLimit(500, 0))), filePath="/a")
    assert cut.result.text.startswith("0123456789")
    assert cut.result.text.endswith("[... 9500 of 10000 characters left out ...]")


async def test_what_is_remembered_is_remembered_once_for_all_forms() -> None:
    tool = PutTool(traits=Traits(cacheable=True))
    made = box(tool)
    first, second = await save(made, filePath="/a", body="x"), await save(made, call_id="c2", filePath="/a", body="x")
    assert (first.result.text, second.result.text, second.cached) == ("Saved x to /a", "Saved x to /a", True)
    plain = replace(made.executor, registry=Registry([tool]))
    third = await plain.call(ToolCall("put", {"place": "/a", "text": "x", "times": 1}))
    assert (third.result.text, third.cached, len(tool.seen)) == ("put x", True, 1)


async def test_a_command_that_goes_on_keeps_the_data_by_which_it_is_followed() -> None:
    running = ToolResult.of("job j1 goes on", data={"status": "running", "job_id": "j1"})
    outcome = await save(
        box(PutTool(running), replace(FACE, render=lambda args, result: RenderedResult("on"))), filePath="/a"
    )
    assert (outcome.result.text, outcome.result.data) == ("on", running.data)


async def test_json_of_a_form_is_data_too() -> None:
    face = replace(FACE, render=lambda args, result: RenderedResult('{"ok":true}', data={"ok": True}))
    outcome = await save(box(face=face), filePath="/a")
    assert (outcome.result.text, outcome.result.data) == ('{"ok":true}', {"ok": True})


async def test_calls_run_at_once_only_if_our_tool_says_so() -> None:
    for parallel in (False, True):
        made = box(PutTool(traits=Traits(parallelizable=parallel)))
        assert made.executor._parallelizable(ToolCall("Save", {"filePath": "/a"})) is parallel
        assert made.executor._parallelizable(ToolCall("Save", {"filePath": "/"})) is False


# -- the registry of a profile


def test_a_profile_offers_its_own_tools_over_ours_alone_and_others_as_they_are() -> None:
    registry = Registry([PutTool()])
    other = Registry()
    other.register(PutTool(), "plugin:acme:put")
    missing = replace(FACE, tool="gone", name="Gone")
    assert [tool.name for tool in ToolProfile("p", (FACE, missing)).over(registry).list()] == ["Save"]
    [as_it_is] = ToolProfile("p", (FACE,)).over(other).list()
    assert (as_it_is.name, as_it_is.own) == ("put", as_it_is)
    assert ToolProfile("p", (replace(FACE, tool="store"),)).over(registry).list() == [], "a tool has one name"


async def test_that_a_text_was_cut_is_told_once_however_long_it_is() -> None:
    face = replace(FACE, render=lambda args, result: RenderedResult(result.text) if result.data else None)
    for size in (20_000, 300_000):
        for result in (
            ToolResult.of("0" * size, data=True),
            ToolResult.of("0" * size),
            ToolResult.failure("x", "0" * size),
        ):
            seen = (await save(box(PutTool(result), face), filePath="/a")).result
            [(missing, total)] = re.findall(r"(\d+) of (\d+) characters left out", seen.text)
            around = len("Error: ") if result.is_error else 0
            assert 0 <= int(total) - size <= around
            assert int(total) - int(missing) == 15_000
            assert seen.text.count("left out") == 1


def test_nobody_else_can_take_a_name_that_stands_behind_a_face() -> None:
    found = ToolProfile("p", (FACE,)).over(Registry([PutTool()]))
    for name in ("put", "store", "Save"):
        with pytest.raises(ValueError, match="already called"):
            found.register(replace_name(PutTool(), name), "mcp:other")
    found.register(replace_name(PutTool(), "other_put"), "mcp:other")
    assert [tool.name for tool in found.own.list()] == ["other_put", "put"]


async def test_tools_of_others_work_beside_a_profile() -> None:
    made = box()
    made.executor.registry.register(replace_name(PutTool(), "other_put"), "mcp:other")
    done = await made.executor.call(ToolCall("other_put", {"place": "/a", "text": "x"}))
    assert (done.call.name, done.result.text, done.result.data) == ("other_put", "put x", {"place": "/a"})
    assert [tool.name for tool in made.executor.registry.own.list()] == ["other_put", "put"]
    assert made.executor.registry.own is made.executor.registry.own, "it is made once"


def replace_name(tool: PutTool, name: str) -> PutTool:
    tool.name = name
    tool.traits = Traits()
    return tool


def test_a_registry_without_faces_is_its_own() -> None:
    registry = Registry([PutTool()])
    assert registry.own is registry
    faced = ToolProfile("p", (FACE,)).over(registry)
    assert faced.own.aliases == {"store": "put"}
    assert [tool.own.name for tool in faced.list()] == ["put"]
    assert faced.own.lookup("put") is registry.lookup("put")


def test_choices_go_by_what_our_tool_says() -> None:
    faced = ToolProfile("p", (FACE,)).over(Registry([PutTool()]))
    assert faced.read_only().list() == []
    assert [tool.name for tool in faced.packs("core").list()] == ["Save"]
    assert [tool.name for tool in faced.include("put").list()] == ["Save"]
    tool = faced.lookup("Save")
    assert isinstance(tool, AdaptedTool)
    args = tool.parse({"filePath": "/a", "body": "x"})
    assert (tool.subjects(args), tool.paths(args), tool.preview(args)) == ((Subject("write", "/a"),), ("/a",), "x")
    assert (tool.requires_approval(args), tool.traits_of(args).mutating) == (True, True)


@pytest.mark.parametrize("name", sorted(PROVIDERS))
async def test_each_provider_gets_the_result_under_the_name_that_it_knows(name: str) -> None:
    made = box()
    api = provider_of(name)
    tools = made.executor.registry.list()
    assert "Save" in str(api.definitions(tools))
    assert "put" not in str(api.definitions(tools)).lower().split()
    outcome = await save(made, filePath="/a", body="x")
    messages = str(api.results([outcome], tools))
    assert "Saved x to /a" in messages
    assert "'put'" not in messages


# -- those that are installed


def test_the_five_profiles_are_installed_and_others_are_a_mistake() -> None:
    assert set(profile_names()) >= {"buddy", "gofastr", "hex", "hygge", "terse"}
    assert [load_profile(name).name for name in ("buddy", "hex")] == ["buddy", "hex"]
    with pytest.raises(ConfigError, match="unknown profile 'hexx'") as caught:
        load_profile("hexx")
    assert "hex" in caught.value.hint
