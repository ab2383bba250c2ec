"""Hooks of a conversation: what real programs are told, what they change, and what they refuse."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.agent_desk import agent_desk
from tests.support.model_server import Answer, Call, Text, call, say

from harness.agent.agent import Agent
from harness.agent.events import Notice
from harness.agent.opening import HumanHandlers
from harness.agent.storage import MemoryLog
from harness.cli.asking import PreApproved
from harness.errors import HarnessError
from harness.toolkit.hooks.command import CommandHook
from harness.toolkit.hooks.dispatch import RegisteredHook, event_named
from harness.toolkit.permissions.rules.settings import Mode

pytestmark = pytest.mark.usefixtures("needs_process")

LIMIT = 60.0
WHY = {"risk": "low", "mutation": True, "privesc": False, "why": "a test"}


def hook(event: str, log: Path, answer: str = "", *, background: bool = False) -> RegisteredHook:
    """A program that writes down what it is told, and answers."""
    program = f"cat >>'{log}'; echo >>'{log}'; printf %s '{answer}'"
    return RegisteredHook(event_named(event), CommandHook(program, timeout=30.0), background=background)


def told(log: Path) -> list[dict[str, Any]]:
    """What the program was told, each time."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def deny(reason: str) -> str:
    return json.dumps({"decision": "deny", "reason": reason})


def modify(**changes: Any) -> str:
    return json.dumps({"decision": "modify", **changes})


async def test_a_message_that_a_hook_denies_reaches_neither_the_model_nor_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, log = tmp_path / "seen", MemoryLog()
    hooks = (hook("UserPromptSubmit", seen, deny("not on fridays")),)
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [], log=log, hooks=hooks) as desk:
            result = await desk.agent.turn("restart the database")
            assert (result.status, result.failure) == ("failed", "a hook denied the message: not on fridays")
            assert desk.server.asked == []
    (one,) = told(seen)
    assert (one["event"], one["message"], one["data"]) == (
        "pre_message",
        "restart the database",
        {"origin": "operator"},
    )
    assert "restart" not in str(log.messages) + str(log.turns)


@pytest.mark.parametrize(
    ("program", "timeout", "reason"),
    [
        ("echo broken >&2; exit 3", LIMIT, "broken"),
        ("echo rubbish", LIMIT, "an invalid answer"),
        ("sleep 60", 0.5, "longer"),
    ],
)
async def test_a_hook_before_a_message_that_fails_denies_it(
    program: str, timeout: float, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = (RegisteredHook("pre_message", CommandHook(program, timeout=timeout)),)
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [], hooks=hooks) as desk:
            result = await desk.agent.turn("go")
            assert result.status == "failed"
            assert reason in result.failure
            assert desk.server.asked == []


async def test_a_message_is_what_a_hook_makes_of_it_and_keeps_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "ghp_" + "a1B2" * 9
    changed = tmp_path / "changed"
    program = f"""
import json, sys
given = json.load(sys.stdin)
open({str(changed)!r}, 'a').write(given['message'])
print(json.dumps({{'decision': 'modify', 'message': given['message'] if 'token' in given['message'] else 'be brief'}}))
"""
    (tmp_path / "hook.py").write_text(program)
    hooks = (RegisteredHook("pre_message", CommandHook(f"python3 '{tmp_path}/hook.py'", timeout=30.0)),)
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [say("yes"), say("ok")], hooks=hooks) as desk:
            await desk.agent.turn("tell me everything")
            await desk.agent.turn(f"my token is {secret}")
            first, second = (one.body["messages"][-1]["content"] for one in desk.server.asked)
    assert "be brief" in str(first)
    assert "everything" not in str(first)
    assert secret in str(second)
    assert secret not in changed.read_text()


async def test_a_hook_that_changes_a_message_around_a_secret_denies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = (hook("pre_message", tmp_path / "seen", modify(message="use [redacted] now")),)
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [], hooks=hooks) as desk:
            result = await desk.agent.turn("password: hunter2x")
    assert "around a secret" in result.failure


async def test_a_hook_changes_or_withholds_what_the_model_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, expected in (
        (modify(message="(a shorter answer)"), "(a shorter answer)"),
        (deny("too rude"), "[withheld by a hook: too rude]"),
        ("", "a long answer"),
    ):
        place = tmp_path / str(len(answer))
        place.mkdir()
        log = MemoryLog()
        hooks = (hook("post_message", place / "seen", answer),)
        with anyio.fail_after(LIMIT):
            async with agent_desk(place, monkeypatch, [say("a long answer"), say("x")], log=log, hooks=hooks) as desk:
                assert (await desk.agent.turn("go")).text == expected
                await desk.agent.turn("more")
                assert expected in str(desk.server.asked[1].body["messages"])
        assert expected in str(log.messages)
        assert [one["message"] for one in told(place / "seen")] == ["a long answer", "x"]


