"""What is left out of a long output is told once, with the amounts of the whole, in every profile."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.profile_steps import open_unasking

from harness import connect
from harness.toolkit import Executor, Json, ToolCall, ToolResult
from harness.toolkit.tool_profiles import AdaptedTool, profile_names

AMOUNTS = re.compile(r"(\d+) of (\d+) (?:characters|bytes|bytes of output) left out")
HEADLINES = 100
"""Characters of a result around the output, which count where the whole result is cut."""
LINE = 10
COMMANDS = {
    "more than is shown": (f"yes 123456789 | head -n {100_000 // LINE}", 100_000),
    "more than the target returns": (f"yes 123456789 | head -n {3_000_000 // LINE}", 3_000_000),
    "both streams": (f"yes 123456789 | head -n {80_000 // LINE} | tee /dev/stderr", 160_000),
    "both streams, more than the target returns": (
        f"yes 123456789 | head -n {2_000_000 // LINE} | tee /dev/stderr",
        4_000_000,
    ),
    "a failure": (f"yes 123456789 | head -n {3_000_000 // LINE} >&2; exit 3", 3_000_000),
    "what would be longer as JSON": (f"yes '\"\\\\34567\"' | head -n {200_000 // LINE}", 200_000),
    "one line": ("head -c 300000 /dev/zero | tr '\\0' x", 300_000),
}


def shell_of(executor: Executor) -> tuple[str, str]:
    """The names of the tool for commands, and of its argument."""
    for tool in executor.registry.list():
        if tool.own.name == "run_shell":
            names = tool.face.names if isinstance(tool, AdaptedTool) else {}
            return tool.name, names.get("command", "command")
    raise AssertionError


def wrong_amounts(text: str, size: int) -> str:
    """What is wrong with the amounts of a result; empty when nothing is."""
    told = AMOUNTS.findall(text)
    if len(told) != 1:
        return f"told {len(told)} times: {told}"
    missing, total = map(int, told[0])
    shown = len(re.findall(r"\d|x|\\[n\\\"]|\"|\n", re.sub(AMOUNTS, "", text)))
    if abs(total - size) > HEADLINES:
        return f"{total} is not all of {size}"
    return (
        "" if abs(missing + shown - total) < 2 * HEADLINES + shown // 4 else f"{missing} and {shown} shown of {total}"
    )


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("needs_process")
async def test_what_is_left_out_of_a_commands_output_is_told_once_and_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found: list[str] = []
    async with connect("local:") as execution, open_unasking() as toolkit:
        for profile in ("none", *profile_names()):
            async with toolkit.executor(execution, profile=profile) as executor:
                name, argument = shell_of(executor)
                for kind, (command, size) in COMMANDS.items():
                    result = (await executor.call(ToolCall(name, {argument: command}))).result
                    if wrong := wrong_amounts(result.text, size):
                        found.append(f"{profile}, {kind}: {wrong}")
    assert found == []


SEARCHES: dict[str, dict[str, Json]] = {
    "glob": {"pattern": "**/*", "path": "."},
    "grep": {"pattern": "needle", "path": "."},
    "ls": {"path": "."},
    "checkfor": {"search": "needle", "directories": ["."], "dir": ["."]},
    "stump": {"dir": "."},
}
FILES = 1_200
NAME = "a-file-with-a-rather-long-name-{:04d}.txt"


def wrong_items(result: ToolResult, total: int) -> str:
    """What is wrong with the number of the items that a search left out; empty when nothing is."""
    shown = len(set(re.findall(r"name-\d{4}", result.text)))
    if result.text.startswith("{"):
        value = json.loads(result.text)
        told = [(int(value.get("dropped") or value["stats"]["dropped"]), total)] if "left_out" not in value else []
    else:
        told = [(int(missing), int(of or total)) for missing, of in ITEMS.findall(result.text)]
    if len(told) != 1 or AMOUNTS.search(result.text):
        return f"not told once: {told} {result.text[-300:]!r}"
    return "" if told[0] == (total - shown, total) else f"{told[0]}, and {shown} are shown of {total}"


ITEMS = re.compile(r"(\d+) (?:entries )?more (?:of (\d+) [a-z]+ )?(?:names )?(?:are )?not shown|(?!)")


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("needs_process")
async def test_what_a_search_leaves_out_is_told_once_as_items_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = tmp_path / "place"
    place.mkdir()
    for number in range(FILES):
        (place / NAME.format(number)).write_text("a needle, and more\n")
    found, tried = list[str](), set[str]()
    async with connect("local:") as execution, open_unasking() as toolkit:
        for profile in ("none", *profile_names()):
            async with toolkit.executor(execution, profile=profile, cwd=str(place)) as executor:
                for tool in executor.registry.list():
                    if tool.own.name not in SEARCHES:
                        continue
                    names = tool.face.names if isinstance(tool, AdaptedTool) else {}
                    given = {names.get(name, name): value for name, value in SEARCHES[tool.own.name].items()}
                    known = dict(tool.schema)["properties"]
                    assert isinstance(known, dict)
                    given = {name: value for name, value in given.items() if name in known}
                    result = (await executor.call(ToolCall(tool.name, given))).result
                    tried.add(tool.own.name)
                    if wrong := wrong_items(result, FILES):
                        found.append(f"{profile}, {tool.name}: {wrong}")
    assert found == []
    assert tried == set(SEARCHES)
