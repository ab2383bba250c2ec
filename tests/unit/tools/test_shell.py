"""run_shell: what its arguments mean, and that nothing that changes what a command does escapes the judge."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.permits import says
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.command import Command
from harness.results import Status
from harness.testing.memory import MemoryBackend, ScriptedReply
from harness.toolkit import CallOutcome, CallStatus, Subject, ToolCall
from harness.toolkit.events import ToolCallProgress
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.questions import ApprovalScope
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness_tools.shell import MAX_STDIN_CHARS, RunShell


async def call(box: Toolbox, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(100):
        return await box.executor.call(ToolCall("run_shell", arguments))


async def sent(handoff: float | None = None, **arguments: Any) -> tuple[CallOutcome, Command]:
    """The outcome, and what the target was asked."""
    reply = ScriptedReply(status=Status.RUNNING if arguments.get("command") == "long" else Status.COMPLETED)
    box = toolbox([RunShell()], backend=MemoryBackend(lambda command: reply))
    box.executor = replace(box.executor, handoff=handoff)
    outcome = await call(box, **{"command": "x", **arguments})
    assert outcome.error is None, outcome
    (command,) = box.backend.received
    return outcome, command


@pytest.mark.parametrize(
    ("cwd", "entered"), [("~", "/home/user"), ("~/a", "/home/user/a"), ("~ann", "~ann"), ("a", "a"), ("", None)]
)
async def test_the_home_is_the_one_that_the_judge_knows(cwd: str, entered: str | None) -> None:
    _, command = await sent(**({"cwd": cwd} if cwd else {}))
    assert command.cwd == entered


@pytest.mark.parametrize(
    ("arguments", "waiting", "seconds", "policy"),
    [
        ({}, True, 120.0, "kill"),
        ({"timeout": 5}, True, 5.0, "kill"),
        ({"timeout": "5"}, True, 5.0, "kill"),
        ({"timeout": "2m"}, True, 120.0, "kill"),
        ({"timeout_ms": 1500}, True, 1.5, "kill"),
        ({"timeout_ms": "1500", "timeout": 1.5}, True, 1.5, "kill"),
        ({"timeout": 5, "on_timeout": "kill"}, True, 5.0, "kill"),
        ({"timeout": 5, "on_timeout": "background"}, True, 5.0, "keep"),
        ({"timeout": 5, "on_timeout": "keep"}, True, 5.0, "keep"),
        ({"wait": "1h"}, True, 3600.0, "kill"),
        ({"wait": 7, "timeout": 7}, True, 7.0, "kill"),
        ({"wait": False}, False, 120.0, "kill"),
        ({"run_in_background": True}, False, 120.0, "kill"),
        ({"run_in_background": "true", "wait": True, "timeout": 30}, False, 120.0, "kill"),
    ],
)
async def test_how_long_a_command_is_waited_for(
    arguments: dict[str, Any], waiting: bool, seconds: float, policy: str
) -> None:
    _, command = await sent(**arguments)
    assert (command.wait, command.timeout, command.on_timeout) == (waiting, seconds, policy)


async def test_a_timeout_that_is_too_long_is_cut_and_said_to_be() -> None:
    outcome, command = await sent(timeout=3600)
    assert command.timeout == 600.0
    assert isinstance(outcome.result.data, dict)
    assert outcome.result.data["timeout_clamped"] == 600.0
    assert "notice: the timeout of 3600 s was reduced to the maximum of 600 s" in outcome.result.text
    fine, _ = await sent(timeout=600)
    assert isinstance(fine.result.data, dict)
    assert "timeout_clamped" not in fine.result.data


async def test_what_is_handed_over_is_never_ended_and_says_so() -> None:
    outcome, command = await sent(45.0, command="long", timeout=300, on_timeout="kill")
    assert (command.timeout, command.on_timeout) == (45.0, "keep")
    assert "has no timeout any more: kill_shell ends it" in outcome.result.text
    background, _ = await sent(command="long", run_in_background=True, timeout=5)
    assert "has no timeout: kill_shell ends it" in background.result.text


async def test_environment_and_input_go_to_the_command() -> None:
    _, command = await sent(env={"A": "1", "PORT": 8080, "RATE": 0.5}, stdin="in\n", tty=False, description="it")
    assert (command.env, command.stdin, command.tty) == (
        (("A", "1"), ("PORT", "8080"), ("RATE", "0.5")),
        b"in\n",
        False,
    )
    _, plain = await sent()
    assert (plain.env, plain.stdin, plain.tty) == ((), None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wait": 5, "timeout": 7}, "contradict"),
        ({"wait": "5s", "run_in_background": True}, "contradict"),
        ({"timeout": 5, "timeout_ms": 6}, "contradict"),
        ({"timeout_ms": "soon"}, "milliseconds"),
        ({"timeout": 0}, "positive"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": "nan"}, "duration"),
        ({"timeout_ms": "inf"}, "duration"),
        ({"on_timeout": "later"}, "on_timeout"),
        ({"env": {"A-B": "1"}}, "A-B.*variable"),
        ({"env": {"": "1"}}, "variable"),
        ({"env": {"É": "1"}}, "variable"),
        ({"env": {"A": "x\0"}}, "NUL"),
        ({"env": {"A": True}}, "env"),
        ({"env": {"A": None}}, "env"),
        ({"env": "A=1"}, "env"),
        ({"env": {f"A{number}": "" for number in range(101)}}, "more than 100"),
        ({"env": {"A": "x" * (MAX_STDIN_CHARS + 1)}}, "more than"),
        ({"stdin": "x" * (MAX_STDIN_CHARS + 1)}, "stdin"),
        ({"stdin": "\ud800"}, "stdin"),
        ({"stdin": 5}, "stdin"),
        ({"tty": "perhaps"}, "tty"),
        ({"descripton": "x"}, "did you mean 'description'"),
    ],
)
async def test_a_mistake_is_told_and_nothing_runs(arguments: dict[str, Any], message: str) -> None:
    box = toolbox([RunShell()])
    outcome = await call(box, command="x", **arguments)
    assert outcome.result.error_code == "invalid_args"
    assert re.search(message, outcome.result.text), outcome.result.text
    assert (box.backend.received, box.ledger.begun) == ([], [])


# -- what is judged


def subjects(**arguments: Any) -> list[str]:
    tool = RunShell()
    return [subject.text for subject in tool.subjects(tool.parse(arguments))]


def test_what_a_shell_reads_is_judged_as_a_command() -> None:
    assert subjects(command="sh", stdin="rm -r x") == ["sh", "rm -r x"]
    assert subjects(command="sudo -s", stdin="rm -r x") == ["sudo -s", "rm -r x"]
    assert subjects(command="ssh web1 /bin/bash -s", stdin="rm -r x") == ["ssh web1 /bin/bash -s", "rm -r x"]
    assert subjects(command="sort", stdin="rm -r x") == ["sort"]
    assert subjects(command="cat push.sh-old hash", stdin="b") == ["cat push.sh-old hash"]
    assert subjects(command="sh", stdin=" \n") == ["sh"]
    tool = RunShell()
    args = tool.parse({"command": "sh", "stdin": "x", "cwd": "/srv", "pane": "db"})
    assert tool.subjects(args)[1] == Subject("command", "x", "/srv", "db")
    assert tool.covered_arguments() == frozenset()


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    async with connect("local:", cwd=str(tmp_path)) as opened:
        yield opened


def judged(box: Toolbox, policy: RulePolicy) -> Toolbox:
    executor = replace(box.executor, services=replace(box.executor.services, policy=policy))
    return replace(box, executor=executor)


@pytest.mark.parametrize(
    "more",
    [
        {"env": {"PATH": "/tmp/evil"}},
        {"env": {"LD_PRELOAD": "/tmp/evil.so"}},
        {"env": '{"BASH_ENV": "/tmp/evil"}'},
        {"stdin": "x"},
    ],
)
async def test_a_harmless_command_with_environment_or_input_is_not_harmless(
    here: ExecutionContext, more: dict[str, Any]
) -> None:
    box = judged(toolbox([RunShell()], execution=here), RulePolicy())
    assert (await call(box, command="echo hello", env={}, tty=False, timeout=60)).status is CallStatus.OK
    denied = await call(box, command="echo hello", **more)
    assert denied.status is CallStatus.DENIED, denied.result.text


@pytest.mark.parametrize("cwd", ["~/hidden", "hidden", "hidden/link/..", "~/hidden/./sub/..", "./hidden"])
async def test_the_directory_that_is_judged_is_the_one_that_is_entered(
    here: ExecutionContext, tmp_path: Path, cwd: str
) -> None:
    (tmp_path / "hidden/sub").mkdir(parents=True)
    (tmp_path / "hidden/link").symlink_to("/usr")
    (tmp_path / "hidden/.aiexclude").write_text("plan")
    (tmp_path / "hidden/plan").write_text("nobody reads this")
    (tmp_path / "hidden/open").write_text("all read this")
    box = judged(toolbox([RunShell()], execution=here), RulePolicy())
    box.executor = replace(box.executor, cwd=str(tmp_path))
    denied = await call(box, command="cat plan", cwd=cwd)
    assert denied.status is CallStatus.DENIED, denied.result.text
    assert "all read this" in (await call(box, command="cat open", cwd=cwd)).result.text


async def test_a_lasting_answer_covers_the_command_with_that_environment_alone(here: ExecutionContext) -> None:
    approver = says(ApprovalScope.EXACT)
    box = judged(toolbox([RunShell()], execution=here), RulePolicy(approver=approver))
    for _ in range(2):
        assert (await call(box, command="touch a", env={"A": "1"})).status is CallStatus.OK
    assert len(approver.questions) == 1
    assert "env={'A': '1'}" in approver.questions[0].what
    for more in ({}, {"env": {"A": "2"}}, {"env": {"A": "1"}, "stdin": "x"}):
        await call(box, command="touch a", **more)
    assert len(approver.questions) == 4


async def test_what_nothing_may_do_is_not_done_through_the_input_of_a_shell(here: ExecutionContext) -> None:
    box = judged(toolbox([RunShell()], execution=here), RulePolicy(PermissionSettings(mode=Mode.AUTO)))
    assert (await call(box, command="sh", stdin="echo fine")).result.text == "exit code: 0\nstdout:\nfine"
    for command, stdin in (("sh", "cat ~/.ssh/id_rsa"), ("env sh -s", "x=1\ncat /etc/shadow"), ("bash", "rm -rf /")):
        assert (await call(box, command=command, stdin=stdin)).status is CallStatus.DENIED, stdin


# -- what comes of it


@pytest.mark.parametrize("command", ["id", "ls; make all", "$CMD x"])
@pytest.mark.parametrize("denied", ["sudo *", "sudo -u root *"])
async def test_what_denies_sudo_denies_another_user(denied: str, command: str) -> None:
    deny = Rule(Action.DENY, tool="run_shell", argument=denied, match=Match.GLOB)
    rules = (deny, Rule(Action.ALLOW, tool="run_shell"))
    for settings in (PermissionSettings(rules=rules), PermissionSettings(rules=rules[1:], blocked_commands=(denied,))):
        approver = says(ApprovalScope.ONCE)
        box = judged(toolbox([RunShell()]), RulePolicy(settings, approver=approver))
        done = await call(box, command=command, user="root")
        assert (done.status, approver.questions) == (CallStatus.DENIED, [])
        assert (await call(box, command=command)).status is not CallStatus.DENIED


async def test_both_streams_are_shown_as_what_they_are(here: ExecutionContext) -> None:
    box = toolbox([RunShell()], execution=here)
    with box.events.subscribe() as events:
        outcome = await call(
            box, command="printf 'é\\n'; printf 'bad\\n' >&2; cat; echo $A", stdin="in\n", env={"A": "x y"}
        )
        shown = [(event.stream, event.text) for event in events.drain() if isinstance(event, ToolCallProgress)]
    assert outcome.result.text == "exit code: 0\nstdout:\né\nin\nx y\nstderr:\nbad"
    parts = {name: "".join(part for stream, part in shown if stream == name) for name in ("stdout", "stderr")}
    assert parts == {"stdout": "é\nin\nx y\n", "stderr": "bad\n"}


async def test_what_was_written_before_the_time_was_over_is_kept(here: ExecutionContext) -> None:
    box = toolbox([RunShell()], execution=here)
    killed = await call(box, command="echo so far; echo bad >&2; exec sleep 4000", timeout=4)
    assert (killed.status, killed.result.error_code) == (CallStatus.TIMEOUT, "timed_out")
    assert killed.result.text.endswith("stdout:\nso far\nstderr:\nbad")
    kept = await call(box, command="echo so far; exec sleep 4000", timeout_ms=4000, on_timeout="background")
    assert (kept.status, kept.result.text.split("\n")[1:]) == (CallStatus.OK, ["stdout:", "so far"])
    assert isinstance(kept.result.data, dict)
    await here.kill(str(kept.result.data["job_id"]))
