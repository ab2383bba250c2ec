"""Turns of an agent, against a server that speaks the protocols of the providers."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from pydantic_ai.messages import ModelResponse, ToolCallPart
from tests.support.agent_desk import agent_desk
from tests.support.model_server import Answer, Call, Cut, Failure, Gate, Reasoning, Text, call, say

from harness.agent.events import (
    AnswerDelta,
    ModelRetry,
    Notice,
    Origin,
    ReasoningDelta,
    RequestStarted,
    TurnCompleted,
    TurnStarted,
    TurnStatus,
    UsageChanged,
)
from harness.agent.messages.cleaning import without_secrets
from harness.agent.settings import AgentSettings
from harness.agent.storage import MemoryLog
from harness.errors import HarnessError
from harness.toolkit.events import JobExited, ToolCallCompleted, ToolCallProgress
from harness.toolkit.redaction.redactor import PatternRedactor
from harness.toolkit.values import CallStatus, JsonObject

PROVIDERS = ("openai", "openai-responses", "anthropic", "google")
LIMIT = 60.0


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_turn_calls_tools_and_ends_with_words(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [
        Answer((Reasoning("I look."), Text("Looking. "), Call("run_shell", shell("echo one; echo two")))),
        say("Two lines."),
    ]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script, provider=provider) as desk:
            result = await desk.agent.turn("how many lines?")
    assert (result.status, result.text, result.steps) == ("completed", "Two lines.", 2)
    assert "one\\ntwo" in desk.server.asked[1].text
    assert "".join(event.text for event in desk.seen if isinstance(event, AnswerDelta)) == "Looking. Two lines."
    assert "".join(event.text for event in desk.seen if isinstance(event, ReasoningDelta)) in ("I look.", "")
    assert isinstance(desk.seen[0], TurnStarted)
    assert isinstance(desk.seen[-1], TurnCompleted)
    assert len(desk.of(UsageChanged)) == 2
    assert result.spent.answers == 2


@pytest.mark.usefixtures("needs_process")
async def test_calls_of_one_answer_are_all_answered_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = (
        Call("run_shell", shell("echo first"), "a"),
        Call("no_such_tool", {}, "b"),
        Call("run_shell", "{broken", "c"),
        Call("time", {}, "d"),
    )
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [Answer(calls), say("ok")]) as desk:
            assert (await desk.agent.turn("go")).status == "completed"
    answers = [message for message in desk.server.asked[1].body["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in answers] == ["a", "b", "c", "d"]
    assert "first" in answers[0]["content"]
    assert "no_such_tool" in answers[1]["content"]


@pytest.mark.usefixtures("needs_process")
async def test_every_message_is_in_the_log_and_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "ghp_" + "a1B2" * 9
    log = MemoryLog()
    script = [Answer((Text(f"I use {secret}"), Call("run_shell", shell(f"echo {secret}")))), say("done")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script, log=log) as desk:
            await desk.agent.turn(f"log in with {secret}")
    assert len(log.messages) == 4
    assert [turn.status for turn in log.turns] == ["completed"]
    assert secret not in json.dumps([log.messages, [turn.prompt for turn in log.turns]])
    assert secret in desk.server.asked[0].text  # the model gets what its user typed
    assert secret not in "".join(event.text for event in desk.seen if isinstance(event, AnswerDelta))


def test_an_argument_that_has_the_name_of_a_secret_is_kept_without_it_also_in_an_object() -> None:
    call_part = ToolCallPart("run_shell", {"command": "deploy", "env": {"DB_PASSWORD": "hunter2", "MODE": "x"}})
    kept = without_secrets(ModelResponse(parts=[call_part]), PatternRedactor().text).parts[0]
    assert isinstance(kept, ToolCallPart)
    assert kept.args == {"command": "deploy", "env": {"DB_PASSWORD": "[redacted]", "MODE": "x"}}


@pytest.mark.usefixtures("needs_process")
async def test_what_a_provider_says_of_a_failure_is_told_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILD_TOKEN", "plain-words-only-1234")
    script = [Failure("overloaded", message="not plain-words-only-1234", headers={"Retry-After": "0"}), say("whole")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk:
            await desk.agent.turn("go")
    (retry,) = desk.of(ModelRetry)
    assert retry.reason.endswith("not [redacted]")


@pytest.mark.usefixtures("needs_process")
async def test_a_provider_that_fails_for_a_while_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [
        Failure("overloaded", headers={"Retry-After": "0"}),
        Answer((Text("half an ans"), Cut())),
        say("whole"),
    ]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk:
            result = await desk.agent.turn("go")
    assert (result.status, result.text) == ("completed", "whole")
    assert len(desk.of(ModelRetry)) == 2


@pytest.mark.usefixtures("needs_process")
async def test_a_refused_key_ends_the_turn_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [Failure("auth"), say("back")]) as desk:
            first = await desk.agent.turn("one")
            second = await desk.agent.turn("two")
    assert first.status == "failed"
    assert "key-of-the-test" not in first.failure
    assert (second.status, second.text) == ("completed", "back")
    assert "one" in desk.server.asked[-1].text


class FullDisk(MemoryLog):
    """A log that keeps nothing while the disk is full."""

    full = True

    async def turn_started(self, turn_id: str, prompt: str, origin: Origin = "operator") -> None:
        if self.full:
            raise HarnessError("the conversation could not be kept: no space left on device")
        await super().turn_started(turn_id, prompt, origin)

    async def turn_ended(self, turn_id: str, status: TurnStatus, usage: JsonObject | None = None) -> None:
        raise HarnessError("the conversation could not be kept: no space left on device")


@pytest.mark.usefixtures("needs_process")
async def test_a_turn_that_cannot_be_kept_is_not_worked_on_and_the_conversation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FullDisk()
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [say("done")], log=log) as desk:
            first = await desk.agent.turn("one")
            log.full = False
            second = await desk.agent.turn("two")
    assert (first.status, second.status) == ("failed", "completed")
    assert "no space left" in first.failure
    assert [event.text for event in desk.of(Notice)] == [
        "cannot store the end of the turn: the conversation could not be kept: no space left on device"
    ]
    assert len(desk.server.asked) == 1


@pytest.mark.usefixtures("needs_process")
async def test_cancel_stops_an_answer_and_keeps_what_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    script = [Answer((Text("I begin with the disk. "), gate, Text("never"))), say("fine")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(desk.agent.turn, "go")
                await desk.until(lambda: "the disk." in "".join(event.text for event in desk.of(AnswerDelta)))
                assert desk.agent.state.doing == "thinking"
                assert desk.agent.cancel()
            gate.open()
            assert [event.status for event in desk.seen if isinstance(event, TurnCompleted)] == ["cancelled"]
            assert not desk.agent.cancel()
            assert (await desk.agent.turn("and now?")).text == "fine"
    asked = desk.server.asked[-1].text
    assert "I begin with the disk." in asked
    assert "cancelled this turn" in asked


@pytest.mark.usefixtures("needs_process")
async def test_cancel_interrupts_the_command_and_runs_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [
        Answer((Call("run_shell", shell("echo on; sleep 600"), "a"), Call("run_shell", shell("touch never"), "b"))),
        say("fine"),
    ]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(desk.agent.turn, "go")
                await desk.until(lambda: any("on" in event.text for event in desk.of(ToolCallProgress)))
                assert desk.agent.state.doing == "calling"
                desk.agent.cancel()
            await desk.agent.turn("again")
    ended = [event.outcome.status for event in desk.seen if isinstance(event, ToolCallCompleted)]
    assert ended == [CallStatus.CANCELLED, CallStatus.CANCELLED]
    assert not (desk.home / "never").exists()
    answers = [message for message in desk.server.asked[-1].body["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in answers] == ["a", "b"]


@pytest.mark.usefixtures("needs_process")
async def test_a_turn_has_a_limit_of_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = AgentSettings(max_steps=2)
    script = [call("time"), call("time"), say("went on")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script, settings=settings) as desk:
            first = await desk.agent.turn("go")
            second = await desk.agent.turn("go on")
    assert (first.status, first.steps) == ("limit", 2)
    assert "max_steps" in first.failure
    assert second.text == "went on"


@pytest.mark.usefixtures("needs_process")
async def test_prompts_wait_for_each_other_and_can_be_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    script = [Answer((gate, Text("first"))), say("third")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk, anyio.create_task_group() as tasks:
            tasks.start_soon(desk.agent.serve)
            desk.agent.submit("one")
            second = desk.agent.submit("two")
            desk.agent.submit("three")
            await desk.seen_of(RequestStarted)
            assert [queued.prompt for queued in desk.agent.state.queue] == ["two", "three"]
            assert desk.agent.withdraw(second)
            assert not desk.agent.withdraw(second)
            gate.open()
            await desk.seen_of(TurnCompleted, 2)
            tasks.cancel_scope.cancel()
    assert [event.text for event in desk.seen if isinstance(event, TurnCompleted)] == ["first", "third"]


@pytest.mark.usefixtures("needs_process")
async def test_while_paused_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = [Answer((Call("run_shell", shell("touch begun"), "a"),)), say("done")]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk:
            desk.agent.pause("operator", "looks at it")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(desk.agent.turn, "go")
                await anyio.wait_all_tasks_blocked()
                assert desk.agent.state.doing == "paused"
                assert desk.server.asked == []
                desk.agent.resume_now("operator", "The operator ran: systemctl stop web")
    assert (desk.home / "begun").exists()
    assert "systemctl stop web" in desk.server.asked[0].text or "systemctl stop web" in desk.server.asked[1].text


@pytest.mark.usefixtures("needs_process")
async def test_the_end_of_a_background_job_wakes_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = [
        call("run_shell", {**shell("cat fifo"), "wait": False}),
        say("It runs."),
        say("It has ended."),
    ]
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script) as desk, anyio.create_task_group() as tasks:
            await desk.execution.run_shell("mkfifo fifo", cwd=str(desk.home))
            tasks.start_soon(desk.agent.serve)
            desk.agent.submit("start it")
            await desk.seen_of(TurnCompleted)
            await desk.execution.run_shell("echo end >fifo", cwd=str(desk.home))
            await desk.seen_of(TurnCompleted, 2)
            tasks.cancel_scope.cancel()
    assert len(desk.of(JobExited)) == 1
    assert [event.origin for event in desk.seen if isinstance(event, TurnStarted)] == ["operator", "jobs"]
    assert "has ended, with exit code 0" in desk.server.asked[-1].text


def shell(command: str) -> dict[str, object]:
    return {"command": command, "risk": "low", "mutation": False, "privesc": False, "why": "the test wants it"}
