"""A whole agent keeps its conversation valid: cancelled anywhere, killed between any two messages, compacted."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.support.agent_desk import AgentDesk, agent_desk
from tests.support.model_server import Answer, Asked, Call, Gate, Reasoning, Text, say

from harness.agent.events import AnswerDelta, ConversationCompacted
from harness.agent.messages.compaction import HEAD
from harness.agent.messages.history import NO_RESULT
from harness.agent.opening import ResumedConversation
from harness.agent.storage import MemoryLog
from harness.toolkit.events import ToolCallRequested
from harness.toolkit.values import JsonObject

pytestmark = pytest.mark.usefixtures("needs_process")

LIMIT = 120.0
PROVIDERS = ("openai", "openai-responses", "anthropic", "google")


def shell(command: str) -> JsonObject:
    return {"command": command, "risk": "low", "mutation": False, "privesc": False, "why": "test"}


def two_steps(asked: Asked) -> Answer:
    """Two calls at once, then a third, then words; ids as servers use them that count from 0 in each answer."""
    if "step-3" in asked.text:
        return Answer((Reasoning("hm"), Text("All done.")))
    if "step-1" in asked.text:
        return Answer((Text("Once more."), Call("run_shell", shell("echo step-3"), "call_0")))
    calls = Call("run_shell", shell("echo step-1"), "call_0"), Call("run_shell", shell("echo step-2"), "call_1")
    return Answer((Reasoning("hm"), *calls))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_conversation_that_ended_anywhere_goes_on_with_any_provider(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MemoryLog()
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, two_steps, provider="openai", log=log) as desk:
            assert (await desk.agent.turn("count")).text == "All done."
        stored = tuple(log.messages)
        assert len(stored) == 6
        taken = ResumedConversation(stored[:2])  # killed while the two calls ran
        async with agent_desk(tmp_path, monkeypatch, [say("I see.")], provider=provider, resumed=taken) as desk:
            assert (await desk.agent.turn("go on")).status == "completed"
            assert desk.server.asked[0].text.count(NO_RESULT) == 2
        for length in range(len(stored) + 1) if provider == "anthropic" else (4,):  # it checks the most
            messages = stored[:length]
            async with agent_desk(
                tmp_path, monkeypatch, [say("I see.")], provider=provider, resumed=ResumedConversation(messages)
            ) as desk:
                assert (await desk.agent.turn("go on")).status == "completed", length
                assert "go on" in desk.server.asked[0].text


async def test_a_cancel_in_an_answer_and_in_a_call_leaves_a_conversation_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()  # which nobody opens
    script = [
        Answer(
            (
                Reasoning("I think"),
                Text("I will look at all of the disks first, "),
                gate,
                Text("remove"),
                Call("run_shell", shell("true")),
            )
        ),
        Answer((Call("run_shell", shell("echo begun; sleep 600"), "a"), Call("run_shell", shell("echo never"), "b"))),
        say("Stopped."),
    ]

    async def cancelled(desk: AgentDesk, prompt: str, ready: object) -> str:
        async with anyio.create_task_group() as tasks:
            statuses = []

            async def work() -> None:
                statuses.append((await desk.agent.turn(prompt)).status)

            tasks.start_soon(work)
            await ready  # type: ignore[misc]  # something to wait for
            desk.agent.cancel()
        return str(statuses[0])

    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, script, provider="anthropic") as desk:
            assert await cancelled(desk, "clean up", desk.seen_of(AnswerDelta)) == "cancelled"
            assert await cancelled(desk, "again", desk.seen_of(ToolCallRequested)) == "cancelled"
            assert (await desk.agent.turn("what is the state?")).text == "Stopped."
            last = desk.server.asked[-1]
    assert "I will look" in last.text
    assert "I think" not in last.text
    assert last.text.count("cancelled this turn") == 2
    results = [
        block for message in last.body["messages"] for block in message["content"] if block["type"] == "tool_result"
    ]
    assert [result["is_error"] for result in results] == [True, True]


async def test_compaction_replaces_what_is_stored_and_the_next_turn_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [reply for n in range(6) for reply in (_called(n), say(f"answer {n}"))]
    log = MemoryLog()
    with anyio.fail_after(LIMIT):
        async with agent_desk(tmp_path, monkeypatch, [*turns, say("## Done: six"), say("ok")], log=log) as desk:
            for number in range(6):
                await desk.agent.turn(f"request {number}")
            before = desk.agent.state.spent.answers
            done = await desk.agent.compact()
            assert done is not None
            assert done.after < done.before == 24
            assert len(log.messages) == done.after
            assert HEAD.split(":")[0] in log.messages[0]
            assert "## Done: six" in done.summary
            assert desk.of(ConversationCompacted)[0].summary == done.summary
            assert desk.agent.state.spent.answers == before + 1
            assert (await desk.agent.turn("and?")).text == "ok"
            last = desk.server.asked[-1].text
    assert "## Done: six" in last
    assert "answer 5" in last
    assert "answer 1" not in last
    assert "- request 0" in last


def _called(number: int) -> Answer:
    return Answer((Call("run_shell", shell(f"echo {'x' * 900} {number}"), "call_0"),))
