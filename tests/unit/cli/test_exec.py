"""``harness exec``, as far as it is pure: prompts, rules, exit codes, and events as JSON."""

from __future__ import annotations

import json
import signal
from dataclasses import fields

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness.agent.events as agent_events
import harness.toolkit.events as toolkit_events
from harness.agent.models import ModelFailure
from harness.agent.turn import TurnResult
from harness.agent.usage import Usage
from harness.cli.exec.command import exec_, prompt_of, read_prompt
from harness.cli.exec.report import (
    ExecResult,
    RunningJob,
    exit_code,
    news_line,
    outcome_lines,
    progress_line,
    result_json,
    spent_since,
)
from harness.cli.exec.run import add_approval_rules, approval_rule
from harness.cli.output import as_json
from harness.errors import ConfigError, HarnessError
from harness.toolkit import CallOutcome, CallStatus, Image, Registry, Text, ToolCall, ToolResult
from harness.toolkit.assembly import ToolkitSettings
from harness.toolkit.events import Event, event_json, event_type
from harness.toolkit.permissions.deny_all import DenyAllApprover
from harness.toolkit.permissions.questions import ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import PermissionSettings
from harness_tools import core

CALL = ToolCall("run_shell", {"command": "reboot"}, call_id="c1", agent_id="agent")
QUESTION = ApprovalRequest(
    "q1", CALL, "reboot", "no rule allows it", "local:", (ApprovalScope.ONCE, ApprovalScope.DENY_ONCE)
)
ASKED = toolkit_events.PermissionAsked(request_id="q1", call=CALL, what="reboot", reason="no rule allows it")


@pytest.mark.parametrize("amount", ["nan", "inf", "1e999", "0", "-1"])
def test_a_budget_that_nothing_would_exceed_is_no_budget(amount: str) -> None:
    with pytest.raises(click.BadParameter, match=r"range x>0|is not an amount"):
        exec_.make_context("exec", ["--budget", amount, "x"])


# -- prompts


@pytest.mark.parametrize(("text", "data", "prompt"), [("go on", None, "go on"), ("", " why?\n", "why?")])
def test_a_prompt_is_words_or_standard_input(text: str, data: str | None, prompt: str) -> None:
    assert prompt_of(text, data) == prompt


def test_no_prompt_at_all_is_an_error() -> None:
    with pytest.raises(HarnessError, match="empty"):
        prompt_of("", " \n")


def test_an_input_that_never_ends_is_refused_and_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/zero") as endless:
        monkeypatch.setattr("sys.stdin", endless)
        with pytest.raises(HarnessError, match="standard input has more than 400000 characters"):
            read_prompt(["-"])


def test_words_have_the_same_limit() -> None:
    with pytest.raises(HarnessError, match="the prompt has more than"):
        read_prompt(["x" * 100_000] * 5)


@given(st.text())
def test_standard_input_after_words_is_marked_as_the_results_of_tools_are(data: str) -> None:
    first, _, rest = prompt_of("explain", data).partition("\n[untrusted output ")
    assert first.startswith("explain\n")
    mark, _, body = rest.partition("]\n")
    assert body == f"{data.rstrip(chr(10))}\n[end of output {mark}]"


def test_the_mark_of_standard_input_is_a_new_one_each_time() -> None:
    assert prompt_of("explain", "<b>") != prompt_of("explain", "<b>")


# -- approvals


@pytest.fixture
def registry() -> Registry:
    return Registry(core.tools())


@pytest.mark.parametrize(
    ("text", "tool", "argument"),
    [
        ("systemctl status *", "run_shell", "systemctl status *"),
        ("write_file:/etc/app/*", "write_file", "/etc/app/*"),
        ("run_shell: git pull", "run_shell", "git pull"),
        ("curl http://x", "run_shell", "curl http://x"),
        ("docker run a:b", "run_shell", "docker run a:b"),
    ],
)
def test_an_approval_is_a_rule_for_one_tool_and_one_target(
    registry: Registry, text: str, tool: str, argument: str
) -> None:
    rule = approval_rule(text, registry, "ssh://web1")
    assert rule == Rule(Action.ALLOW, "ssh://web1", tool, argument, Match.GLOB, origin="--approve")


