"""Tools from elsewhere (packages, declarations, the program's own sources): offered with and without a profile."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import ExecutionContext, connect
from harness.errors import ConfigError
from harness.toolkit import Arguments, Category, Tool, ToolCall, ToolContext, ToolResult, Traits
from harness.toolkit.assembly import ToolkitSettings, open_executor, open_toolkit
from harness.toolkit.catalog import ToolSettings, load_catalogue
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness.toolkit.registry import FixedSource, ToolSource
from harness.toolkit.tool_profiles import AdaptedTool, profile_names

PACKAGE = """
from harness.toolkit import Arguments, Category, ToolResult, Traits, tool

class Nothing(Arguments):
    '''Tell the weather.'''

@tool(Nothing, category=Category.NETWORK)
async def weather(args, ctx):
    return ToolResult.of("sunny")

@tool(Nothing, category=Category.NETWORK, packs=("web",))
async def climate(args, ctx):
    return ToolResult.of("warm")
"""
DECLARED = '[[tool]]\nname = "greet"\ndescription = "D."\nbinary = "echo"\nwords = ["hi"]\nmutating = false\n'
AUTO = PermissionSettings(Mode.AUTO)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with tools, and a declared one."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    info = tmp_path / "site/weather_package-1.0.dist-info"
    declared = tmp_path / "xdg_config_home/harness/tools"
    info.mkdir(parents=True)
    declared.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: weather-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[harness.tools]\nweather = weather_package:weather\nclimate = weather_package:climate\n"
    )
    (info.parent / "weather_package.py").write_text(PACKAGE)
    (declared / "greet.toml").write_text(DECLARED)
    (declared / "greet.toml").chmod(0o600)
    monkeypatch.syspath_prepend(str(info.parent))
    yield
    sys.modules.pop("weather_package", None)


class Nothing(Arguments):
    """Do something of the program's own."""


class Own(Tool[Nothing]):
    """A tool of the program."""

    def __init__(self, name: str = "own", *aliases: str, category: Category = Category.NETWORK) -> None:
        super().__init__(name, "Do it.", Nothing, Traits(category=category, aliases=aliases))

    async def run(self, args: Nothing, ctx: ToolContext) -> ToolResult:
        return ToolResult.of("done")


class Fetched(ToolSource):
    """A source that is asked for its tools."""

    name = "program"

    async def tools(self) -> list[Tool[Any]]:
        return [Own()]


async def results(execution: ExecutionContext, settings: ToolkitSettings, **options: Any) -> dict[str, str]:
    async with open_executor(execution, settings, **options) as executor:
        names = ("weather", "greet", "own")
        return {name: (await executor.call(ToolCall(name))).result.text.strip() for name in names}


@pytest.mark.usefixtures("needs_process")
async def test_tools_from_elsewhere_are_called_under_their_own_names_in_every_profile() -> None:
    wanted = {"weather": "sunny", "greet": "hi", "own": "done"}
    async with connect("local:") as execution:
        for profile in (None, "none", *profile_names()):
            settings = ToolkitSettings(permissions=AUTO)
            assert await results(execution, settings, profile=profile, tool_sources=[Fetched()]) == wanted, profile
        of_settings = ToolkitSettings(tools=ToolSettings(tool_profile="hex"), permissions=AUTO)
        assert await results(execution, of_settings, tool_sources=[Fetched()]) == wanted
        async with open_toolkit(of_settings, profile="terse", tool_sources=[Fetched()]) as toolkit:
            for profile, name in ((None, "checkfor"), ("gofastr", "Read"), ("none", "run_shell")):
                async with toolkit.executor(execution, profile=profile) as executor:
                    offered = {tool.name for tool in executor.registry.list()}
                    assert offered >= {name, "weather", "greet", "own"}, profile


def test_the_settings_choose_among_tools_from_elsewhere_as_without_a_profile() -> None:
    def offered(**settings: Any) -> set[str]:
        found = load_catalogue(ToolSettings(**settings), sources=[FixedSource("program", (Own(),))])
        return {tool.name for tool in found.registry.list() if not isinstance(tool, AdaptedTool)}

    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({}, {"weather", "greet", "own"}),
        ({"extra_packs": ("web",)}, {"weather", "climate", "greet", "own"}),
        ({"exclude": ("own", "weather")}, {"greet"}),
        ({"disabled_plugins": ("weather-package",)}, {"greet", "own"}),
    ]
    for settings, names in cases:
        assert offered(tool_profile="gofastr", **settings) == names, settings


def test_a_name_that_the_profile_uses_is_an_error_that_names_both() -> None:
    for profile, tool, said in (
        ("gofastr", Own("Read"), "shows read_file as 'Read', but program has the tool 'Read', which is also called"),
        ("gofastr", Own("mine", "Bash"), "shows run_shell as 'Bash', but program has the tool 'mine', which is also"),
    ):
        source = FixedSource("program", (tool,))
        with pytest.raises(ConfigError, match=said) as caught:
            load_catalogue(ToolSettings(tool_profile=profile), sources=[source])
        assert f"exclude = ['{tool.name}']" in caught.value.hint
        load_catalogue(ToolSettings(tool_profile=profile, exclude=(tool.name,)), sources=[source])
        load_catalogue(ToolSettings(tool_profile="hygge"), sources=[source])


async def test_a_source_of_the_program_with_a_taken_name_is_an_error() -> None:
    for sources, said in (
        (
            [FixedSource("a", (Own(),)), FixedSource("a", ())],
            "tools of a cannot be added: the tool source 'a' is already",
        ),
        ([FixedSource("a", (Own("run_shell"),))], "a tool is already called 'run_shell': run_shell of builtin:core"),
        ([FixedSource("a", (Own("greet"),))], "a tool is already called 'greet': greet of file:greet.toml"),
        ([FixedSource("builtin:mine", (Own(),))], "'builtin:mine' is reserved"),
    ):
        with pytest.raises(ConfigError, match=said):
            async with open_toolkit(tool_sources=sources):
                raise AssertionError
    with pytest.raises(ValueError, match="the catalogue is already loaded"):
        async with open_toolkit(catalogue=load_catalogue(), tool_sources=[Fetched()]):
            raise AssertionError


def test_a_tool_of_the_program_that_states_no_category_counts_as_one_that_changes_something() -> None:
    source = FixedSource("program", (Own(category=Category.NONE),))
    traits = load_catalogue(sources=[source]).known.lookup("own").traits
    assert (traits.category, traits.mutating) == (Category.PLUGIN, True)
