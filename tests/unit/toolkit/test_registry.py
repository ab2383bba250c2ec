"""The registry: names, sources that change as a whole, choices, and what a target lacks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from harness import connect
from harness.errors import ConnectError, ToolError
from harness.testing.memory import MemoryBackend, ScriptedReply, memory_context
from harness.toolkit import Arguments, Category, JsonObject, Registry, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.registry import FixedSource, ToolSource, schema_gaps


class Path(Arguments):
    path: str
    depth: int = 1


class Plain(Tool[Path]):
    """A tool that does nothing."""

    def __init__(self, name: str, description: str = "", **traits: Any) -> None:
        super().__init__(name, description or f"Do {name}.", Path, Traits(**traits))

    async def run(self, args: Path, ctx: ToolContext) -> ToolResult:
        return ToolResult.of("")


class Undescribed(Plain):
    """A tool whose schema, as a server sent it, forgets an argument."""

    @property
    def schema(self) -> JsonObject:
        return {"type": "object", "properties": {}, "required": ["path"]}


READ = Plain("read", aliases=("cat", "open-file"), packs=("core",), category=Category.FILE_READ)
WRITE = Plain("write", mutating=True, packs=("core",), category=Category.FILE_WRITE)
TODO = Plain("todo", mutating=True, packs=("plan",))
FIND = Plain("tool_search")


def registry() -> Registry:
    return Registry([WRITE, READ, TODO, FIND])


def names(found: Registry) -> list[str]:
    return [tool.name for tool in found.list()]


def test_tools_are_found_by_name_and_alias_and_listed_by_name() -> None:
    found = registry()
    assert (found.get("read"), found.get("cat"), found.get("nothing")) == (READ, READ, None)
    assert names(found) == ["read", "todo", "tool_search", "write"]
    assert dict(found.aliases) == {"cat": "read", "open-file": "read"}


def test_an_unknown_name_is_answered_with_the_nearest_as_it_is_advertised() -> None:
    assert "did you mean 'read'?" in registry().unknown("open_file").text
    assert "did you mean 'write'?" in registry().unknown("wriet").text
    assert "did you mean 'tool_search'?" in registry().unknown("search").text
    with pytest.raises(ToolError, match="unknown tool 'zzz'; there are: read, todo"):
        registry().lookup("zzz")
    assert "there are: none" in Registry().unknown("x").text


@pytest.mark.parametrize("name", ["read", "cat"])
def test_a_name_that_is_taken_is_refused_and_changes_nothing(name: str) -> None:
    found = registry()
    with pytest.raises(ValueError, match=f"already called '{name}': read of builtin"):
        found.register(Plain("other", aliases=(name,)))
    with pytest.raises(ValueError, match="already called"):
        found.register(Plain(name))
    assert names(found) == names(registry())


def test_replacing_takes_the_namesake_and_no_other() -> None:
    found = registry()
    better = Plain("read", "Read better.", aliases=("less",))
    found.register(better, "mine", replace=True)
    assert (found.get("less"), found.get("cat"), found.source_of("read")) == (better, None, "mine")
    with pytest.raises(ValueError, match="already called 'less'"):
        found.register(Plain("less"), replace=True)
    assert found.get("less") is better


def test_an_alias_must_be_a_name_that_providers_take() -> None:
    with pytest.raises(ValueError, match="is not a valid tool name"):
        Registry([Plain("x", aliases=("a b",))])


def test_unregistering_what_is_not_there_does_nothing() -> None:
    found = registry()
    found.unregister("nothing")
    found.unregister("cat")  # an alias is no tool
    assert names(found) == names(registry())
    found.unregister("read")
    assert (found.get("read"), found.get("cat")) == (None, None)


# -- sources


def test_a_source_is_replaced_as_a_whole_and_removed_as_a_whole() -> None:
    found = registry()
    found.replace_source("mcp:git", [Plain("git_log"), Plain("git_diff")])
    found.replace_source("mcp:git", [Plain("git_diff"), Plain("git_blame")])
    assert [tool.name for tool in found.list() if found.source_of(tool.name) == "mcp:git"] == ["git_blame", "git_diff"]
    found.remove_source("mcp:git")
    found.remove_source("mcp:git")
    assert (names(found), found.source_of("git_diff"), found.source_of("cat")) == (names(registry()), None, "builtin")


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([Plain("new"), Plain("read")], "already called 'read': read of builtin"),
        ([Plain("new"), Plain("new")], "already called 'new': new of plug"),
        ([Plain("new"), Plain("b", aliases=("new",))], "already called 'new'"),
        ([Plain("new"), Undescribed("bad")], "bad of plug requires path"),
    ],
)
def test_a_set_with_one_bad_tool_changes_nothing(tools: list[Tool[Any]], message: str) -> None:
    found = registry()
    found.replace_source("plug", [Plain("old")])
    with pytest.raises(ValueError, match=message):
        found.replace_source("plug", tools)
    assert names(found) == ["old", *names(registry())]


async def test_a_second_source_of_the_same_name_is_refused_unless_it_replaces_the_first() -> None:
    found = registry()
    await found.register_source(FixedSource("weather", (Plain("forecast"), Plain("radar"))))
    second = FixedSource("weather", (Plain("storms"),))
    both = r"'weather' is already registered \(tools: forecast, radar\), so another one of that name \(tools: storms\)"
    with pytest.raises(ValueError, match=f"{both} .* replace=True"):
        found.add_source(second.name, second.fixed)
    with pytest.raises(ValueError, match=r"'weather' is already registered \(tools: forecast, radar\)"):
        await found.register_source(second)
    assert names(found) == ["forecast", "radar", *names(registry())]
    await found.register_source(second, replace=True)
    assert (found.source_of("storms"), found.get("radar"), found.sources) == ("weather", None, ("builtin", "weather"))


async def test_a_name_is_taken_by_a_source_without_tools_and_in_chosen_registries_until_it_is_removed() -> None:
    found = registry()
    await found.register_source(FixedSource("empty", ()))
    for taken in (found, found.read_only(), found.own):
        with pytest.raises(ValueError, match=r"'empty' is already registered \(tools: none\)"):
            taken.add_source("empty", [Plain("late")])
    found.remove_source("empty")
    found.add_source("empty", [Plain("late")])
    assert found.source_of("late") == "empty"


async def test_of_two_sources_that_are_fetched_at_once_the_second_is_refused() -> None:
    found, source = registry(), Slow()

    async def fetch() -> None:
        with pytest.raises(ValueError, match=r"'slow' is already registered \(tools: first\)"):
            await found.register_source(source)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fetch)
            await source.asked.wait()
            found.add_source("slow", [Plain("first")])
            source.answer.set()
    assert (found.source_of("first"), found.get("late")) == ("slow", None)


class Slow(ToolSource):
    """A source that answers when it is let, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.name = "slow"
        self.asked, self.answer = anyio.Event(), anyio.Event()
        self.error = error

    async def tools(self) -> Sequence[Tool[Any]]:
        self.asked.set()
        await self.answer.wait()
        if self.error is not None:
            raise self.error
        return [Plain("late")]


