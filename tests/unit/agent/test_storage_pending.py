"""What is said of calls that had no result when their harness died."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.agent_desk import agent_desk
from tests.support.model_server import say

import harness
from harness.agent.messages.compaction import is_prompt
from harness.agent.opening import ResumedConversation
from harness.agent.storage import ConversationNote, ConversationSummary, StoredConversation, StoredTurn
from harness.agent.storage.recovery import InterruptedWork, calls_not_started, in_flight, of_the_kill, pending_calls
from harness.agent.storage.values import IMPORTED
from harness.fleets import FleetContext
from harness.toolkit.audit import AuditCall, SqliteAuditLog
from harness.toolkit.interfaces import CallEntry, Verdict
from harness.toolkit.values import CallStatus, JsonObject, ToolCall

SESSION = "k3f9-02mx-7yqa"
TURN = StoredTurn(turn_id="t1", prompt="remove it", started=1.0)
PROMPT = json.dumps(
    {
        "kind": "request",
        "parts": [{"part_kind": "user-prompt", "content": "remove it", "timestamp": "2026-01-02T03:04:05Z"}],
    }
)


def asking(*calls: tuple[str, object]) -> str:
    """An answer with those calls."""
    parts = [
        {"part_kind": "tool-call", "tool_name": name, "args": args, "tool_call_id": f"c{number}"}
        for number, (name, args) in enumerate(calls)
    ]
    return json.dumps({"kind": "response", "parts": [{"part_kind": "text", "content": "so"}, *parts]})


def pending(name: str, **arguments: str) -> JsonObject:
    return {"tool": name, "arguments": arguments}


def known(name: str, at: float = 5.0, turn: str = "t1", status: str = "unknown", **arguments: str) -> AuditCall:
    return AuditCall(1, status, {"tool": name, "arguments": arguments, "at": at, "message_id": turn})


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (asking(("run_shell", '{"command": "rm x"}')), (pending("run_shell", command="rm x"),)),
        (
            asking(("a", {"x": "1"}), ("b", "no JSON"), ("c", None)),
            (pending("a", x="1"), pending("b", text="no JSON"), pending("c")),
        ),
        (PROMPT, ()),
        ("no JSON", ()),
        ("[1]", ()),
        ('{"kind": "response", "parts": 1}', ()),
        ('{"kind": "response", "parts": [1, {}]}', ()),
    ],
)
def test_the_calls_of_the_last_answer_wait_for_a_result(message: str, found: tuple[JsonObject, ...]) -> None:
    assert pending_calls([asking(("before", {})), message]) == found
    assert pending_calls([]) == ()


def test_what_the_audit_does_not_know_has_not_begun_unless_it_knows_a_stranger() -> None:
    first, second = pending("run_shell", command="a"), pending("run_shell", command="b")
    assert calls_not_started([first, second], []) == [first, second]
    assert calls_not_started([first, second], [known("run_shell", command="a")]) == [second]
    assert calls_not_started([first, first], [known("run_shell", command="a")]) == [first]
    assert calls_not_started([first, second], [known("run_shell", command="changed by the operator")]) == []


def test_the_calls_of_the_kill_are_found_whatever_the_clock_did() -> None:
    calls = [
        known("new", at=9.0, turn="t1", status="ok"),
        known("set back", at=1.0, turn="t1", status="unknown"),
        known("answered", at=1.0, turn="t1", status="ok"),
        known("before", at=1.0, turn="t0", status="unknown"),
    ]
    assert [call.call["tool"] for call in of_the_kill(calls, "t1", 5.0)] == ["new", "set back"]


def conversation(*calls: tuple[str, object]) -> StoredConversation:
    """One whose harness was killed after the model had asked for the calls."""
    summary = ConversationSummary(session_id=SESSION, created=0.0, changed=2.0, target="local:", identity="local:")
    return StoredConversation(session=summary, messages=(PROMPT, asking(*calls)), turns=(TURN,))


@pytest.mark.usefixtures("needs_process")
async def test_a_call_that_never_ran_is_called_so_to_the_operator_and_to_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell, question = ("run_shell", {"command": "rm -r /srv/x"}), ("ask_user_question", {"question": "sure?"})
    stored = conversation(shell, question)
    taken = ResumedConversation(stored.messages)
    async with agent_desk(tmp_path, monkeypatch, [say("fine")], resumed=taken, session_id=SESSION) as desk:
        never = await in_flight(stored, desk.toolkit.ledger, desk.execution, redact=str)
        assert never.operator.splitlines()[1:] == [
            "- run_shell rm -r /srv/x: it never ran: harness exited before it started",
            "- ask_user_question sure?: it never ran: harness exited before it started",
        ]
        asked = ToolCall(question[0], question[1], message_id="t1")
        entry = CallEntry(asked, SESSION, "local:", True, 3.0, Verdict(True, "", "policy"))  # True: it is written now
        await desk.toolkit.ledger.begin(entry)
        asked_for = await in_flight(stored, desk.toolkit.ledger, desk.execution, redact=str)
        assert asked_for.operator.splitlines()[1:] == [
            "- ask_user_question sure?: its question was not answered, and it changed nothing",
            "- run_shell rm -r /srv/x: it never ran: harness exited before it started",
        ]
        await desk.toolkit.ledger.end(asked.call_id, CallStatus.OK, "yes")
        desk.agent.notify_model(asked_for.model)
        assert not is_prompt(asked_for.model)  # a compaction keeps prompts word for word
        await desk.agent.turn("go on")
    told = desk.server.asked[0].text
    assert "- run_shell rm -r /srv/x: it never ran" in told
    assert told.index("no result of this call was stored") < told.index("it never ran")


@pytest.mark.usefixtures("needs_process")
async def test_of_what_came_from_another_place_the_audit_and_the_jobs_here_say_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = conversation(("run_shell", {"command": "make"}))
    note = ConversationNote(at=1.0, kind="job_left", text="1")
    counts: JsonObject = {"turns": 1, "notes": 1}
    came = replace(stored, session=replace(stored.session, options={IMPORTED: counts}), notes=(note,))
    moved = replace(stored, session=replace(stored.session, identity="ssh://web1"), notes=(note,))
    later = replace(came, turns=(*came.turns, replace(TURN, turn_id="t2")))
    async with agent_desk(tmp_path, monkeypatch, [], session_id=SESSION) as desk:
        found = await in_flight(came, desk.toolkit.ledger, desk.execution, redact=str)
        assert len(found.operator.splitlines()) == 1
        assert "was interrupted" in found.operator
        assert (found.ended, found.running) == ((), ())
        elsewhere = await in_flight(moved, desk.toolkit.ledger, desk.execution, redact=str)
        assert (len(elsewhere.operator.splitlines()), elsewhere.ended) == (1, ("1",))
        own = await in_flight(later, desk.toolkit.ledger, desk.execution, redact=str)
        assert "it never ran" in own.operator
        over = replace(came, turns=(replace(TURN, status="completed"),))
        assert await in_flight(over, desk.toolkit.ledger, desk.execution, redact=str) == InterruptedWork()


@pytest.mark.usefixtures("needs_process")
async def test_a_call_on_many_hosts_is_told_for_each_and_not_as_running_where_nothing_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = conversation(("run_shell", {"hosts": "*", "command": "make"}))
    session = replace(stored.session, target="fleet://web[1-2]", identity="fleet://web[1-2]")
    async with agent_desk(tmp_path, monkeypatch, [], session_id=SESSION) as desk, harness.fleet("web[1-2]") as fleet:
        ledger = desk.toolkit.ledger
        assert isinstance(ledger, SqliteAuditLog)
        for name in ("web1", "web2"):
            made = ToolCall("run_shell", {"command": "make"}, call_id=name, message_id="t1")
            await ledger.begin(CallEntry(made, SESSION, f"ssh://{name}", True, 3.0, Verdict(True, "", "policy")))
            ledger.started(name, "7")
        await ledger.end("web1", CallStatus.OK, "built", "7")
        found = await in_flight(replace(stored, session=session), ledger, FleetContext(fleet), redact=str)
    assert found.model.splitlines()[1:3] == [
        "- run_shell make on ssh://web1: it ended: ok, job 7; built",
        "- run_shell make on ssh://web2: outcome on ssh://web2 not yet known",
    ]
