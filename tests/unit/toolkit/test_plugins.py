"""Tools and hooks of other packages: found, kept apart, and careful unless they say otherwise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.toolbox import toolbox

from harness.errors import ConfigError
from harness.toolkit import CallStatus, Category, Registry, ToolCall
from harness.toolkit.catalog import load_catalogue
from harness.toolkit.plugins import HOOKS, TOOLS, Loaded, Plugin, find, load_hooks, load_tools
from harness.toolkit.tool_profiles import load_profile

PACKAGE = """
from harness.toolkit import Arguments, Category, Tool, ToolResult, Traits, tool
from harness.toolkit.contract import Hook


class City(Arguments):
    '''Tell the weather.'''

    city: str


@tool(City, parallelizable=True, cacheable=True)
async def weather(args, ctx):
    return ToolResult.of(f"sunny in {args.city}")


@tool(City, category=Category.NETWORK, parallelizable=True)
async def forecast(args, ctx):
    return ToolResult.of("sunny")


def tools():
    return [weather, forecast]


class NoMoon(Hook):
    async def before(self, call, ctx):
        return "not on the moon" if call.arguments.get("city") == "Moon" else call
"""
ENTRY_POINTS = """\
[harness.tools]
weather = weather_plugin:tools
one = weather_plugin:forecast
broken = weather_broken:tools
absent = weather_plugin:nothing
wrong = weather_plugin:City

