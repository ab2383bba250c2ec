"""No dead ends: in every profile a long file is read on as the answers say, and may then be replaced and edited."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.profile_steps import open_unasking

from harness import connect
from harness.toolkit import Executor, Json, ToolCall, ToolResult
from harness.toolkit.tool_profiles import AdaptedTool, profile_names

MAX_READS = 80
NOTE = re.compile(
    r"(?:\.\.\.\[truncated\])?\n?\[(?:lines|bytes) [^\n]*\](?:\n\[truncated: [^\n]*\])?\Z|\n?\[truncated: [^\n]*\]\Z"
)


def long_files() -> Iterator[tuple[str, str]]:
    """Files that are longer than one answer, each in another way."""
    lines = (f'<{number}> "quoted"\t{number:09d}\n' for number in range(1, 10_001))
    yield "10,000 lines, more bytes than are fetched at once", "".join(lines)
    yield "long lines", "".join(f"<{number}> {'x' * 9_000} </{number}>\n" for number in range(1, 12))
    yield "one line", f"<1> {'y' * 90_000}<2>"
    yield (
        "some long lines",
        "".join(f"<{number}> {'é' * 5_000 if number % 50 == 0 else 'short'} </{number}>\n" for number in range(1, 400)),
    )
    yield "control characters", "".join(f"<{number}> \x1b[31m\x01\x02\x03\n" for number in range(1, 4_500))


@dataclass(frozen=True)
class Files:
    """The tools for files that a profile has, and a model that uses them as their answers say."""

    executor: Executor

    def _tool(self, own: str) -> tuple[str, Mapping[str, str]] | None:
        """The name of a tool of ours here, and its arguments by our names."""
        for tool in self.executor.registry.list():
            if tool.own.name == own:
                return tool.name, (tool.face.names if isinstance(tool, AdaptedTool) else {})
        return None

    async def call(self, own: str, **arguments: Json) -> ToolResult | None:
        """Call a tool by our name of it; None where the profile lacks it."""
        tool = self._tool(own)
        if tool is None:
            return None
        name, names = tool
        given = {names.get(argument, argument): value for argument, value in arguments.items()}
        if names.get("mode") == "mode":  # creates by default
            given["mode"] = "overwrite"
        return (await self.executor.call(ToolCall(name, given))).result

    async def read_all(self, path: str) -> str:
        """All that the answers show, read on as long as they say how."""
        tool = self._tool("read_file")
        assert tool is not None
        shown, further, rests = "", dict[str, Json](), list[int]()
        rest_name = tool[1].get("byte_offset", "byte_offset")
        for _ in range(MAX_READS):
            arguments: dict[str, Json] = {tool[1].get("path", "path"): path, **further}
            result = (await self.executor.call(ToolCall(tool[0], arguments))).result
            assert not result.is_error, result.text
            text, note = _content(result)
            shown += text
            rests += [int(rest) for rest in re.findall(rf"\({rest_name}=(\d+)\)", note)]
            if on := re.search(r"continue with (\w+)=(\d+)", note):
                further = {on[1]: int(on[2])}
            elif rests:
                further, rests = {rest_name: rests[0]}, []
            else:
                return shown
        raise AssertionError(f"more than {MAX_READS} reads")


def _content(result: ToolResult) -> tuple[str, str]:
    """What is shown of a file, and the note about what is not."""
    if result.text.startswith('{"file"'):
        value = json.loads(result.text)
        return value["content"].removesuffix(value.get("note", "")), value.get("note", "")
    note = NOTE.search(result.text)
    return (result.text[: note.start()], note[0]) if note else (result.text, "")


async def dead_ends(executor: Executor, path: Path, content: str) -> list[str]:
    """What goes wrong when a model reads a file, edits it and replaces it."""
    model, found = Files(executor), list[str]()
    path.write_text(content)
    for own in ("write_file", "edit"):
        if (result := await model.call(own, path=str(path), **CHANGES[own])) and result.error_code != "not_read":
            found.append(f"{own} without a read: {result.text[:200]}")
    await model.call("read_file", path=str(path))
    replaced = await model.call("write_file", path=str(path), **CHANGES["write_file"])
    if replaced is None or "was only partly read (bytes " not in replaced.text:
        found.append(f"replaced after the first part: {replaced}")
    shown = await model.read_all(str(path))
    if missing := set(re.findall(r"<\d+>", content)) - set(re.findall(r"<\d+>", shown)):
        found.append(f"never shown: {sorted(missing)[:5]}")
    for own in ("edit", "write_file"):
        if (result := await model.call(own, path=str(path), **CHANGES[own])) and result.is_error:
            found.append(f"{own} at the end: {result.text[:200]}")
    return found


CHANGES: dict[str, dict[str, Json]] = {
    "write_file": {"content": "all new\n"},
    "edit": {"old_string": "<1> ", "new_string": "<one> "},
}


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("needs_process")
async def test_a_long_file_can_be_read_on_and_then_be_changed_in_every_profile_with_tools_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found: list[str] = []
    async with connect("local:") as execution, open_unasking() as toolkit:
        for profile in ("none", *profile_names()):
            for number, (kind, content) in enumerate(long_files()):
                async with toolkit.executor(execution, profile=profile) as executor:
                    ends = await dead_ends(executor, tmp_path / f"{profile}-{number}", content)
                    found += [f"{profile}, {kind}: {end}" for end in ends]
    assert found == []
