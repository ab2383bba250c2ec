"""Bytes that are no UTF-8, in names, texts and patterns: every tool takes and gives them as they are."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.toolkit import CallOutcome, Executor, ToolCall
from harness.toolkit.catalog import load_catalogue
from harness.toolkit.session.file_versions import ReadTracker
from harness.toolkit.tool_profiles import load_profile

pytestmark = pytest.mark.usefixtures("needs_process")

E = "\udce9"
"""The byte E9, which is é in Latin-1."""


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as opened:
        yield opened


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with such a name, and such files in it."""
    found = tmp_path / f"caf{E}"
    found.mkdir()
    (found / f"b{E}.txt").write_bytes(b"caf\xe9 one\n\tcaf\xe9 two\n")
    (found / f"a{E}.py").write_bytes(b"import os  # caf\xe9\n")
    return found


def box(execution: ExecutionContext, profile: str = "") -> Toolbox:
    known = load_catalogue().known
    made = toolbox([], execution=execution)
    registry = load_profile(profile).over(known) if profile else known
    reads = ReadTracker().of("s1", execution)
    made.executor = Executor(execution, registry, made.executor.services, made.executor.events, reads, "s1")
    return made


async def call(made: Toolbox, name: str, **arguments: Any) -> CallOutcome:
    return await made.executor.call(ToolCall(name, arguments))


async def test_every_tool_takes_and_gives_them_as_they_are(here: ExecutionContext, place: Path) -> None:
    made, file, source = box(here), f"{place}/b{E}.txt", f"{place}/a{E}.py"
    steps: list[tuple[str, dict[str, Any], str]] = [
        ("read_file", {"path": file}, f"caf{E} one\n"),
        ("ls", {"path": str(place)}, f"a{E}.py\nb{E}.txt"),
        ("stump", {"dir": str(place)}, f"b{E}.txt"),
        ("glob", {"pattern": f"caf{E}/a{E}*", "path": str(place.parent)}, source),
        ("grep", {"pattern": f"caf{E} (one|two)", "path": str(place)}, f"{file}:2:\tcaf{E} two"),
        ("grep", {"pattern": "caf", "path": str(place), "include": f"b{E}*"}, f"{file}:1:caf{E} one"),
        ("checkfor", {"search": f"caf{E} one", "dir": [str(place)]}, f"{file}:1:caf{E} one"),
        ("edit", {"path": file, "old_string": f"caf{E} one", "new_string": f"th{E} one"}, f"+th{E} one"),
        ("repfor", {"search": f"th{E}", "replace": f"z{E}", "file": [file], "exclude": [f"x{E}"]}, "Replaced 1 place"),
        ("notab", {"file": file}, "Replaced 1 tab"),
        ("splice", {"source": source, "target": file, "mode": "append"}, "Put 1 line"),
        ("split", {"file": file, "lines": [2]}, f"b{E}"),
        ("run_shell", {"command": f"cat b{E}.txt", "cwd": str(place), "tty": False}, f"    caf{E} two"),
        ("run_shell", {"command": "cat; printf %s $X", "stdin": f"st{E}", "env": {"X": f"x{E}"}}, f"st{E}x{E}"),
        ("errs", {"input": f"a{E}.c:3:1: error: caf{E}"}, f"a{E}.c:3:1: error: caf{E}"),
        ("imports", {"dir": str(place)}, f"a{E}.py"),
    ]
    for name, arguments, expected in steps:
        outcome = await call(made, name, **arguments)
        assert not outcome.result.is_error, (name, ascii(outcome.result.text))
        assert expected in outcome.result.text, (name, ascii(outcome.result.text))
    assert os.fsencode(file) in [os.path.join(os.fsencode(place), name) for name in os.listdir(os.fsencode(place))]
    assert Path(file).read_bytes() == b"z\xe9 one\n    caf\xe9 two\nimport os  # caf\xe9\n"


async def test_a_filter_of_a_job_s_output_finds_them(here: ExecutionContext) -> None:
    made = box(here)
    job = await here.run_shell("printf 'l\\351ne\\nother\\n'", timeout=60)
    outcome = await call(made, "bash_output", bash_id=job.job_id, filter=f"l{E}ne")
    assert outcome.result.text.endswith(f"stdout:\nl{E}ne\n[1 of 2 new lines match; since=0 reads all of them]")


NAMES = {
    "hex": ("file_path", "old_string", "new_string"),
    "hygge": ("path", "oldString", "newString"),
    "gofastr": ("path", "old_string", "new_string"),
}


@pytest.mark.parametrize("profile", NAMES)
async def test_every_profile_edits_them(here: ExecutionContext, place: Path, profile: str) -> None:
    made, file = box(here, profile), place / f"b{E}.txt"
    tools = {tool.own.name: tool.name for tool in made.executor.registry.list()}
    path, old, new = NAMES[profile]
    shown = await call(made, tools["read_file"], path=str(file))
    assert f"caf{E} one" in shown.result.text
    edited = await call(made, tools["edit"], **{path: str(file), old: f"caf{E} one", new: f"th{E} one"})
    assert not edited.result.is_error, ascii(edited.result.text)
    assert file.read_bytes() == b"th\xe9 one\n\tcaf\xe9 two\n"