async def test_a_source_is_fetched_while_others_go_on_changing_the_registry() -> None:
    found, source = registry(), Slow()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(found.register_source, source)
            await source.asked.wait()
            found.register(Plain("meanwhile"))
            assert (found.get("late"), names(found)[0]) == (None, "meanwhile")
            source.answer.set()
    assert (found.source_of("late"), found.source_of("meanwhile")) == ("slow", "builtin")


async def test_a_source_that_fails_keeps_what_it_had() -> None:
    found = registry()
    await found.register_source(FixedSource("slow", (Plain("late"),)))
    failing = Slow(ConnectError("no answer"))
    failing.answer.set()
    with pytest.raises(ConnectError):
        await found.register_source(failing, replace=True)
    assert found.source_of("late") == "slow"


# -- choices


def test_presets_follow_from_what_tools_say_of_themselves() -> None:
    found = registry()
    assert names(found.read_only()) == ["read", "tool_search"]
    assert names(found.exclude_dangerous()) == ["read", "todo", "tool_search"]
    assert names(found.packs("plan")) == ["todo", "tool_search"]
    assert names(found.packs("plan", "core")) == names(found)
    assert names(found.include("cat", "todo")) == ["read", "todo"]
    assert names(found.exclude("cat", "todo")) == ["tool_search", "write"]