async def test_what_the_model_says_beside_a_call_is_changed_and_the_call_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [Answer((Text("I look."), Call("run_shell", {"command": "echo ran", **WHY}))), say("done")]
    seen = tmp_path / "seen"
    hooks = (hook("post_message", seen, modify(message="(words)")),)
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script, hooks=hooks) as desk:
            await desk.agent.turn("go")
            assert "ran" in desk.server.asked[1].text
            assert "I look." not in desk.server.asked[1].text
    assert [one["data"]["calls"] for one in told(seen)] == [1, 0]


async def test_a_hook_after_a_message_in_the_background_and_one_that_fails_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = tmp_path / "seen"
    hooks = (
        hook("post_message", seen, deny("no"), background=True),
        RegisteredHook("post_message", CommandHook("echo broken >&2; exit 1", timeout=30.0)),
    )
    with anyio.fail_after(LIMIT), caplog.at_level(logging.WARNING):
        async with agent_desk(tmp_path, monkeypatch, [say("words")], hooks=hooks) as desk:
            assert (await desk.agent.turn("go")).text == "words"
    assert len(told(seen)) == 1
    assert "a hook of post_message failed: broken" in caplog.text


async def test_a_question_about_a_call_that_a_hook_refuses_is_not_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, made = tmp_path / "seen", tmp_path / "made"
    script = [call("run_shell", {"command": f"touch {made}", **WHY}), say("a pity")]
    hooks = (hook("PermissionRequest", seen, deny("ask the team")), hook("notification", tmp_path / "notified"))
    people = HumanHandlers(approver=PreApproved())
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script, mode=Mode.ASK, handlers=people, hooks=hooks) as desk:
            await desk.agent.turn("go")
            assert "ask the team" in desk.server.asked[1].text
    (one,) = told(seen)
    assert (one["event"], one["call"]["tool"], one["call"]["arguments"]["command"]) == (
        "permission_request",
        "run_shell",
        f"touch {made}",
    )
    assert not made.exists()
    assert told(tmp_path / "notified") == []  # nobody was asked


async def test_a_question_and_a_notice_are_notifications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    script = [call("run_shell", {"command": f"touch {tmp_path}/made", **WHY}), say("done")]
    hooks = (hook("permission_request", tmp_path / "asked"), hook("Notification", seen))
    people = HumanHandlers(approver=PreApproved())
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script, mode=Mode.ASK, handlers=people, hooks=hooks) as desk:
            await desk.agent.turn("go")
            desk.agent.events.publish(Notice(text="the disk is full"))
    assert (tmp_path / "made").exists()
    assert len(told(tmp_path / "asked")) == 1
    assert [(one["data"]["kind"], one["message"]) for one in told(seen)] == [
        ("permission_request", f"touch {tmp_path}/made"),
        ("notice", "the disk is full"),
    ]


async def test_the_end_of_each_turn_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    hooks = (hook("Stop", seen, deny("cannot be refused")), hook("pre_message", tmp_path / "before"))
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [say("one"), say("two")], hooks=hooks) as desk:
            await desk.agent.turn("first")
            assert (await desk.agent.turn("second")).status == "completed"
    assert [(one["message"], one["data"]["status"], one["data"]["steps"]) for one in told(seen)] == [
        ("one", "completed", 1),
        ("two", "completed", 1),
    ]


async def test_a_compaction_that_a_hook_refuses_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [say(f"answer {number} {'x' * 900}") for number in range(6)]
    for answer in (deny("keep it all"), ""):
        place = tmp_path / f"place{len(answer)}"
        place.mkdir()
        hooks = (hook("PreCompact", place / "seen", answer),)
        script = [*turns, say("## Done")]
        with anyio.fail_after(LIMIT):
            async with agent_desk(place, monkeypatch, script, hooks=hooks) as desk:
                for number in range(6):
                    await desk.agent.turn(f"request {number}")
                assert await compacted(desk.agent) == (
                    "a hook denied compacting the conversation: keep it all" if answer else "done"
                )
        (one,) = told(place / "seen")
        assert (one["event"], one["data"]) == ("pre_compact", {"trigger": "request", "messages": 12})


async def compacted(agent: Agent) -> str:
    try:
        return "done" if await agent.compact() is not None else "nothing"
    except HarnessError as error:
        return error.message