@pytest.mark.parametrize("text", ["", "*", " ** ", "run_shell:", "run_shell:*", "? *"])
def test_an_approval_of_everything_is_refused(registry: Registry, text: str) -> None:
    with pytest.raises(ValueError, match="approve"):
        approval_rule(text, registry, "local:")


def test_rules_of_the_command_line_come_before_those_of_the_settings() -> None:
    mine, theirs = Rule(Action.ALLOW, tool="a"), Rule(Action.ASK, tool="a")
    settings = ToolkitSettings(permissions=PermissionSettings(rules=(theirs,)))
    assert add_approval_rules(settings, [mine]).permissions.rules == (mine, theirs)


async def test_nobody_denies() -> None:
    answer = await DenyAllApprover().ask(QUESTION)
    assert (answer.scope, answer.by) == (ApprovalScope.DENY_ONCE, "nobody")
    assert answer.reason.startswith("denied: approval required, but no approver is available (no rule allows it; ")


# -- endings


def ended(result: TurnResult, **more: object) -> ExecResult:
    return ExecResult(result, "k3f9-02mx-7yqa", 5, 1.5, result.spent, **more)  # type: ignore[arg-type]  # of the fields


@pytest.mark.parametrize(
    ("what", "code"),
    [
        (ended(TurnResult("completed", "yes")), 0),
        (ended(TurnResult("completed", "yes"), refused=(ASKED,)), 126),
        (ended(TurnResult("failed", failure="no")), 1),
        (ended(TurnResult("failed", failure="no"), refused=(ASKED,)), 1),
        (ended(TurnResult("failed", failure="no", error=ModelFailure("no", kind="auth"))), 1),
        (ended(TurnResult("failed", failure="no", error=ConfigError("there is no key"))), 125),
        (ended(TurnResult("limit", steps=5)), 3),
        (ended(TurnResult("limit", steps=4)), 4),
        (ended(TurnResult("cancelled")), 130),
        (ended(TurnResult("cancelled"), timed_out=True), 124),
        (ended(TurnResult("cancelled"), signal=15), 143),
        (ended(TurnResult("completed", "yes"), timed_out=True), 0),
    ],
)
def test_the_exit_code_says_how_it_ended(what: ExecResult, code: int) -> None:
    assert exit_code(what) == code
    assert result_json(what, "yes", "no")["exit_code"] == code


def test_the_result_has_everything_that_a_program_needs() -> None:
    spent = Usage(10, 2, cost=0.5, answers=1)
    what = ended(TurnResult("completed", "yes", steps=1, spent=spent), refused=(ASKED,), jobs=(RunningJob("7"),))
    assert json.loads(as_json(result_json(what, "yes", ""))) == {
        "type": "result",
        "session_id": "k3f9-02mx-7yqa",
        "status": "completed",
        "exit_code": 126,
        "text": "yes",
        "failure": "",
        "answers": 1,
        "seconds": 1.5,
        "usage": json.loads(as_json(dict(spent.json()))),
        "refused": [{"tool": "run_shell", "what": "reboot", "reason": "no rule allows it"}],
        "jobs": ["7"],
    }
    assert result_json(ended(TurnResult("cancelled"), timed_out=True), "", "")["status"] == "timed_out"


def test_what_a_run_has_used_is_what_the_conversation_has_used_since() -> None:
    before, now = Usage(10, 2, cost=0.5, answers=1), Usage(15, 4, 1, cost=0.75, unpriced=1, answers=3)
    assert spent_since(before, now) == Usage(5, 2, 1, cost=0.25, unpriced=1, answers=2)
    assert before + spent_since(before, now) == now