def test_a_choice_of_what_is_not_there_is_an_error() -> None:
    for choose in (registry().include, registry().exclude):
        with pytest.raises(ValueError, match="unknown tool 'wriet'; did you mean 'write'"):
            choose("wriet")
    with pytest.raises(ValueError, match="unknown pack 'cores'; there are: core, plan"):
        registry().packs("cores")


def test_a_choice_leaves_the_original_alone_and_neither_sees_the_others_changes() -> None:
    found = registry()
    chosen = found.read_only()
    chosen.register(Plain("mine"))
    found.register(Plain("yours"))
    assert names(found) == ["read", "todo", "tool_search", "write", "yours"]
    assert names(chosen) == ["mine", "read", "tool_search"]
    assert chosen.get("cat") is found.get("cat")
    assert chosen.source_of("read") == "builtin"


def test_definitions_are_the_same_text_whatever_the_order_of_registration() -> None:
    one, other = registry(), Registry([FIND, TODO, READ, WRITE])
    assert json.dumps(one.definitions()) == json.dumps(other.definitions())
    assert [item["name"] for item in one.definitions()] == names(one)
    assert set(one.definitions()[0]) == {"name", "description", "input_schema"}
    first = dict(one.definitions()[0])
    first["input_schema"].clear()  # type: ignore[union-attr]  # it is an object: the next line sees it
    assert one.definitions()[0]["input_schema"] != {}


def test_gaps_of_a_schema_are_found() -> None:
    assert (schema_gaps(READ), schema_gaps(Undescribed("x"))) == ((), ("path",))


# -- what the target lacks


async def test_what_the_target_lacks_is_asked_in_one_command() -> None:
    backend = MemoryBackend(lambda command: ScriptedReply("jq\n"))
    found = Registry([
        Plain("a", requires=("jq",)), Plain("b", requires=("jq", "kubectl", "helm")), Plain("c"),
        Plain("d", requires=("tmux",)),
    ])  # fmt: skip
    execution = memory_context(backend)
    assert await found.missing_requirements(execution) == {"b": ("helm", "kubectl"), "d": ("tmux",)}
    assert len(backend.received) == 1
    assert names(await found.available(execution)) == ["a", "c"]


async def test_a_target_that_cannot_say_serves_no_tool_that_needs_something() -> None:
    found = Registry([Plain("a", requires=("jq",)), Plain("c")])
    assert names(await found.available(memory_context(MemoryBackend()))) == ["c"]


@pytest.mark.usefixtures("needs_process")
async def test_requirements_are_found_on_a_real_target(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = Registry([
        Plain("a", requires=("sh", "awk")), Plain("b", requires=("no-such; touch x",)), Plain("c", requires=("tmux",)),
    ])  # fmt: skip
    async with connect("local:") as execution:
        missing = await found.missing_requirements(execution)
    assert missing == {"b": ("no-such; touch x",), "c": ("tmux",)}


def test_whoever_watches_is_told_of_each_change_until_it_stops_watching() -> None:
    found, told = registry(), list[list[str]]()
    with found.watched(lambda: told.append(names(found))):
        found.register(Plain("zap"))
        found.unregister("read")
        found.replace_source("server", [Plain("far")])
        with pytest.raises(ValueError, match="already called"):
            found.register(Plain("zap"))
    found.unregister("zap")
    assert ["zap" in seen for seen in told] == [True, True, True]
    assert ["read" in seen for seen in told] == [True, False, False]
    assert ["far" in seen for seen in told] == [False, False, True]
