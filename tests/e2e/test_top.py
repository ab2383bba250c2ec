"""``harness top``: the dashboard in a real terminal, through Textual's pilot, and its output without it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from tests.support.model_server import Answer, call, say
from tests.support.program import Program, program
from tests.support.seats import Seats, seats
from textual.pilot import Pilot
from textual.widgets import DataTable, Log

from harness.cli.top import app, command
from harness.cli.top.app import GUARD_SECONDS, Dashboard
from harness.cli.top.dialogs import OutputScreen
from harness.errors import ConfigError
from harness.live.announcement import Announcement, announce
from harness.live.sessions.command_session import CommandSession
from harness.toolkit.redaction.redactor import PatternRedactor

__all__ = ["program", "seats"]


def shell(command: str) -> Answer:
    return call("run_shell", {"command": command, "why": "to see", "risk": "low", "mutation": True, "privesc": False})


# -- in a terminal


async def test_a_waiting_call_is_approved_another_denied_and_a_third_changed(seats: Seats) -> None:
    script = [shell("touch one"), shell("touch two"), shell("touch three"), say("all done")]
    prompt = seats.take(script=script, size=(120, 40))
    await prompt.on_screen("»", "scripted")
    top = seats.take("top", "--name", "anna", size=(80, 24), variables={"NO_COLOR": "1"})
    await top.on_screen("1 session: 1 idle")
    prompt.enter("go")
    await top.on_screen("APPROVE?", "touch one", "may run_shell run on local", "why: to see")
    top.press("a")
    await top.on_screen("y: run it, once")
    top.press("Enter")
    assert not (seats.home / "one").exists()
    top.press("y")
    await top.on_screen("APPROVE?", "| touch two")  # not yet while the call only has begun: no key decides it then
    assert (seats.home / "one").exists()
    top.press("d")
    await top.on_screen("deny it; the model reads the reason")
    top.enter("not today")
    await top.on_screen("touch three", "| touch three")
    top.press("e")
    await top.on_screen("Ctrl-S: run the changed call")
    top.type("four; until test -e end; do sleep 0.1; done")
    await top.on_screen("touch threefour")
    top.press("C-s")
    await top.on_screen("1 session: 1 running", "s: touch threefour; until")  # what runs, not what was asked for
    (seats.home / "end").touch()
    await top.on_screen("1 session: 1 idle")
    await prompt.sees("→ yes, once, changed, by dashboard: anna", "all done")
    assert {name: (seats.home / name).exists() for name in ("two", "three", "threefour")} == {
        "two": False,
        "three": False,
        "threefour": True,
    }
    colors = {int(number) for number in re.findall(rb"[34]8;5;(\d+)", top.bytes)}
    assert colors <= {16, 59, 102, 145, 188, 231, *range(232, 256)}  # black, white and what is between them
    top.press("q")
    assert await top.ended() == 0
    assert prompt.model is not None
    assert "not today" in json.dumps(prompt.model.asked[-1].body)


async def test_enter_attaches_and_a_killed_process_is_shown_as_lost(seats: Seats) -> None:
    prompt = seats.take("--tmux", script=[say("hello")], size=(120, 40))
    await prompt.on_screen("»", "scripted")
    top = seats.take("top", size=(80, 24))
    await top.on_screen("1 session: 1 idle")
    top.press("Enter")
    await top.on_screen("agent: waits for a prompt")  # the status line of the session
    top.press("C-b", "d")
    await top.on_screen("1 session: 1 idle")
    prompt.signal("SIGKILL")
    await top.on_screen("LOST", "the process has died")
    top.press("x")
    await top.on_screen("no harness process runs")
    top.press("q")
    assert await top.ended() == 0


async def test_an_agent_is_paused_and_its_job_followed_and_killed(seats: Seats) -> None:
    settings = '[permissions]\nmode = "auto"\n'
    escapes = "printf 'last \\033[31mred\\033]0;evil\\a words\\n'"
    command = f"echo begun; while ! test -e go; do sleep 0.1; done; {escapes}; sleep 600"
    script = [call("run_shell", {"command": command, "wait": False, "why": "w"}), say("started")]
    prompt = seats.take("--tmux", script=script, settings=settings, size=(120, 40))
    await prompt.on_screen("»", "scripted")
    top = seats.take("top", size=(100, 30))
    prompt.enter("go")
    await top.on_screen("1 session: 1 idle", "└ job ")
    top.press("p")
    await top.on_screen("1 session: 1 paused", "paused by dashboard:")
    top.press("p")  # it is no switch: the agent may have been paused by somebody else a moment ago
    await top.on_screen("r resumes it", "1 session: 1 paused")
    top.press("r")
    await top.on_screen("1 session: 1 idle")
    top.press("Down", "t")
    await top.on_screen("begun", "Esc: close")
    (seats.home / "go").touch()
    await top.on_screen("last red words")
    top.press("Escape")
    await top.until(lambda: "Esc: close" not in top.screen, "the table")
    top.press("k")
    await top.on_screen("y: kill job ")
    top.press("n")
    await top.until(lambda: "y: kill job " not in top.screen, "the table")
    top.press("k")
    await top.on_screen("y: kill job ")
    top.press("y")
    await top.until(lambda: "└ job " not in top.screen, "the end of the job")
    top.press("q")
    assert await top.ended() == 0


async def test_a_turn_that_ends_while_its_cancellation_is_confirmed_leaves_the_next_one_alone(seats: Seats) -> None:
    first, second = (
        call("run_shell", {"command": f"while ! test -e {name}; do sleep 0.1; done", "why": "w"}) for name in "ab"
    )
    script = [first, say("first done"), second, say("second done")]
    prompt = seats.take(script=script, settings='[permissions]\nmode = "auto"\n', size=(120, 40))
    await prompt.on_screen("»", "scripted")
    top = seats.take("top", size=(100, 30))
    prompt.enter("one")
    await top.on_screen("works on: one", "1 session: 1 running")
    top.press("k")
    await top.on_screen("y: cancel what this session does")
    (seats.home / "a").touch()
    await prompt.sees("first done")
    prompt.enter("two")
    await prompt.sees("test -e b")
    top.press("y")
    await top.on_screen("that turn has ended; nothing was cancelled", "works on: two", "1 session: 1 running")
    (seats.home / "b").touch()
    await prompt.sees("second done")
    top.press("q")
    assert await top.ended() == 0


async def test_a_prompt_without_a_model_is_shown_as_idle(seats: Seats) -> None:
    prompt = seats.take(size=(100, 30))
    await prompt.on_screen("no model is configured")
    top = seats.take("top", size=(80, 24))
    await top.on_screen("1 session: 1 idle", "idle      prompt", "no session")
    for key in ("a", "k", "t", "Enter"):
        top.press(key)
    await top.on_screen("no terminal to")
    prompt.press("C-d")
    await top.on_screen("no harness process runs")
    top.press("q")
    assert await top.ended() == 0


async def test_read_only_takes_no_action(seats: Seats) -> None:
    prompt = seats.take(script=[shell("touch made"), say("done")], size=(120, 40))
    await prompt.on_screen("»", "scripted")
    top = seats.take("top", "--read-only", size=(80, 24))
    await top.on_screen("READ ONLY", "1 idle")
    prompt.enter("go")
    await top.on_screen("APPROVE?")
    for key in ("a", "d", "e", "p", "r", "k"):
        top.press(key)
        await top.on_screen("started with --read-only")
    assert not (seats.home / "made").exists()
    top.press("q")
    assert await top.ended() == 0


# -- through the pilot, with many sessions


def command_session(target: str, command: str) -> CommandSession:
    return CommandSession(target, command, lambda: None, make_redactor=PatternRedactor)


@asynccontextmanager
async def many_sessions(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Announcement, Pilot[int], ExitStack]]:
    """A dashboard of 80 by 24 with so many sessions of this process."""
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    async with announce("python") as announcement:
        with ExitStack() as stack:
            for number in range(count):
                session = command_session(f"ssh://web{number:03}", f"command {number:03}")
                session.session_id = f"s{number:03}"
                stack.enter_context(announcement.session(session))
            async with Dashboard("anna").run_test(size=(80, 24)) as pilot:
                await shown(pilot, max(count, 1))
                yield announcement, pilot, stack


async def shown(pilot: Pilot[int], count: int) -> DataTable[Any]:
    """Wait until the table has so many rows."""
    table = pilot.app.query_one("#table", DataTable)
    with anyio.fail_after(30):
        while table.row_count != count:
            await pilot.pause(0.05)
    return table


def first_rows(table: DataTable[Any], column: int, count: int = 3) -> list[str]:
    return [str(table.get_row_at(row)[column]) for row in range(count)]


async def ordered(pilot: Pilot[int], *targets: str) -> None:
    """Wait until the first rows are those of these targets."""
    table = pilot.app.query_one("#table", DataTable)
    with anyio.fail_after(30):
        while first_rows(table, 2, len(targets)) != [*targets]:
            await pilot.pause(0.05)


async def test_five_hundred_sessions_are_filtered_sorted_and_kept_under_the_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with many_sessions(500, tmp_path, monkeypatch) as (announcement, pilot, stack):
        table = pilot.app.query_one("#table", DataTable)
        await pilot.press("slash", *"WEB03 command")
        await shown(pilot, 10)
        await pilot.press("enter", "s")  # by target
        await ordered(pilot, "ssh://web030", "ssh://web031", "ssh://web032")
        await pilot.press("S")
        await ordered(pilot, "ssh://web039", "ssh://web038", "ssh://web037")
        await pilot.press("up", "up")  # the cursor stayed on its row, which is the last one now
        await details_show(pilot, "command 032")
        await pilot.press("escape")
        await shown(pilot, 500)
        assert "command 032" in str(pilot.app.query_one("#text").render())  # the cursor is still there
        session = command_session("ssh://web999", "the last one")
        session.started = 1.0
        stack.enter_context(announcement.session(session))
        await shown(pilot, 501)
        assert "command 032" in str(pilot.app.query_one("#text").render())
        stack.close()
        await shown(pilot, 1)
        assert first_rows(table, 1, 1) == ["python"]  # the process itself


async def test_a_process_does_not_take_actions_of_its_own_children_or_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with many_sessions(1, tmp_path, monkeypatch) as (_, pilot, _):
        await details_show(pilot, "read only: this client may not act")
        await pilot.press("k")
        await pilot.pause(0.2)
        assert len(pilot.app.screen_stack) == 1


async def details_show(pilot: Pilot[int], text: str) -> None:
    """Wait until the details of the selected row contain a text."""
    with anyio.fail_after(30):
        while text not in str(pilot.app.query_one("#text").render()):
            await pilot.pause(0.01)


async def refuses(pilot: Pilot[int], key: str, reason: str) -> None:
    """Press a key, and wait for the message that refuses it."""
    await pilot.press(key)
    with anyio.fail_after(30):
        while not any(reason in one.message for one in pilot.app._notifications):
            await pilot.pause(0.01)
    assert len(pilot.app.screen_stack) == 1


async def test_no_key_acts_on_what_has_just_replaced_what_it_was_meant_for(
    seats: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seats.environment.items():
        monkeypatch.setenv(name, value)
    now = 1000.0  # the time of the guard passes when the test says so
    monkeypatch.setattr(app, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
    prompt = seats.take(script=[shell("touch one"), shell("touch two"), say("done")], size=(120, 40))
    await prompt.on_screen("»", "scripted")
    command = subprocess.Popen([seats.program, "run", "--", "sleep 600"], cwd=seats.home)  # noqa: ASYNC220  # it only starts
    async with Dashboard("anna").run_test(size=(120, 40)) as pilot:
        try:
            await shown(pilot, 2)
            await details_show(pilot, "session")
            await pilot.press("up")
            await details_show(pilot, "sleep 600")
            prompt.enter("go")
            table = pilot.app.query_one("#table", DataTable)
            await prompt.until(lambda: "touch one" in first_rows(table, 3, 1), "the call, above the command")
            await details_show(pilot, "sleep 600")
        finally:
            command.terminate()
            command.wait(30)
        await shown(pilot, 1)
        await refuses(pilot, "k", "has just come to this row")
        pilot.app.clear_notifications()
        await refuses(pilot, "enter", "has just come to this row")
        await details_show(pilot, "| touch one")
        now += GUARD_SECONDS
        prompt.press("y")  # answered there, so that another call waits here
        await details_show(pilot, "| touch two")
        await refuses(pilot, "a", "another call waits here now")
        now += GUARD_SECONDS
        await pilot.press("a")
        await prompt.until(lambda: len(pilot.app.screen_stack) == 2, "the question")
        await pilot.press("y")
        await prompt.sees("done")
    assert (seats.home / "two").exists()


async def test_texts_of_processes_are_neither_markup_nor_escape_sequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with many_sessions(0, tmp_path, monkeypatch) as (announcement, pilot, stack):
        stack.enter_context(announcement.session(command_session("[red]x[/]", "\x1b]0;evil\a[link=x]\n[/]")))
        table = await shown(pilot, 1)
        with anyio.fail_after(30):
            while first_rows(table, 2, 1) == [""]:  # of the process without a session
                await pilot.pause(0.05)
        assert first_rows(table, 2, 1) == ["[red]x[/]"]
        assert first_rows(table, 3, 1) == ["\\x1b]0;evil\\x07[link=x] [/]"]


async def test_output_without_line_ends_is_shown_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def items() -> AsyncGenerator[dict[str, str]]:
        for _ in range(50):
            yield {"text": "x" * 10_000}
        yield {"text": "\nthe last line\n"}

    async with many_sessions(0, tmp_path, monkeypatch) as (_, pilot, _):
        screen = OutputScreen("output", items)
        await pilot.app.push_screen(screen)
        log = screen.query_one(Log)
        with anyio.fail_after(30):
            while "[the end]" not in log.lines:
                await pilot.pause(0.05)
        assert max(map(len, log.lines)) == OutputScreen.MAX_LINE_CHARS
        assert "".join(log.lines) == "x" * 500_000 + "the last line[the end]"


# -- without the dashboard


async def test_one_snapshot_as_a_table_and_as_json(program: Program) -> None:
    assert json.loads(program.run("top", "--json").stdout) == {"processes": []}
    with program.start("run", "--", "sleep 600") as process:
        try:
            while not (rows := program.run("top", "--once").stdout.decode().splitlines()):  # noqa: ASYNC110  # of another process
                await anyio.sleep(0.05)
            assert rows[0].split() == ["STATE", "KIND", "TARGET", "WHAT", "FOR", "COST"]
            assert rows[1].split()[:5] == ["running", "run", "local", "sleep", "600"]
            (found,) = json.loads(program.run("--json", "top").stdout)["processes"]
            assert (found["pid"], found["sessions"][0]["title"]) == (process.pid, "sleep 600")
            os.kill(process.pid, signal.SIGSTOP)  # it does not answer, and the snapshot ends all the same
            (found,) = json.loads(program.run("top", "--json").stdout)["processes"]
            assert found["sessions"] == []
        finally:
            process.kill()


def test_with_announce_false_no_dashboard_shows_a_process(program: Program) -> None:
    hidden_environment = program.environ | {"HARNESS_ANNOUNCE": "false"}
    argv = [program.path, "run", "--", "echo started; sleep 600"]
    hidden = subprocess.Popen(argv, cwd=program.home, env=hidden_environment, stdout=subprocess.PIPE)
    with hidden, program.start("run", "--", "echo started; sleep 500") as shown:
        try:
            for process in (hidden, shown):
                assert process.stdout is not None
                assert process.stdout.readline() == b"started\n"
            (found,) = json.loads(program.run("top", "--json").stdout)["processes"]
            assert found["pid"] == shown.pid
        finally:
            for process in (hidden, shown):
                process.kill()


def test_without_a_terminal_or_the_extra_it_says_what_to_do(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    done = program.run("top")
    assert (done.returncode, b"needs a terminal" in done.stderr, b"--once" in done.stderr) == (125, True, True)
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}.isatty", lambda: True, raising=False)
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs the extra view") as raised:
        command._check_possible()
    assert "view" in raised.value.hint
