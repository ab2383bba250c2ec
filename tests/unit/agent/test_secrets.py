"""Secrets that a model writes, or that come back to it: nowhere stored, and nowhere shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ThinkingPart, ToolCallPart, UserPromptPart
from tests.support.agent_desk import AgentDesk, agent_desk
from tests.support.model_server import Answer, Call, Failure, Reasoning, Text, call, say

from harness.agent.events import AnswerDelta, ConversationCompacted, Notice, ReasoningDelta
from harness.agent.messages.cleaning import without_secret_names, without_secrets
from harness.agent.messages.history import dumped
from harness.agent.storage import ConversationStore, NewConversation
from harness.agent.storage.conversation_log import JOB_LEFT
from harness.agent.storage.recovery import in_flight, resume_messages
from harness.toolkit.events import JobStarted
from harness.toolkit.redaction.redactor import MARK, PatternRedactor

LIMIT = 90.0
KNOWN = "correct-horse-battery-9x71"
TOKEN = "ghp_aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"
BOTH = f"the password is {KNOWN} and the token {TOKEN} indeed"
LEAST = 12
"""Characters of a secret that must not be anywhere."""
PIECES = {secret[at : at + LEAST] for secret in (KNOWN, TOKEN) for at in range(len(secret) - LEAST + 1)}
WHY = {"risk": "low", "mutation": True, "privesc": False, "why": "a test"}
LONG = "word " * 1500


def leaks(text: str) -> list[str]:
    return [piece for piece in PIECES if piece in text]


def shown(desk: AgentDesk) -> str:
    """Everything that was published, and what streamed, as one text."""
    streamed = (one.text for one in desk.seen if isinstance(one, AnswerDelta | ReasoningDelta))
    return "".join([*streamed, *map(repr, desk.seen)])


async def attacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: list[Any], prompts: list[str], **more: Any
) -> AgentDesk:
    """A conversation that was worked on and compacted; nothing of a secret may be on this machine's disk."""
    monkeypatch.setenv("APP_PASSWORD", KNOWN)
    store = ConversationStore(tmp_path / "sessions")
    session_id = (await store.create(NewConversation(target="local:", identity="local:"))).session_id
    with anyio.fail_after(LIMIT):
        async with (
            store.writing(session_id) as log,
            agent_desk(tmp_path, monkeypatch, script, log=log, session_id=session_id, **more) as desk,
        ):
            for prompt in prompts:
                result = await desk.agent.turn(prompt)
                assert leaks(result.text + result.failure) == []
            await desk.agent.compact()
    assert leaks(shown(desk)) == []
    assert leaks(await store.exported(session_id)) == []
    for path in tmp_path.rglob("*"):
        if path.is_file() and "/jobs/" not in str(path):  # a command is on its target as it was given
            assert leaks(path.read_bytes().decode("latin-1")) == [], path
    return desk


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("provider", ["openai", "google"])
async def test_a_model_that_writes_secrets_everywhere_leaves_none(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = (
        Call("todo_write", {"todos": [{"content": BOTH, "status": "pending"}]}),
        Call("remember", {"content": BOTH}),
        Call(TOKEN, {"a": BOTH}),
        Call("run_shell", {"command": f"true {KNOWN}", **WHY}, id=TOKEN),
        Call("run_shell", {KNOWN: 1, **WHY}),
        Call("run_shell", f'{{"command": "{BOTH}'),
    )
    script = [Answer((Reasoning(BOTH), Text(BOTH), *calls[:5])), Answer(calls[5:]), say(BOTH)]
    desk = await attacked(tmp_path, monkeypatch, script, [BOTH], provider=provider)
    assert MARK in shown(desk)


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize(("answered", "shift"), [(True, 0), (False, 7)])
async def test_notes_hold_no_half_of_a_secret_that_was_cut(
    answered: bool, shift: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is put together is shortened: a prompt after 496 characters, a call after 246, an answer after 146."""
    prompts = [f"{'p' * (470 + shift)} {KNOWN} {LONG}", f"{'q' * (465 + shift)} {TOKEN} {LONG}"]
    dear = Call("run_shell", {"command": f"false {'k' * (198 + shift)} {KNOWN} {LONG}", **WHY})
    told = Text(f"{'a' * (125 + shift)} {TOKEN} {LONG}")
    last = say(f"notes: {BOTH}") if answered else Failure("bad_request", message=f"{'x' * (270 + shift)} {KNOWN}")
    script = [Answer((told, dear)), say(LONG), *(say(LONG) for _ in range(4)), last]
    desk = await attacked(tmp_path, monkeypatch, script, [*prompts, *(f"turn {n} {LONG}" for n in range(3))])
    assert len(desk.of(ConversationCompacted)) == 1
    assert len(desk.of(Notice)) == (0 if answered else 1)


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("kind", ["bad_request", "auth"])
async def test_what_a_provider_says_holds_no_secret_of_the_environment_and_no_half_of_one(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [Failure(kind, message=BOTH), Failure(kind, message=f"{'x' * 280} {KNOWN}")]
    await attacked(tmp_path, monkeypatch, script, ["go", "again"])


def test_a_secret_in_two_parts_of_an_answer_is_kept_in_none() -> None:
    redactor = PatternRedactor([KNOWN])
    halves = ModelResponse([TextPart("a"), TextPart(KNOWN[:13]), ThinkingPart("hm"), TextPart(KNOWN[13:])])
    kept = without_secrets(halves, redactor.text)
    assert kept.parts == [TextPart(f"a{MARK}"), ThinkingPart("hm")]
    whole = ModelResponse([TextPart("a"), ThinkingPart("hm"), TextPart("b")])
    assert without_secrets(whole, redactor.text).parts == whole.parts
    listed = ModelRequest([UserPromptPart(["see", BOTH])])
    assert leaks(dumped(without_secrets(listed, redactor.text))) == []


def test_names_and_ids_of_calls_are_cleaned_and_those_of_tools_that_are_known_stay() -> None:
    call_part = ToolCallPart("tool", {}, TOKEN, id=TOKEN)
    response = ModelResponse([TextPart("x"), call_part, replace(call_part, tool_name=TOKEN, tool_call_id="c2")])
    clean = without_secret_names(response, PatternRedactor().text, ["tool"])
    assert [(one.tool_name, one.tool_call_id) for one in clean.tool_calls] == [("tool", MARK), (MARK, "c2")]
    assert without_secret_names(clean, PatternRedactor(["tool"]).text, ["tool"]).tool_calls[0].tool_name == "tool"


@pytest.mark.usefixtures("needs_process")
async def test_a_command_that_was_left_running_is_told_without_its_secrets_when_harness_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_PASSWORD", KNOWN)
    store = ConversationStore(tmp_path / "sessions")
    session_id = (await store.create(NewConversation(target="local:", identity="local:"))).session_id
    command = {"command": f"sleep 300 # {'x' * 95} {KNOWN} {TOKEN}", "run_in_background": True, **WHY}
    script = [call("run_shell", command), say("it runs")]
    with anyio.fail_after(LIMIT):
        async with (
            store.writing(session_id) as log,
            agent_desk(tmp_path, monkeypatch, script, log=log, session_id=session_id) as desk,
        ):
            await desk.agent.turn("go")
            await log.noted(JOB_LEFT, desk.of(JobStarted)[0].job_id)
            stored = await store.load(session_id)
            redact = desk.toolkit.redactor.text
            found = await in_flight(stored, desk.toolkit.ledger, desk.execution, redact=redact)
            desk.seen.clear()
            resume_messages(found, log, desk.agent.events)
            await desk.execution.kill(found.running[0].job_id, grace=0)
    assert "sleep 300" in found.operator
    assert len(desk.of(JobStarted)) == 1
    assert leaks(found.operator + found.model + json.dumps([one.command for one in desk.of(JobStarted)])) == []
