"""No profile tells a model of arguments and tools that it does not have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import few_examples
from tests.support.schema_values import values_of

import harness.toolkit
import harness_tools
from harness.errors import ToolError
from harness.toolkit import ToolResult
from harness.toolkit.catalog import load_catalogue
from harness.toolkit.tool_profiles import AdaptedTool, load_profile
from harness.toolkit.values import Advice

KNOWN = load_catalogue().known
OFFERED = {name: load_profile(name).over(KNOWN) for name in ("buddy", "gofastr", "hex", "hygge", "terse")}
FACES = [tool for registry in OFFERED.values() for tool in registry.list() if isinstance(tool, AdaptedTool)]


def own_arguments(tool: AdaptedTool[Any]) -> set[str]:
    return set(dict(tool.own.schema)["properties"])  # type: ignore[call-overload]  # any JSON


def theirs(tool: AdaptedTool[Any]) -> set[str]:
    return set(dict(tool.schema)["properties"])  # type: ignore[call-overload]  # any JSON


# -- messages in the source

LACKED = {name for tool in FACES for name in own_arguments(tool) - tool.face.names.keys()}
"""Arguments of ours that a profile lacks."""
TOOLS = {tool.name for tool in KNOWN.list() if "_" in tool.name}
TOLD_OTHERWISE = {
    "no_default_excludes",  # of a search: the forms of the profiles cut it off
    "max_results",
    "all",  # of sig: it is ls that a profile offers without it
}
NAMED = re.compile(r"[a-z]+(?:_[a-z]+)+|[a-z]+(?==)")
SOURCES = sorted(path for path in Path(harness_tools.__file__).parent.rglob("*.py") if "profiles" not in path.parts) + [
    Path(harness.toolkit.__file__).parent / name for name in ("session/file_versions.py", "results.py")
]


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The texts of a module that a model may be told: no documentation, no descriptions, no mistakes of arguments."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.Expr):
            inner = [node.value] if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else []
        elif isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _name(node) in ("Advice", "Field")):
            inner = [node]
        else:
            inner = []
        left_out |= {id(part) for one in inner for part in ast.walk(one)}
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in left_out or not isinstance(node, ast.JoinedStr | ast.Constant):
            continue
        if isinstance(node, ast.Constant):
            text = node.value if isinstance(node.value, str) else ""
        else:
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        if re.search(r"\w \w", text):
            yield node.lineno, text


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def test_every_message_that_names_what_a_profile_lacks_is_advice() -> None:
    found = []
    for path in SOURCES:
        for line, text in messages(ast.parse(path.read_text())):
            if text.startswith(("\n", "#")) or "$" in text or "\\n" in text or text.endswith("."):
                continue  # a script, or the description of a tool
            words = set(NAMED.findall(text)) & ((LACKED - TOLD_OTHERWISE) | TOOLS)
            found += [f"{path.name}:{line}: {word}: {text}" for word in words]
    assert found == []


# -- mistakes in arguments


def mistakes(tool: AdaptedTool[Any], arguments: dict[str, Any]) -> list[str]:
    try:
        tool.translated(tool.parse(arguments))
    except ToolError as error:
        return error.message.removeprefix(f"{tool.name}: ").split(";\n")
    return []


@pytest.mark.parametrize("tool", FACES, ids=lambda tool: f"{tool.name}-{tool.own.name}")
def test_a_mistake_is_told_of_an_argument_that_the_model_has(tool: AdaptedTool[Any]) -> None:
    absent = own_arguments(tool) - theirs(tool)

    @few_examples()
    @given(
        values_of(tool.schema),
        st.sampled_from([10**30, -(10**30), 0, ""]),
        st.sampled_from(sorted(theirs(tool)) or [""]),
    )
    def attempt(arguments: dict[str, Any], extreme: Any, name: str) -> None:
        for line in mistakes(tool, {**arguments, name: extreme} if name else arguments):
            assert line.partition(":")[0].split(".")[0] not in absent, line
            assert not {word for word in absent if "_" in word} & set(re.findall(r"\w+", line)), line

    attempt()


# -- results


def faced(profile: str, name: str) -> AdaptedTool[Any]:
    tool = OFFERED[profile].lookup(name)
    assert isinstance(tool, AdaptedTool)
    return tool


def test_advice_is_told_in_the_names_of_the_profile_or_left_out() -> None:
    ways = (Advice("; continue with byte_offset=7", ("byte_offset",)), Advice("; see utf8", tools=("utf8",)))
    result = ToolResult.failure("x", "a; see utf8 b; continue with byte_offset=7; see utf8", advice=ways)
    args = {"path": "x"}
    assert faced("hex", "read_file").shown(faced("hex", "read_file").parse(args), result).text == (
        "Error: a; see utf8 b; continue with offset=7"
    )
    terse = faced("terse", "read")
    assert (
        terse.shown(terse.parse({"file_path": "x"}), result).text
        == "a; see utf8 b; continue with byte_offset=7; see utf8"
    )
    ending = Advice(": kill_shell ends it", tools=("kill_shell",))
    data: Any = {"status": "running", "stdout": "", "exit_code": None, "notices": ["no time limit: kill_shell ends it"]}
    going = ToolResult.of("job j goes on\nnotice: no time limit: kill_shell ends it", data=data, advice=(ending,))
    for profile, name, arguments, expected in (
        ("hex", "bash", {"command": "x"}, "no time limit: kill_shell ends it"),
        ("gofastr", "Bash", {"cmd": "x"}, "no time limit\n[job j goes on]"),
    ):
        tool = faced(profile, name)
        assert tool.shown(tool.parse(arguments), going).text.endswith(expected)
