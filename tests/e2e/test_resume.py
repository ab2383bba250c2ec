"""Stored conversations from the command line: listed, named, exported, taken up again after a kill; and traces."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest
from tests.support.model_server import Answer, Call, ModelServer, Text, model_server, say
from tests.support.program import Program, options_of
from tests.support.seats import Seats, seats
from tests.support.sshd import SshServer

from harness.agent.trace.reading import read_trace

__all__ = ["seats"]

WHY = {"risk": "low", "mutation": True, "privesc": False, "why": "a test"}
AUTO = '[permissions]\nmode = "auto"\n'


def configure(program: Program, server: ModelServer) -> None:
    """Settings in which the server is the model."""
    folder = program.home / "config/harness"
    folder.mkdir(parents=True, exist_ok=True)
    table = f'[models.test]\nprovider = "openai"\nmodel = "m"\nbase_url = "{server.openai_url}"\nretries = 0\n'
    (folder / "config.toml").write_text(f'{table}key = {{ env = "TEST_KEY" }}\n{AUTO}')
    program.environ["TEST_KEY"] = "sk-the-key-of-this-test-0123456789"


def shell(command: str, text: str = "I look. ") -> Answer:
    return Answer((Text(text), Call("run_shell", {"command": command, **WHY})))


def told(program: Program, *words: str, code: int = 0, stdin: bytes = b"") -> str:
    done = program.run(*words, stdin=stdin)
    assert done.returncode == code, done.stderr
    return (done.stdout if code == 0 else done.stderr).decode()


@pytest.mark.timeout(300)
def test_conversations_are_kept_in_order_from_the_command_line(program: Program) -> None:
    with model_server([shell("false"), say("It failed."), say("Again.")]) as server:
        configure(program, server)
        told(program, "exec", "why is the disk full?")
        told(program, "exec", "another one")
    listed = json.loads(told(program, "--json", "resume", "--list"))
    assert [(one["title"], one["target"], one["turns"]) for one in listed] == [
        ("another one", "local:", 1),
        ("why is the disk full?", "local:", 1),
    ]
    first = listed[1]["session_id"]
    assert told(program, "resume", first[:6], "--name", "disk").startswith(f"renamed: {first} disk")
    lines = told(program, "resume", "--list").splitlines()
    assert lines[0].split() == ["ID", "CHANGED", "TARGET", "TMUX", "MODEL", "TURNS", "WHAT"]
    assert any(line.startswith(first) and line.endswith("disk: why is the disk full?") for line in lines)

    pipe = program.home / "pipe"
    os.mkfifo(pipe)
    assert "is not a regular file" in told(program, "resume", "--import", str(pipe), code=125)
    file = program.home / "it.json"
    told(program, "resume", "disk", "--export", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "It failed." in file.read_text()
    assert "file exists" in told(program, "resume", "disk", "--export", str(file), code=125)
    assert told(program, "resume", "disk", "--export", "-") == file.read_text()
    told(program, "resume", "--import", "-", stdin=file.read_bytes())
    strange = json.loads(file.read_text())
    strange["messages"][0] = {"kind": "strange"}
    said = told(program, "resume", "--import", "-", stdin=json.dumps(strange).encode(), code=125)
    assert "message 1 is invalid" in said
    assert "is not a harness conversation" in told(program, "resume", "--import", "-", stdin=b"{}", code=125)
    assert "deleted" in told(program, "resume", "disk", "--delete")
    assert len(json.loads(told(program, "--json", "resume", "--list"))) == 2

    left = json.loads(told(program, "--json", "resume", "--list"))
    kept, damaged = listed[0]["session_id"], next(one["session_id"] for one in left if one["title"] != "another one")
    with sqlite3.connect(program.home / "state/harness/sessions/sessions.db") as db:
        db.execute("UPDATE sessions SET turns = 'many' WHERE session_id = ?", (damaged,))
    db.close()
    done = program.run("resume", "--list")
    assert (done.returncode, kept in done.stdout.decode()) == (0, True)
    assert f"the conversation {damaged} is damaged" in done.stderr.decode()
    assert f"{damaged} is damaged" in told(program, "resume", damaged, code=125)
    assert told(program, "resume", damaged, "--delete") == f"deleted: {damaged}\n"

    for words, said in (
        (("--list", "--delete"), "contradict each other"),
        (("--target", "ssh://web1", "--last"), "no conversation with ssh://web1 is stored"),
    ):
        assert said in told(program, "resume", *words, code=125)
    elsewhere = told(program, "--target", "ssh://web1", "resume", listed[0]["session_id"], code=125)
    assert "belongs to local:, not to ssh://web1" in elsewhere
    assert "--allow-other-target" in elsewhere


def test_what_cannot_be_stored_is_answered_all_the_same_and_that_is_said(program: Program) -> None:
    (program.home / "state/harness").mkdir(mode=0o700, parents=True)
    (program.home / "state/harness/sessions").write_text("")
    with model_server([say("Here I am.")]) as server:
        configure(program, server)
        done = program.run("exec", "are you there?")
    assert (done.returncode, done.stdout) == (0, b"Here I am.\n")
    assert b"this conversation is not stored: the conversations in" in done.stderr
    assert "cannot be used: Not a directory" in told(program, "resume", "--list", code=125)


@pytest.mark.timeout(300)
def test_a_traced_run_can_be_summed_up_replayed_and_looked_into(program: Program) -> None:
    with model_server([shell("echo rainbow; exit 3"), say("It says rainbow.")]) as server:
        configure(program, server)
        told(program, "exec", "--trace", "run.trace", "where is it?")
    assert stat.S_IMODE((program.home / "run.trace").stat().st_mode) == 0o600
    assert "sk-the-key" not in (program.home / "run.trace").read_text()
    summary = json.loads(told(program, "trace", "summary", "run.trace", "--json"))
    assert (summary["target"], summary["turns"], summary["requests"]) == ("local:", {"completed": 1}, 2)
    assert summary["tools"]["run_shell"]["errors"] == 1
    text = told(program, "trace", "summary", "run.trace")
    assert "turns: 1 completed" in text
    assert "run_shell" in text
    replay = told(program, "trace", "replay", "run.trace", "--turn", "1")
    for part in ("== turn 1", "| where is it?", "| rainbow", "It says rainbow."):
        assert part in replay
    assert json.loads(told(program, "--json", "trace", "replay", "run.trace"))[0]["turn"] == 1
    assert "the trace has 1 turns" in told(program, "trace", "replay", "run.trace", "--turn", "2", code=125)
    steps = json.loads(told(program, "--json", "trace", "context", "run.trace"))
    assert [step["step"] for step in steps] == [1, 2]
    assert "MESSAGES" in told(program, "trace", "context", "run.trace")
    assert "where is it?" in told(program, "trace", "context", "run.trace", "--request", str(steps[1]["request"]))
    assert "does not contain all of request 99" in told(
        program, "trace", "context", "run.trace", "--request", "99", code=125
    )
    kept = program.home / "notes.txt"
    kept.write_text("mine\n")
    assert "is not a trace file" in told(program, "exec", "--trace", str(kept), "x", code=125)
    assert kept.read_text() == "mine\n"


@pytest.mark.timeout(300)
async def test_after_a_kill_the_conversation_goes_on_in_its_session_and_both_sides_are_told(seats: Seats) -> None:
    done = seats.private / "done"
    command = f"touch {done}.begun; until [ -e {done} ]; do sleep 0.1; done; echo finished"
    first = seats.take("--tmux", "work", script=[shell(command, "I build it. ")], settings=AUTO)
    await first.on_screen("»", "idle")
    first.enter("build the release")
    await first.until(lambda: Path(f"{done}.begun").exists(), "the command runs")
    first.signal("SIGKILL")
    trace = seats.private / "second.trace"
    second = seats.take(
        "resume", "--last", "--trace", str(trace), script=[say("I wait for it.")], settings=AUTO, size=(200, 50)
    )
    await second.sees("build the release", "was interrupted when harness exited", "its command is still running")
    await second.on_screen("idle", "· 1 job")
    second.enter("go on")
    await second.sees("I wait for it.")
    await second.until(lambda: '"turn_completed"' in trace.read_text(), "the trace of the turn")
    assert [line.kind for line in read_trace(trace)].count("model_response") == 1
    assert second.model is not None
    asked = json.dumps(second.model.asked[0].body)
    for part in ("build the release", "I build it.", "harness was restarted", "its command is still running"):
        assert part in asked
    done.touch()
    second.press("C-d")
    assert await second.ended() == 0


@pytest.mark.timeout(300)
async def test_a_call_of_which_nobody_knows_is_told_of_once(seats: Seats) -> None:
    first = seats.take(script=[shell("touch begun; sleep 4321")], settings=AUTO)
    await first.on_screen("»", "scripted", "idle")
    first.enter("go")
    await first.until((seats.home / "begun").exists, "the command")
    first.signal("SIGKILL")
    shutil.rmtree(seats.private / "state/harness/jobs")
    second = seats.take("resume", "--last", script=[], settings=AUTO, size=(200, 50))
    await second.sees("touch begun; sleep 4321: outcome unknown")
    await second.on_screen("»", "scripted", "idle")
    second.press("C-d")
    assert await second.ended() == 0
    assert second.history.count("1 earlier call(s) on this target") == 1


@pytest.mark.timeout(300)
async def test_a_conversation_moves_where_it_is_told_to_and_stays_there(seats: Seats, sshd: SshServer) -> None:
    first = seats.take(script=[say("I am here.")], settings=AUTO)
    await first.on_screen("»", "idle")
    first.enter("where are you?")
    await first.sees("I am here.")
    first.press("C-d")
    assert await first.ended() == 0
    session_id = first.history.rpartition("harness resume ")[2].split()[0]

    refused = seats.take(*options_of(sshd), "resume", session_id, size=(200, 24))
    assert await refused.ended() == 125
    assert "belongs to local:, not to ssh://" in refused.history

    moved = seats.take(
        *options_of(sshd), "resume", session_id[:7], "--allow-other-target", script=[say("I moved.")], settings=AUTO
    )
    await moved.on_screen("»", "ssh://", "idle")
    moved.enter("and now?")
    await moved.sees("I moved.")
    moved.press("C-d")
    assert await moved.ended() == 0
    assert moved.model is not None
    asked = json.dumps(moved.model.asked[0].body)
    assert "where are you?" in asked
    assert "This conversation continues on another target: it was local:" in asked

    again = seats.take("resume", session_id, script=[], settings=AUTO)
    await again.on_screen("»", "ssh://", "idle")
    again.press("C-d")
    assert await again.ended() == 0
