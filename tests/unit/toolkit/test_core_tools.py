"""The base tools: on the backend in memory, on this machine, and in a real terminal."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toolbox import Toolbox, Trace, Words, toolbox

import harness_tools
from harness import Config, ExecutionContext, connect
from harness.results import Status
from harness.testing.memory import MemoryBackend, ScriptedReply
from harness.toolkit import CallOutcome, CallStatus, Executor, Registry, Services, ToolCall
from harness.toolkit.events import JobStarted, ToolCallProgress
from harness.toolkit.registry import schema_gaps
from harness.toolkit.result_cache import ResultCache
from harness.toolkit.session.file_versions import ReadTracker
from harness.toolkit.values import Subject
from harness_tools.core import Format, time_text, tools
from harness_tools.files import MAX_SHOWN_CHARS, whole_characters
from harness_tools.terminal import keys_text


def box(execution: ExecutionContext | None = None, backend: MemoryBackend | None = None) -> Toolbox:
    """The tools with a real read tracker and a real cache."""
    made = toolbox(tools(), execution=execution, backend=backend)
    old = made.executor
    services = Services(made.policy, made.ledger, Words(Trace()), made.outputs, ResultCache())
    reads = ReadTracker().of("s1", old.execution)
    made.executor = Executor(old.execution, old.registry, services, old.events, reads, "s1")
    return made


async def call(made: Toolbox, name: str, **arguments: Any) -> CallOutcome:
    return await made.executor.call(ToolCall(name, arguments))


def subjects(name: str, **arguments: Any) -> tuple[Subject, ...]:
    tool = Registry(tools()).lookup(name)
    return tool.subjects(tool.parse(arguments))


# -- what they say of themselves


def test_the_set_has_the_names_and_aliases_that_people_know() -> None:
    found = Registry(tools())
    names = ["capture_pane", "edit", "read_file", "run_shell", "send_keys", "time", "write_file"]
    assert [tool.name for tool in found.list()] == names
    for alias, own in {"capture-pane": "capture_pane", "send-keys": "send_keys", "bash": "run_shell"}.items():
        assert found.aliases[alias] == own
    assert [tool.name for tool in found.read_only().list()] == ["capture_pane", "read_file", "time"]
    assert [schema_gaps(tool) for tool in found.list()] == [()] * len(names)
    assert found.packs("core").definitions() == found.definitions()


def test_the_policy_sees_what_would_be_touched() -> None:
    assert subjects("run_shell", command="rm -r x", cwd="/srv", pane="db") == (
        Subject("command", "rm -r x", "/srv", "db"),
    )
    assert subjects("read_file", file_path="~/a") == (Subject("read", "~/a"),)
    assert subjects("write_file", path="a", content="") == (Subject("write", "a"),)
    keys = subjects("send_keys", literal_text="cat <<x", keys=["Up"], enter=True, target="%3")
    assert keys == (Subject("keys", "cat <lt><lt>x<Up><Enter>", pane="%3"),)


def test_typed_angle_brackets_are_no_named_keys() -> None:
    assert keys_text("<Enter>", (), enter=False) != keys_text("", ("Enter",), enter=False)
    assert keys_text("<lt>", (), enter=False) == "<lt>lt>"


async def test_only_a_terminal_offers_the_tools_for_panes(here: ExecutionContext) -> None:
    offered = await Registry(tools()).available(here)
    assert [tool.name for tool in offered.list()] == ["edit", "read_file", "run_shell", "time", "write_file"]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("run_shell", {"command": ""}, "command: "),
        ("run_shell", {"command": "a\0b"}, "command: .*NUL"),
        ("run_shell", {"command": "x", "wait": "soon"}, "wait: .*not a duration"),
        ("run_shell", {"command": "x", "wait": 0}, "wait: .*positive"),
        ("run_shell", {"command": "x", "risk": "extreme"}, "risk: "),
        ("read_file", {"path": "a\0b"}, "path: .*NUL"),
        ("read_file", {"path": "a", "byte_limit": MAX_SHOWN_CHARS + 1}, "byte_limit: "),
        ("write_file", {"path": "a", "content": "\ud800"}, "content: "),
        ("write_file", {"path": "a"}, "content: required"),
        ("send_keys", {}, "nothing to type"),
        ("send_keys", {"enter": True, "delay": "2s", "delay_ms": 2}, "contradict"),
        ("send_keys", {"enter": True, "delay": "99h"}, "the maximum is 10m"),
        ("capture_pane", {"delay_ms": 600_001}, "the maximum is 10m"),
        ("capture_pane", {"delay_ms": 10**400}, "the maximum is 10m"),
        ("capture_pane", {"delay": []}, "delay: input should be a number or a text"),
        ("write_file", {"path": "x", "content": "\ud800"}, "content: it contains '.ud800', half of a surrogate pair"),
        ("capture_pane", {"delay": "later"}, "delay: "),
        ("capture_pane", {"start": "top"}, "start"),
        ("time", {"format": "stardate"}, "format: "),
    ],
)
async def test_mistakes_are_told_as_mistakes_of_the_arguments(name: str, arguments: Any, message: str) -> None:
    made = box()
    outcome = await call(made, name, **arguments)
    assert outcome.result.error_code == "invalid_args"
    assert re.search(message, outcome.result.text), outcome.result.text
    assert made.ledger.begun == []


# -- run_shell


async def test_a_command_gives_its_code_and_both_streams() -> None:
    made = box(backend=MemoryBackend({"x": ScriptedReply("out\n", "err\n", 3)}))
    outcome = await call(made, "run_shell", cmd="x", wait="true", why="to see", risk="low")
    assert outcome.result.text == "exit code: 3\nstdout:\nout\nstderr:\nerr"
    assert (outcome.status, outcome.result.error_code) == (CallStatus.ERROR, "exit_code")
    assert made.ledger.begun[0].details == {"why": "to see", "risk": "low"}
    assert made.ledger.ended[0][3] == "1"  # the job


async def test_a_command_without_output_says_so() -> None:
    outcome = await call(box(backend=MemoryBackend({"x": ScriptedReply()})), "run_shell", command="x")
    assert (outcome.status, outcome.result.text) == (CallStatus.OK, "exit code: 0\n(no output)")


async def test_a_command_that_is_not_waited_for_is_a_job_that_goes_on() -> None:
    made = box(backend=MemoryBackend({"make hunter2": ScriptedReply(status=Status.RUNNING)}))
    with made.events.subscribe() as events:
        outcome = await call(made, "run_shell", command="make hunter2", wait=False)
        started = [event for event in events.drain() if isinstance(event, JobStarted)]
    assert (outcome.status, outcome.result.text) == (CallStatus.OK, "job 1 is still running\n(no output)")
    assert [(event.job_id, event.command) for event in started] == [("1", "make [redacted]")]


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    """This machine without a terminal, with its state apart."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as opened:
        yield opened


