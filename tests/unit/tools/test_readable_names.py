"""A name on the target cannot look like another line of a listing, nor like a part of one."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.toolbox import toolbox

import harness
from harness.toolkit import ToolCall
from harness_tools.dev.replace import RepFor
from harness_tools.search import tools
from harness_tools.texts import readable_line, readable_name

NAMES = [
    "a\nauthorized_keys",
    "a\rb",
    "\x1b[2Jgone",
    "\x1b]0;title\x07",
    "txt.\u202eexe",
    "zero\u200bwidth",
    "line\u2028end",
    "c1\x9b31m",
    " before",
    "after ",
    "x -> secret",
    "[3 more files are not shown]",
    "$'a'",
    "quote's \\ and\ttab",
    os.fsdecode(b"bytes\xff\nfe"),
]
ORDINARY = [
    "a b",
    "[slug].tsx",
    "é.txt",
    "日本.md",
    "it's",
    "a\\b",
    "-x",
    "(empty directory)x",
    os.fsdecode(b"bytes\xff\xfe"),
]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("ls", {"path": "top"}),
    ("ls", {"path": "top", "long": True, "all": True}),
    ("glob", {"pattern": "top/*"}),
    ("stump", {"dir": "top"}),
    ("grep", {"pattern": "needle", "path": "top"}),
    ("grep", {"pattern": "needle", "path": "top", "output_mode": "files_with_matches"}),
    ("checkfor", {"search": "needle", "dir": ["top"]}),
    ("repfor", {"search": "needle", "replace": "thread", "dir": ["top"], "dry_run": True}),
]


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_on_one_line_as_bash_takes_it(name: str) -> None:
    shown = readable_name(name)
    assert shown.isprintable()
    assert shown != name
    given = subprocess.run(
        ["bash", "-c", f"printf %s {shown}"], stdout=subprocess.PIPE, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert given.stdout == os.fsencode(name)


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_name_stays(name: str) -> None:
    assert readable_name(name) == name


def test_a_line_of_the_target_is_one_line() -> None:
    assert readable_line("a\nb \x1b[1m it's") == "a\\nb \\x1b[1m it's"


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize(("tool", "arguments"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
async def test_no_tool_lists_a_name_as_it_is(tool: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    for name in [*NAMES, "plain.txt"]:
        (top / name).write_text("needle\n")
    os.symlink("x\nforged", top / "link")
    async with harness.connect("local:") as execution:
        box = toolbox([*tools(), RepFor()], execution=execution)
        with anyio.fail_after(60):
            outcome = await replace(box.executor, cwd=str(tmp_path)).call(
                ToolCall(tool, {**arguments, "max_results": 1000} if tool == "glob" else arguments)
            )
    text = outcome.result.text
    assert "plain.txt" in text
    assert not [letter for letter in text if not letter.isprintable() and letter not in "\n\t"]
    assert not [line for line in text.split("\n") if line.startswith(("authorized_keys", "forged", "nl/authorized"))]
    assert not [line for line in text.split("\n") if line.strip() == "[3 more files are not shown]"]
