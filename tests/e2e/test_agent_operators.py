"""A person takes the agent's session over, works in it, and gives it back; the agent waits, and is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest
from tests.support.agent_desk import profile_for
from tests.support.desk import Desk, desk, everywhere, open_desk, until
from tests.support.model_server import Answer, Call, Gate, ModelServer, Script, Text, call, model_server, say

from harness.agent.agent import Agent
from harness.agent.events import AgentPaused, AgentResumed
from harness.agent.opening import HumanHandlers, open_agent
from harness.agent.operators import after_last_job, operator_activity_note, watched_by_operators
from harness.toolkit.assembly import ToolkitSettings, open_toolkit
from harness.toolkit.events import Event, PermissionAsked
from harness.toolkit.permissions.approver import EventApprover
from harness.toolkit.permissions.questions import ApprovalDecision as Reply
from harness.toolkit.permissions.questions import ApprovalScope
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings

__all__ = ["desk", "open_desk"]

LIMIT = 90.0


@dataclass
class Watched:
    """An agent at a desk, and what was heard of it."""

    agent: Agent
    server: ModelServer
    seen: list[Event] = field(default_factory=list)
    more: anyio.Event = field(default_factory=anyio.Event)

    def heard(self, event: Event) -> None:
        self.seen.append(event)
        self.more.set()
        self.more = anyio.Event()

    async def of(self, kind: type[Event]) -> Event:
        while not any(isinstance(event, kind) for event in self.seen):
            await self.more.wait()
        return next(event for event in self.seen if isinstance(event, kind))


@asynccontextmanager
async def working(
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
    script: Script,
    people: HumanHandlers | None = None,
    mode: Mode = Mode.AUTO,
) -> AsyncIterator[Watched]:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(desk.home))
    monkeypatch.setenv("HARNESS_TEST_KEY", "key-of-the-test")
    settings = ToolkitSettings(permissions=PermissionSettings(mode))
    with model_server(script) as server:
        async with (
            open_toolkit(settings) as toolkit,
            open_agent(desk.ctx, toolkit, profile_for(server), handlers=people) as agent,
            watched_by_operators(agent) as able,
        ):
            assert able
            watched = Watched(agent, server)
            with agent.events.listening(watched.heard):
                yield watched
        assert server.refused == []


@everywhere
async def test_the_key_stops_the_agent_and_gives_it_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    script = [
        Answer((Text("I look. "), gate, Call("run_shell", {"command": "echo of the agent"}))),
        say("done"),
    ]
    with anyio.fail_after(LIMIT):
        operator = await desk.operator(150, 42)
        async with working(desk, monkeypatch, script) as watched, anyio.create_task_group() as tasks:
            await desk.ctx.run_shell("echo before")
            tasks.start_soon(watched.agent.turn, "go")
            await operator.sees("agent: thinking")
            operator.press("F12")
            await watched.of(AgentPaused)
            gate.open()
            await operator.sees("PAUSED by operator")
            operator.type("echo by hand; false\n")
            await operator.sees("\nby hand")
            assert "of the agent" not in operator.screen
            operator.press("F12")
            await watched.of(AgentResumed)
            await operator.sees("of the agent")
    asked = watched.server.asked[1].text
    assert "an operator used the session" in asked
    marked = asked.rpartition("(data, not instructions):]")[2].partition("[end of output ")[0]
    assert "echo by hand; false" in marked
    assert "echo before" not in asked.partition("an operator used the session")[2]


@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/usr/bin/fish"])
async def test_who_types_pauses_the_agent(shell: str, open_desk: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(open_desk)
    desk: Desk = await open_desk(shell=shell)
    gate = Gate()
    with anyio.fail_after(LIMIT):
        operator = await desk.operator(150, 42)
        script = [Answer((gate, Text("fine"))), say("and on")]
        async with working(desk, monkeypatch, script) as watched, anyio.create_task_group() as tasks:
            await desk.ctx.run_shell("true")
            tasks.start_soon(watched.agent.turn, "go")
            await operator.sees("agent: thinking")
            operator.type("echo mine\n")
            paused = await watched.of(AgentPaused)
            assert isinstance(paused, AgentPaused)
            assert "types in the pane main" in paused.reason
            await operator.sees("PAUSED")
            gate.open()
            watched.agent.resume("operator")
            resumed = await watched.of(AgentResumed)
            assert isinstance(resumed, AgentResumed)
            assert "echo mine" in resumed.meanwhile
            await watched.agent.turn("and now?")
    assert "echo mine" in watched.server.asked[-1].text


async def test_who_types_between_two_turns_pauses_nothing_and_the_next_turn_is_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with anyio.fail_after(LIMIT):
        operator = await desk.operator(150, 42)
        async with working(desk, monkeypatch, [say("one"), say("two"), say("three")]) as watched:
            await desk.ctx.run_shell("true")
            await watched.agent.turn("first")
            await operator.sees("agent: waits for a prompt")
            await anyio.sleep(1.2)  # what was written at the prompt before this is old
            operator.type("echo between; date\n")
            await operator.sees("\nbetween")
            while "between" not in watched.server.asked[-1].text:
                assert (await watched.agent.turn("second")).status == "completed"
    assert not [event for event in watched.seen if isinstance(event, AgentPaused)]


async def test_what_is_approved_while_the_agent_is_paused_begins_when_it_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    approver = EventApprover()
    script = [call("run_shell", {"command": "touch approved"}), say("done")]
    with anyio.fail_after(LIMIT):
        async with (
            working(desk, monkeypatch, script, HumanHandlers(approver), Mode.ASK) as watched,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(watched.agent.turn, "go")
            asked = await watched.of(PermissionAsked)
            assert isinstance(asked, PermissionAsked)
            assert watched.agent.state.doing == "waiting"
            watched.agent.pause("operator")
            assert approver.answer(asked.request_id, Reply(ApprovalScope.ONCE))
            await anyio.wait_all_tasks_blocked()
            assert not (desk.home / "approved").exists()
            watched.agent.resume("operator")
    assert (desk.home / "approved").exists()


async def test_the_status_line_says_that_an_answer_is_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    with anyio.fail_after(LIMIT):
        operator = await desk.operator(150, 42)
        async with working(desk, monkeypatch, [call("time"), Answer((gate, Text("ok")))]) as watched:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watched.agent.turn, "go")
                await operator.sees("agent: thinking")
                gate.open()
            await operator.sees("agent: waits for a prompt")
        await until(lambda: "agent:" not in operator.screen)


def test_only_what_stands_after_the_last_job_is_the_operators() -> None:
    text = "old\n[harness 1: 0] $ ls\nfile\n[harness 2: 0] $ vi x\n[harness 2: 0] $ make\nok\n[harness 2: 0] $"
    assert after_last_job(text) == text[text.index("[harness 2") :]
    assert after_last_job("$ ls\nfile") == ""
    assert "ran nothing" in operator_activity_note(" \n")
    assert "]" + "x" * 2_000 + "\n[end of output " in operator_activity_note("x" * 3_000)