async def test_a_real_command_shows_its_progress_and_runs_where_it_is_told(
    here: ExecutionContext, tmp_path: Path
) -> None:
    made = box(here)
    with made.events.subscribe() as events:
        outcome = await call(made, "run_shell", command="pwd; printf 'é\\n' >&2; exit 4", cwd=str(tmp_path))
        shown = "".join(event.text for event in events.drain() if isinstance(event, ToolCallProgress))
    assert outcome.result.text == f"exit code: 4\nstdout:\n{tmp_path}\nstderr:\né"
    assert sorted(shown.split()) == sorted([str(tmp_path), "é"])


async def test_a_real_command_that_takes_too_long_is_told_as_what_it_is(here: ExecutionContext) -> None:
    made = box(here)
    outcome = await call(made, "run_shell", command="echo so far; exec sleep 60", wait="500ms")
    assert (outcome.status, outcome.result.error_code) == (CallStatus.TIMEOUT, "timed_out")
    assert "so far" in outcome.result.text


# -- files


async def test_a_file_is_read_written_and_read_again(here: ExecutionContext, tmp_path: Path) -> None:
    made, path = box(here), str(tmp_path / "new" / "file")
    assert (await call(made, "read_file", path=path)).result.error_code == "file_not_found"
    wrote = await call(made, "write_file", path=path, text="one\n")
    assert wrote.result.text == f"Wrote 4 bytes to a new file {path}"
    assert (await call(made, "read_file", path=path)).result.text == "one\n"
    Path(path).write_text("two\n")
    assert (await call(made, "write_file", path=path, content="three\n")).result.error_code == "stale"
    again = await call(made, "read_file", path=path)
    assert (again.result.text, again.cached) == ("two\n", False)
    assert (await call(made, "read_file", path=path)).cached
    assert (await call(made, "write_file", path=path, content="three\n")).status is CallStatus.OK
    assert (await call(made, "write_file", path=path, content="four\n", mode="append")).status is CallStatus.OK
    assert (await call(made, "write_file", path=path, content="", mode="create")).result.error_code == "file_exists"
    assert Path(path).read_text() == "three\nfour\n"


