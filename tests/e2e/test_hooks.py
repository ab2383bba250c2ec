"""The hooks of the settings file: every event runs a program, in one run of ``harness exec``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

from tests.e2e.test_exec import configure, shell
from tests.support.model_server import Answer, Call, Text, call, model_server, say
from tests.support.program import Program

from harness.toolkit.hooks.dispatch import HookEvent

EVENTS = get_args(HookEvent)


def written(log: Path) -> list[str]:
    return [json.loads(line)["event"] for line in log.read_text().splitlines()]


def test_all_events_run_a_program_in_one_run_of_an_agent(program: Program) -> None:
    log = program.home / "hooks.log"
    tables = "".join(
        f"[[hooks.{event}]]\ncommand = \"cat >>'{log}'; echo >>'{log}'\"\ntimeout = 30\n" for event in EVENTS
    )
    script = [
        Answer((Text("I look."), *shell("id -u >made").pieces)),
        call("task", {"prompt": "look around", "description": "looking"}),
        say("nothing there"),
        Answer((Call("compact", {}),)),
        say("done"),
    ]
    with model_server(script) as server:
        configure(program, server, tables)
        done = program.run("exec", "--dangerously-auto-approve", "go")
        assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr
        assert server.refused == []
    assert (program.home / "made").exists()
    found = written(log)
    assert set(found) == set(EVENTS)
    assert (found[0], found[1], found[-2], found[-1]) == ("session_start", "pre_message", "stop", "session_end")
    assert found.index("pre_tool") < found.index("permission_request") < found.index("post_tool")


def test_a_prompt_that_a_hook_refuses_fails_and_nothing_is_asked(program: Program) -> None:
    refuses = "[[hooks.pre_message]]\ncommand = \"echo 'not now' >&2; exit 1\"\ntimeout = 30\n"
    with model_server([]) as server:
        configure(program, server, refuses)
        done = program.run("exec", "go")
        assert server.asked == []
    assert done.returncode != 0
    assert b"a hook denied the message: not now" in done.stderr