[harness.hooks]
moon = weather_plugin:NoMoon
broken = weather_broken:hook
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with plugins, and with some that are broken."""
    info = tmp_path / "weather_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: weather-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "weather_plugin.py").write_text(PACKAGE)
    (tmp_path / "weather_broken.py").write_text("raise SystemExit('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("weather_plugin", "weather_broken"):
        sys.modules.pop(name, None)


def of_package(group: str) -> tuple[Plugin, ...]:
    return tuple(plugin for plugin in find(group) if plugin.distribution == "weather-plugin")


def by_name(loaded: Loaded[object]) -> dict[str, object]:
    return {plugin.name: found for plugin, found in loaded.found}


def test_our_own_tools_come_first_and_are_builtin() -> None:
    found = find(TOOLS)
    own = [plugin for plugin in found if plugin.source.startswith("builtin:")]
    assert found[: len(own)] == tuple(own)
    assert ("builtin:core", "harness_tools.core:tools") in [(plugin.source, plugin.value) for plugin in own]


def test_plugins_are_found_without_being_imported(package: Path) -> None:
    assert [plugin.source for plugin in of_package(TOOLS)] == [
        f"plugin:weather-plugin:{name}" for name in ("absent", "broken", "one", "weather", "wrong")
    ]
    assert "weather_plugin" not in sys.modules


def test_what_fails_is_reported_and_the_rest_works(package: Path) -> None:
    loaded = load_tools(of_package(TOOLS))
    assert set(by_name(loaded)) == {"one", "weather"}
    reasons = {failure.plugin.name: failure.reason for failure in loaded.failures}
    assert reasons["broken"] == "SystemExit: no licence"
    assert reasons["absent"].startswith("AttributeError: ")
    assert "city" in reasons["wrong"]


@pytest.mark.parametrize("disabled", ["weather-plugin", "plugin:weather-plugin:broken"])
def test_what_is_disabled_is_not_imported(package: Path, disabled: str) -> None:
    found = find(TOOLS, disabled=[disabled])
    assert "broken" not in {plugin.name for plugin in found}
    load_tools(found)
    assert "weather_broken" not in sys.modules
    assert ("weather" in {plugin.name for plugin in found}) == (disabled != "weather-plugin")


def test_a_tool_that_states_no_category_is_taken_for_dangerous(package: Path) -> None:
    loaded = load_tools(plugin for plugin in of_package(TOOLS) if plugin.name == "weather")
    weather, forecast = loaded.found[0][1]
    args = weather.parse({"city": "Bern"})
    for traits in (weather.traits, weather.traits_of(args)):
        assert (traits.category, traits.mutating, traits.parallelizable) == (Category.PLUGIN, True, False)
        assert not traits.cacheable
    assert weather.requires_approval(args)
    assert (weather.schema["required"], weather.paths(args)) == (["city"], ())
    assert weather.subjects(args)[0].text == "weather"
    assert (forecast.traits.category, forecast.traits.mutating) == (Category.NETWORK, False)


async def test_plugins_are_registered_called_and_removed_as_a_whole(package: Path) -> None:
    registry = Registry()
    loaded = load_tools(plugin for plugin in of_package(TOOLS) if plugin.name == "weather")
    for plugin, tools in loaded.found:
        registry.replace_source(plugin.source, tools)
    assert registry.source_of("weather") == "plugin:weather-plugin:weather"
    made = toolbox(registry.list())
    outcome = await made.executor.call(ToolCall("weather", {"city": "Bern"}))
    assert (outcome.status, outcome.result.text) == (CallStatus.OK, "sunny in Bern")
    registry.remove_source("plugin:weather-plugin:weather")
    assert registry.list() == []


def test_a_second_source_of_a_package_by_the_same_name_is_reported_and_left_out(package: Path) -> None:
    entry_points = package / "weather_plugin-1.0.dist-info/entry_points.txt"
    entry_points.write_text("[harness.tools]\none = weather_plugin:forecast\none = weather_plugin:weather\n")
    found = load_catalogue(directory=package)
    assert [problem for problem in found.problems if "plugin:weather-plugin:one" in problem] == [
        "the tools of plugin:weather-plugin:one are skipped: the tool source 'plugin:weather-plugin:one' is already "
        "registered (tools: forecast), so another one of that name (tools: weather) cannot be added: rename one of "
        "them, or replace the registered one with replace=True"
    ]
    assert (found.known.get("forecast") is not None, found.known.get("weather")) == (True, None)


def test_a_profile_that_two_packages_offer_is_an_error_that_names_both(package: Path) -> None:
    entry_points = package / "weather_plugin-1.0.dist-info/entry_points.txt"
    entry_points.write_text("[harness.profiles]\nhex = weather_plugin:tools\n")
    with pytest.raises(ConfigError, match=r"'hex': harness-ops \(\S+\) and weather-plugin \(weather_plugin:tools\)"):
        load_profile("hex")
    assert load_profile("hygge").name == "hygge"


async def test_a_hook_guards_and_one_that_cannot_be_loaded_refuses_everything(package: Path) -> None:
    loaded = load_hooks(of_package(HOOKS))
    hooks = by_name(loaded)
    tools = by_name(load_tools(of_package(TOOLS)))["weather"]
    assert [failure.plugin.name for failure in loaded.failures] == ["broken"]
    texts = {}
    for name, city in (("moon", "Bern"), ("moon", "Moon"), ("broken", "Bern")):
        made = toolbox(tools, hooks=(hooks[name],))  # type: ignore[arg-type]  # of the package
        texts[name, city] = (await made.executor.call(ToolCall("weather", {"city": city}))).result.text
    assert texts["moon", "Bern"] == "sunny in Bern"
    assert texts["moon", "Moon"] == "not allowed: not on the moon"
    assert "plugin:weather-plugin:broken could not be loaded (SystemExit: no licence)" in texts["broken", "Bern"]
    assert "disabled_plugins in [tools]" in texts["broken", "Bern"]


@pytest.mark.usefixtures("needs_process")
def test_a_package_that_is_really_installed_is_found_by_another_process(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "weather-plugin"\nversion = "1.0"\n'
        '[project.entry-points."harness.tools"]\nweather = "weather_plugin:tools"\n'
        '[tool.hatch.build.targets.wheel]\ninclude = ["weather_plugin.py"]\n'
    )
    (project / "weather_plugin.py").write_text(PACKAGE)
    there = tmp_path / "there"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*install, "--target", str(there), str(project)], check=True, timeout=100, capture_output=True)
    script = (
        "from harness.toolkit.plugins import TOOLS, find, load_tools;"
        "found = [(plugin.source, [tool.name for tool in tools]) for plugin, tools in load_tools(find(TOOLS)).found];"
        "print(found[-1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{there}:{':'.join(sys.path)}"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[('plugin:weather-plugin:weather', ['weather', 'forecast'])]\n", done.stderr