def test_what_is_said_at_the_end_names_what_to_do() -> None:
    assert outcome_lines(ended(TurnResult("completed", "yes")), "") == []
    lines = outcome_lines(ended(TurnResult("limit"), refused=(ASKED,), jobs=(RunningJob("7"),)), "it was enough")
    assert lines[0] == "it was enough"
    assert lines[1] == "denied, no approver available: run_shell reboot"
    attended = outcome_lines(ended(TurnResult("completed"), refused=(ASKED,), attended=True), "")
    assert attended[0] == "denied, no answer from the operator: run_shell reboot"
    assert "harness jobs wait 7" in lines[3]
    assert lines[-1] == "to resume: harness exec --conversation k3f9-02mx-7yqa 'continue'"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGPIPE, "cancelled: the reader of the output closed it"),
        (signal.SIGTERM, "cancelled by SIGTERM"),
        (signal.SIGINT, "cancelled by the operator"),
    ],
)
def test_a_turn_that_a_signal_ended_was_not_cancelled_by_the_operator(number: int, said: str) -> None:
    one = ended(TurnResult("cancelled"), signal=number)
    assert outcome_lines(one, "cancelled by the operator")[0] == said
    assert result_json(one, "", "cancelled by the operator")["failure"] == said


# -- events


def test_events_have_the_names_that_are_documented() -> None:
    assert event_type(toolkit_events.ToolCallRequested) == "tool_call_requested"
    assert event_type(agent_events.AnswerDelta) == "answer_delta"
    assert event_type(toolkit_events.TodoChanged) == "todo_changed"


def test_an_outcome_is_told_with_its_call_and_its_text() -> None:
    result = ToolResult((Text("a\udcff"), Image(b"123", "image/png")), data={"x": 1})
    outcome = CallOutcome(CALL, result, CallStatus.OK, seconds=0.25)
    event = toolkit_events.ToolCallCompleted(number=3, session_id="s", parent_call="p", outcome=outcome)
    assert json.loads(as_json(event_json(event))) == {
        "type": "tool_call_completed",
        "number": 3,
        "session_id": "s",
        "parent_call": "p",
        "outcome": {
            "call": {
                "call_id": "c1",
                "name": "run_shell",
                "arguments": {"command": "reboot"},
                "agent_id": "agent",
            },
            "status": "ok",
            "is_error": False,
            "error_code": "",
            "text": "a\ufffd\n[image/png, 3 bytes]",
            "data": {"x": 1},
            "seconds": 0.25,
            "cached": False,
        },
    }


EVENTS = [
    kind
    for module in (toolkit_events, agent_events)
    for name in module.__all__
    if isinstance(kind := getattr(module, name), type) and issubclass(kind, Event) and kind is not Event
]


@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_is_one_line_of_json_and_has_at_most_a_line_for_people(kind: type[Event]) -> None:
    values: dict[str, object] = {
        "call": CALL,
        "outcome": CallOutcome(CALL, ToolResult.failure("denied", "no\nmore"), CallStatus.DENIED),
        **dict.fromkeys(("seconds", "used", "limit"), 1.0),
    }
    given = {field.name: values.get(field.name, "1") for field in fields(kind)}
    event = kind(**given)  # type: ignore[arg-type]  # any text does where nothing computes with it
    line = as_json(event_json(event))
    assert "\n" not in line
    assert json.loads(line)["type"] == event_type(kind)
    assert "\n" not in progress_line(event)
    news_line(event)


def test_progress_says_what_runs_and_what_was_refused() -> None:
    asked = toolkit_events.ToolCallRequested(call=CALL, mutating=True)
    assert progress_line(asked) == "run_shell reboot"
    denied = CallOutcome(CALL, ToolResult.failure("denied", "not allowed: no"), CallStatus.DENIED)
    assert progress_line(toolkit_events.ToolCallCompleted(outcome=denied)) == "run_shell: denied: not allowed: no"
    assert progress_line(toolkit_events.ToolCallCompleted(outcome=CallOutcome(CALL, ToolResult(), CallStatus.OK))) == ""
    retry = agent_events.ModelRetry(turn_id="t", attempt=1, seconds=4.2, reason="busy")
    assert news_line(retry) == "retrying the model request in 4 s: busy"
