"""Questions, memories and skills through the program: at a real terminal, in a pane, and over SSH."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import mcp_types as types
import pexpect
import pytest
from tests.support.mcp_program import Home, stdio_client_of
from tests.support.program import Program

pytestmark = pytest.mark.usefixtures("needs_process")

QUESTION = json.dumps(
    {
        "questions": [
            {"question": "Which\u001b[2J database?", "header": "Database", "options": ["PostgreSQL", "SQLite"]},
            {"question": "Which hosts?", "options": ["web1", "web2", "web3"], "multi_select": True},
        ]
    }
)


def at_terminal(program: Program, *options: str) -> pexpect.spawn[str]:
    words = [*options, "tools", "call", "ask_user_question", QUESTION]
    return pexpect.spawn(program.path, words, env=program.environ, cwd=str(program.home), encoding="utf-8", timeout=60)


# -- questions


def test_the_operator_answers_at_the_terminal_and_the_result_says_what(program: Program) -> None:
    child = at_terminal(program)
    child.expect_exact("harness: the agent asks 1 of 2 (Database):")
    child.expect_exact("| Which\\x1b[2J database?")  # shown, not obeyed
    child.expect_exact("  2. SQLite")
    child.expect_exact("(Ctrl-C to cancel): ")
    child.sendline("3")
    child.expect_exact("there are 2")
    child.expect_exact("(Ctrl-C to cancel): ")
    child.sendline("MySQL")
    child.expect_exact("harness: the agent asks 2 of 2:")
    child.expect_exact("(Ctrl-C to cancel): ")
    child.sendline("1,3")
    child.expect_exact("Database: in the user's own words: MySQL")
    child.expect_exact("Which hosts?: web1; web3")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_ctrl_c_at_a_question_cancels_the_call(program: Program) -> None:
    child = at_terminal(program)
    child.expect_exact("(Ctrl-C to cancel): ")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert (child.exitstatus, child.signalstatus) in ((128 + signal.SIGINT, None), (None, signal.SIGINT))
    (shown,) = json.loads(program.run("audit", "show", "--json").stdout)
    assert (shown["call"]["tool"], shown["status"]) == ("ask_user_question", "cancelled")


def test_an_end_of_file_declines_and_batch_asks_nobody(program: Program) -> None:
    for options, message in (((), "the user did not answer"), (("--batch",), "no user is available")):
        child = at_terminal(program, *options)
        if not options:
            child.expect_exact("(Ctrl-C to cancel): ")
            child.sendeof()
        child.expect_exact(message)
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 1


def test_without_a_terminal_the_answer_is_that_nobody_is_there(program: Program) -> None:
    with program.start("--json", "tools", "call", "ask_user_question", QUESTION, start_new_session=True) as running:
        document = json.loads(running.communicate(timeout=60)[0])
    assert (running.returncode, document["status"], document["error_code"]) == (1, "error", "no_user")


async def test_the_user_of_a_client_is_asked_and_what_is_noted_outlives_the_server(tmp_path: Path) -> None:
    home, asked = Home.make(tmp_path), list[str]()

    async def reply(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        own = {"answer_1": "2. SQLite", "answer_2_1": True, "other_2": "and web9"}
        return types.ElicitResult(action="accept", content={"decision": "once"} if "Allow" in params.message else own)

    async with stdio_client_of(home, elicitation_callback=reply) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        answered = await client.call_tool("ask_user_question", json.loads(QUESTION))
        kept = await client.call_tool("remember", {"content": "nginx is in /opt", "scope": "host"})
    assert "compact" not in names
    assert {"ask_user_question", "forget", "recall", "remember", "skill", "todo_write"} <= names
    assert "Which hosts?: web1; in the user's own words: and web9" in str(answered.content)
    assert (kept.is_error, len(asked)) == (False, 2)
    assert "| host: nginx is in /opt" in asked[1]
    async with stdio_client_of(home) as client:
        nobody = await client.call_tool("ask_user_question", json.loads(QUESTION))
        known = await client.call_tool("recall", {})
    assert (nobody.is_error, "no user is available" in str(nobody.content)) == (True, True)
    assert "m1 (host): nginx is in /opt" in str(known.content)


# -- memories


def memory(program: Program, *words: str) -> str:
    done = program.run("memory", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_the_operator_adds_to_what_agents_know_and_sees_it(program: Program) -> None:
    assert memory(program, "list") == ""
    assert not (program.home / "state").exists()
    assert memory(program, "add", "nginx is in /opt") == "m1\n"
    assert memory(program, "add", "--scope", "project", "--cwd", "/srv", "deploy\x1b[2J with make") == "m2\n"
    added = json.loads(memory(program, "--json", "add", "--scope", "global", "be brief"))["added"]
    assert (added["memory_id"], added["scope"], added["content"]) == ("m3", "global", "be brief")
    lines = memory(program, "list").splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["m1", "host"], ["m2", "project"], ["m3", "global"]]
    assert "deploy\\x1b[2J with make" in lines[2]
    recalled = json.loads(program.run("--json", "tools", "call", "recall").stdout)
    assert [one["memory_id"] for one in recalled["data"]["memories"]] == ["m3", "m1"]


def test_the_operator_chooses_what_to_see_and_removes_it(program: Program) -> None:
    memory(program, "add", "--scope", "global", "nginx is in /opt")
    memory(program, "add", "be brief")
    (found,) = json.loads(memory(program, "--json", "list", "--scope", "host"))
    assert (found["memory_id"], found["target"]) == ("m2", "local:")
    assert json.loads(program.run("--ssh", "elsewhere.invalid", "memory", "list", "--json").stdout) == []
    first = json.loads(program.run("memory", "list", "--json", MAIL_TOKEN="nginx is in").stdout)[0]
    assert first["content"] == "[redacted] /opt"  # it has become a secret since
    assert memory(program, "forget", "m1") == "nginx is in /opt\n"
    assert [one["memory_id"] for one in json.loads(memory(program, "--json", "list"))] == ["m2"]


def test_what_is_known_of_a_host_is_known_there_and_not_here(over_ssh: Program) -> None:
    assert over_ssh.run("memory", "add", "it runs the mail").stdout == b"m1\n"
    (found,) = json.loads(over_ssh.run("memory", "list", "--json").stdout)
    assert (found["scope"], found["target"].startswith("ssh://")) == ("host", True)
    assert over_ssh.run("tools", "call", "recall").stdout == b"m1 (host): it runs the mail\n"
    over_ssh.always = ()
    assert over_ssh.run("tools", "call", "recall").stdout == b"No memories\n"
    assert len(json.loads(over_ssh.run("memory", "list", "--json").stdout)) == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("add", "password=Tr0ub4dor-3x"), 125, "the text seems to contain a secret"),
        (("add", " "), 125, "cannot store the memory: it is empty"),
        (("add", "x" * 2_001), 125, "it is longer than 2000 characters"),
        (("add", "--cwd", "/srv", "x"), 125, "--cwd needs --scope project"),
        (("add", "--scope", "session", "x"), 125, "session"),
        (("forget", "m7"), 125, "unknown memory 'm7'"),
        (("forget", "x"), 125, "unknown memory 'x'"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(program: Program, words: tuple[str, ...], code: int, message: str) -> None:
    done = program.run("memory", *words)
    assert (done.returncode, message in done.stderr.decode()) == (code, True), done.stderr
    assert b"Tr0ub4dor" not in done.stderr
    assert not list(program.home.rglob("notebook.db"))


def test_a_damaged_notebook_is_said_and_stops_nothing_else(program: Program) -> None:
    assert program.run("memory", "add", "--scope", "global", "x").returncode == 0
    (database,) = program.home.rglob("notebook.db")
    database.write_bytes(b"this is no database, although it is quite long for what it is")
    before = database.read_bytes()
    for words in (("memory", "list"), ("memory", "add", "--scope", "global", "y"), ("tools", "call", "recall")):
        done = program.run(*words)
        assert (done.returncode, b"is damaged" in done.stderr, len(done.stderr.splitlines())) == (125, True, 1)
    assert database.read_bytes() == before
    assert program.run("tools", "call", "time").returncode == 0


# -- skills


def test_a_skill_is_loaded_and_its_script_runs_on_the_target(there: Program) -> None:
    folder = there.home / "config" / "harness" / "skills" / "deploy"
    write(folder / "SKILL.md", "---\nname: deploy\ndescription: How we deploy\n---\nRun scripts/run.sh.\n")
    write(folder / "scripts" / "run.sh", '#!/bin/sh\necho "ran $1"\n', 0o755)
    loaded = there.run("tools", "call", "skill", '{"name": "deploy"}')
    assert (loaded.returncode, b"Run scripts/run.sh." in loaded.stdout) == (0, True)
    call = ("--json", "tools", "call", "skill", '{"name": "deploy", "upload": true}')
    assert there.run(*call).returncode == 126
    done = there.run(*call[:3], "--yes", *call[3:])
    assert done.returncode == 0, done.stderr
    (script,) = json.loads(done.stdout)["data"]["files"]
    ran = there.run("run", "--no-tmux", "--", f"{script} here")
    assert (ran.returncode, ran.stdout) == (0, b"ran here\n")
    there.run("run", "--no-tmux", "--", f"rm -r {Path(script).parents[2]}")


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