async def test_a_session_that_gets_a_remembered_result_has_read_the_file_itself(
    here: ExecutionContext, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    made = box(here)
    old, tracker = made.executor, ReadTracker()
    agents = [
        Executor(here, old.registry, old.services, old.events, tracker.of(name, here), name) for name in ("one", "two")
    ]
    for agent in agents:
        assert (await agent.call(ToolCall("read_file", {"path": str(file)}))).result.text == "old"
    wrote = await agents[1].call(ToolCall("write_file", {"path": str(file), "content": "new"}))
    assert wrote.status is CallStatus.OK


async def test_a_long_file_is_read_in_parts_that_say_how_to_go_on(here: ExecutionContext, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("aé" * 10)
    made = box(here)
    first = await call(made, "read_file", path=str(file), byte_limit=8)
    assert first.result.text == "aéaéa\n[bytes 0 to 7 of 30; continue with byte_offset=7]"
    assert (await call(made, "write_file", path=str(file), content="x")).result.error_code == "not_read"
    rest = await call(made, "read_file", path=str(file), byte_offset=7)
    assert rest.result.text == "é" + "aé" * 7 + "\n[bytes 7 to 30 of 30]"
    assert (await call(made, "write_file", path=str(file), content="x")).status is CallStatus.OK


async def test_the_longest_answer_is_not_cut_again(here: ExecutionContext, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x" * (MAX_SHOWN_CHARS + 5))
    outcome = await call(box(here), "read_file", path=str(file), byte_limit=MAX_SHOWN_CHARS)
    assert outcome.result.text.startswith("x" * MAX_SHOWN_CHARS + "\n[bytes 0 to")
    assert "truncated" not in outcome.result.metadata


async def test_bytes_that_are_no_text_are_said_to_be_none(here: ExecutionContext, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\0")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "empty").write_bytes(b"")
    made = box(here)
    assert (await call(made, "read_file", path=f"{tmp_path}/binary")).result.error_code == "binary"
    assert (await call(made, "read_file", path=f"{tmp_path}/latin")).result.text == "caf\udce9"
    assert (await call(made, "read_file", path=f"{tmp_path}/empty")).result.text == "(the file is empty)"
    latin = await call(made, "write_file", path=f"{tmp_path}/latin", content="caf\udce9s")
    assert (latin.status, (tmp_path / "latin").read_bytes()) == (CallStatus.OK, b"caf\xe9s")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.integers(0, 80))
def test_a_part_of_a_text_ends_with_a_whole_character(text: str, length: int) -> None:
    data = text.encode()
    part = whole_characters(data[:length])
    assert data.startswith(part)
    assert len(data[:length]) - len(part) <= 3
    assert part.decode("utf-8", "strict") == data.decode("utf-8")[: len(part.decode("utf-8"))]


@pytest.mark.parametrize("data", [b"", b"\xff", b"a\xff", b"\x80\x80\x80\x80\x80", b"caf\xe9!"])
def test_bytes_that_are_no_utf_8_are_left_alone(data: bytes) -> None:
    assert whole_characters(data) == data


# -- the terminal


@pytest.fixture
async def terminal(
    needs_tmux: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ExecutionContext]:
    """This machine with a tmux server of its own."""
    assert shutil.which("tmux"), "these tests need tmux"
    socket = f"hx-{uuid.uuid4().hex[:8]}"
    for name, value in {"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path), "SHELL": "/bin/bash"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TMUX", raising=False)
    try:
        async with connect("local:", tmux=True, config=Config(tmux_socket=socket)) as opened:
            yield opened
    finally:
        subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True, env=dict(os.environ))


async def test_a_program_that_asks_is_seen_and_answered(terminal: ExecutionContext) -> None:
    made = box(terminal)
    with anyio.fail_after(30):
        offered = await made.executor.registry.available(terminal)
        assert len(offered.list()) == 7
        asking = await call(
            made, "run_shell", command="read -p 'Remove it? ' answer; echo \"you said $answer\"", wait=1
        )
        assert asking.result.text.startswith("job ")
        seen = await call(made, "capture-pane", start="-5")
        assert seen.result.text.rstrip().endswith("\nRemove it?")
        typed = await call(made, "send-keys", literal_text="yes <please>", enter=True, why="to answer")
        assert typed.status is CallStatus.OK
        job = asking.result.data["job_id"]  # type: ignore[index,call-overload]  # an object
        done = await terminal.wait(str(job))
        assert done.stdout.endswith("you said yes <please>\n")


async def test_a_pane_that_is_not_there_is_a_result(terminal: ExecutionContext) -> None:
    made = box(terminal)
    outcome = await call(made, "capture_pane", pane="nowhere")
    assert (outcome.result.error_code, outcome.error) == ("pane_gone", None)


async def test_without_a_terminal_the_tools_for_panes_say_so(here: ExecutionContext) -> None:
    outcome = await call(box(here), "send_keys", keys=["C-c"])
    assert (outcome.result.error_code, outcome.error) == ("unsupported_operation", None)


# -- time


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("epoch", "1708900000"),
        ("epoch_ms", "1708900000250"),
        ("epoch_ns", "1708900000250000000"),
        ("iso", "2024-02-25T22:26:40.250Z"),
        ("rfc2822", "Sun, 25 Feb 2024 22:26:40 +0000"),
        ("date", "2024-02-25"),
        ("time", "22:26:40"),
    ],
)
def test_the_time_is_written_as_asked(form: Format, text: str) -> None:
    assert time_text(1708900000.25, form) == text


async def test_the_time_is_that_of_the_clock_here(here: ExecutionContext) -> None:
    before = int(time.time())
    told = int((await call(box(here), "time")).result.text)
    assert before <= told <= int(time.time())


def test_the_context_of_a_call_is_all_that_a_tool_gets() -> None:
    """No tool looks at this machine: what it needs comes with the call."""
    found = set()
    for path in Path(harness_tools.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [item.name for item in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {name.partition(".")[0] for name in names}
    assert found & {"os", "pathlib", "subprocess", "socket", "shutil", "io", "time"} == set()
