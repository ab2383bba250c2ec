"""Slash commands with an agent: what they say of a conversation, and what they do to it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest
from tests.support.agent_desk import AgentDesk, agent_desk, profile_for
from tests.support.model_server import Answer, Call, Gate, ReportedUsage, Script, Text, call, say
from tests.support.slash import Asked, Desk, Shown

from harness.agent.events import ConversationCompacted, TurnCompleted
from harness.agent.models import ModelTable
from harness.agent.opening import HumanHandlers
from harness.agent.storage import ConversationStore, NewConversation
from harness.cli.prompt.commands.base import Deadlines, PromptContext
from harness.cli.prompt.commands.table import parse, run_command
from harness.live.sessions.agent_session import AgentSession
from harness.live.sessions.state import SessionState
from harness.system.background_tasks import open_background_tasks
from harness.toolkit.events import ToolCallRequested
from harness.toolkit.permissions.remembered_answers import TimedApproval

pytestmark = pytest.mark.usefixtures("needs_process")

LIMIT = 60.0


@dataclass
class Seat:
    """A prompt with an agent behind it."""

    desk: Desk
    behind: AgentDesk
    summary_id: str

    async def type(self, line: str, *, in_turn: bool = False) -> str:
        return await self.desk.type(line, in_turn=in_turn)


@asynccontextmanager
async def seat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Script) -> AsyncIterator[Seat]:
    timed, store = TimedApproval(), ConversationStore(tmp_path / "sessions")
    summary = await store.create(NewConversation(target="local:", identity="local:", model="test"))
    async with (
        store.writing(summary.session_id) as log,
        agent_desk(
            tmp_path, monkeypatch, script, handlers=HumanHandlers(timed=timed), log=log, session_id=summary.session_id
        ) as behind,
        open_background_tasks() as tasks,
    ):
        profile = profile_for(behind.server)
        other = profile_for(behind.server, "anthropic", "other")
        output, front = Shown(), Asked()
        context = PromptContext(
            execution=behind.execution,
            toolkit=behind.toolkit,
            executor=behind.agent.executor,
            timed=timed,
            output=output,
            front=front,
            deadlines=Deadlines(tasks),
            agent=behind.agent,
            models=ModelTable((profile, other), "test"),
            store=store,
        )
        yield Seat(Desk(context, output, front), behind, summary.session_id)


async def test_what_a_conversation_is_and_has_used_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = [call("run_shell", {"command": "echo hi"}), Answer((Text("hi"),), usage=ReportedUsage(12_300, 50))]
    async with seat(tmp_path, monkeypatch, script) as here:
        await here.behind.agent.turn("say hi")
        status = await here.type("/status")
        assert re.search(r"^model: +test \(test-model\)$", status, re.MULTILINE)
        assert re.search(r"^agent: +idle$", status, re.MULTILINE)
        assert re.search(r"^context: +12\.3k of 100\.0k tokens \(12 %\)$", status, re.MULTILINE)
        assert re.search(r"^used: .* 2 answers, price unknown$", status, re.MULTILINE)
        context = await here.type("/context")
        assert "context: 12.3k of 100.0k tokens (12 %)" in context
        for row in ("prompts and notes | 1 |", "answers | 1 |", "calls | 1 |", "results | 1 |", "tools | "):
            assert row in context
        assert "at 85% the older messages are compacted" in context
        assert await here.type("/compact") == "there is nothing to compact yet"


async def test_a_turn_is_seen_ended_and_given_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gates = [Gate(), Gate()]
    async with (
        seat(tmp_path, monkeypatch, [Answer((gates[0], Text("a"))), Answer((gates[1], Text("b"))), say("c")]) as here,
        anyio.create_task_group() as tasks,
    ):
        agent = here.behind.agent
        tasks.start_soon(agent.serve)
        agent.submit("first")
        with anyio.fail_after(LIMIT):
            await gates[0].reached()
            agent.submit("second\nin two lines")
            agent.submit("third")
            shown = await here.type("/ps", in_turn=True)
            assert "turn | turn | thinking" in shown
            assert re.search(r"^prompt \| #2 \| queued .*\| second\.\.\.$", shown, re.MULTILINE)
            assert await here.type("/kill #2 #9") == (
                "prompt #2 is removed\n! /kill: no prompt #9 is queued; /ps lists them"
            )
            assert "not while a turn is running" in await here.type("/session new", in_turn=True)
            assert "not while prompts are queued; /kill #3 removes" in await here.type("/session new")
            assert await here.type("/timeout 1h") == "the turn will be ended in 1 h"
            assert await here.type("/timeout none") == "the turn has no deadline any more"
            assert await here.type("/kill turn") == "the turn is cancelled"
            await gates[1].reached()
            assert await here.type("/timeout 10ms") == "the turn will be ended in 0 s"
            await here.desk.output.warned.wait()
            assert here.desk.output.warnings == ["deadline expired (/timeout): the turn is cancelled"]
            await here.behind.until(lambda: agent.state.doing == "idle")
        assert await here.type("/kill turn") == "! /kill: no turn is running"
        tasks.cancel_scope.cancel()


async def test_compacting_waits_for_the_turn_and_comes_before_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = [Gate(), Gate(), Gate()]
    long = [say("word " * 2000) for _ in range(4)]
    script = [*long, Answer((gates[0], Text("fourth"))), Answer((gates[1], Text("notes"))), say("fifth"), say("sixth")]
    async with seat(tmp_path, monkeypatch, script) as here, anyio.create_task_group() as tasks:
        agent = here.behind.agent
        for number in range(4):
            await agent.turn(f"turn {number}")
        tasks.start_soon(agent.serve)
        agent.submit("turn 4")
        with anyio.fail_after(LIMIT):
            await gates[0].reached()
            agent.submit("turn 5")
            said: list[str] = []

            async def compact() -> None:
                said.append(await here.type("/compact", in_turn=True))

            tasks.start_soon(compact)
            await anyio.wait_all_tasks_blocked()
            gates[0].open()
            await gates[1].reached()  # the notes are asked for, and the next prompt still waits
            assert (agent.state.doing, agent.state.turn_id) == ("thinking", "")
            assert [one.prompt for one in agent.state.queue] == ["turn 5"]
            gates[1].open()
            await here.behind.until(lambda: len(here.behind.of(TurnCompleted)) == 6)
        tasks.cancel_scope.cancel()
    first, second = said[0].splitlines()
    assert first == "/compact waits for the end of the turn; C-c cancels both"
    assert re.fullmatch(r"compacted \d+ messages into \d+", second)
    kinds = [type(event) for event in here.behind.seen if isinstance(event, ConversationCompacted | TurnCompleted)]
    assert kinds == [*[TurnCompleted] * 5, ConversationCompacted, TurnCompleted]


async def test_compacting_that_waits_or_runs_is_cancelled_with_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = [Gate(), Gate()]
    long = [say("word " * 2000) for _ in range(4)]
    script = [*long, Answer((gates[0], Text("fourth"))), Answer((gates[1], Text("notes")))]
    sent: list[SessionState] = []
    async with seat(tmp_path, monkeypatch, script) as here, anyio.create_task_group() as tasks:
        agent = here.behind.agent
        session = AgentSession(agent, None, lambda: sent.append(session.state()))
        for number in range(4):
            await agent.turn(f"turn {number}")
        tasks.start_soon(agent.turn, "turn 4")
        with anyio.fail_after(LIMIT), agent.events.listening(session.activity.heard):
            for gate, in_turn in ((gates[0], True), (gates[1], False)):
                said: list[str] = []

                async def compact(said: list[str] = said, in_turn: bool = in_turn) -> None:
                    said.append(await here.type("/compact", in_turn=in_turn))

                if in_turn:
                    await gate.reached()
                async with anyio.create_task_group() as waiting:
                    waiting.start_soon(compact)
                    if not in_turn:
                        await gate.reached()
                        other = Shown()
                        assert not await run_command(parse("/session new"), replace(here.desk.context, output=other))
                        assert other.warnings == ["/session: not while /compact is running; C-c cancels it"]
                    await anyio.wait_all_tasks_blocked()
                    assert agent.cancel(sent[-1].work)  # what a dashboard has seen
                assert said[0].endswith("! /compact: cancelled; the conversation is unchanged")
                await here.behind.until(lambda: agent.state.doing == "idle")
            assert not agent.cancel()
            assert (sent[-1].doing, sent[-1].work) == ("idle", ())
    assert here.behind.of(ConversationCompacted) == []


async def test_the_agent_is_paused_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with seat(tmp_path, monkeypatch, []) as here:
        assert await here.type("/resume") == "the agent is not paused"
        await here.type("/pause I look myself")
        assert here.behind.agent.state.doing == "paused"
        assert "paused by operator" in await here.type("/status")
        assert await here.type("/pause") == "the agent is already paused; /resume resumes it"
        assert "use /session resume ID for a conversation" in await here.type("/resume abcd")
        await here.type("/resume")
        assert here.behind.agent.state.doing == "idle"


async def test_a_turn_is_ended_while_it_is_paused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, later = Gate(), Call("run_shell", {"command": "touch later"})
    async with (
        seat(tmp_path, monkeypatch, [Answer((gate, later)), say("fine")]) as here,
        anyio.create_task_group() as tasks,
    ):
        agent, ended = here.behind.agent, anyio.Event()

        async def work() -> None:
            assert (await agent.turn("go")).status == "cancelled"
            ended.set()

        tasks.start_soon(work)
        with anyio.fail_after(LIMIT):
            await gate.reached()
            await here.type("/pause", in_turn=True)
            gate.open()
            await here.behind.until(lambda: agent.state.turn_id != "" and bool(here.behind.of(ToolCallRequested)))
            assert await here.type("/kill turn", in_turn=True) == "the turn is cancelled"
            await ended.wait()
            assert agent.state.doing == "paused"
            await here.type("/resume")
            assert (await agent.turn("and now?")).text == "fine"
        assert not (here.behind.home / "later").exists()


async def test_models_are_listed_and_switched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with seat(tmp_path, monkeypatch, [say("one"), say("two")]) as here:
        await here.behind.agent.turn("first")
        listed = await here.type("/model")
        assert "* | test | openai:test-model | 100k" in listed
        assert " | other | anthropic:test-model | 100k" in listed
        assert await here.type("/model test") == "test is already the model"
        assert "switched to other (anthropic:test-model)" in await here.type("/model other")
        await here.behind.agent.turn("second")
        assert here.behind.server.asked[1].dialect == "anthropic"
        assert "unknown model 'oter'" in await here.type("/model oter")
        without = here.desk.with_(agent=None)
        await without.type("/model other")
        assert here.desk.front.done == [("model", "other")]


async def test_conversations_are_named_listed_resumed_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with seat(tmp_path, monkeypatch, [say("fine")]) as here:
        store, front = here.desk.context.store, here.desk.front
        assert store is not None
        elsewhere = await store.create(NewConversation(target="ssh://web1", identity="ssh://web1"))
        before = await store.create(NewConversation(target="local:", identity="local:", name="before"))
        await here.behind.agent.turn("how is the disk?")
        assert await here.type("/session name disks") == f"conversation {here.summary_id} is named 'disks'"
        assert "is named 'key [redacted]'" in await here.type(f"/session name key ghp_{'a1' * 18}")
        assert (await store.find(here.summary_id)).name == "key [redacted]"
        await here.type("/session name disks")
        assert f"conversation {here.summary_id} 'disks', started " in await here.type("/session")
        listed = await here.type("/session list")
        assert "disks (this one)" in listed
        assert "before" in listed
        assert elsewhere.session_id not in listed
        await here.type("/session new")
        await here.type("/session resume before")
        assert front.done == [("open", None), ("open", before.session_id)]
        assert "is already open" in await here.type(f"/session resume {here.summary_id}")
        assert "belongs to ssh://web1" in await here.type(f"/session resume {elsewhere.session_id}")
        assert "missing conversation" in await here.type("/session resume")
        assert "did you mean 'resume'?" in await here.type("/session resum x")
        file = tmp_path / "exported.json"
        assert str(file) in await here.type(f"/session export {file}")
        assert "how is the disk?" in json.dumps(json.loads(file.read_text()))
        assert file.stat().st_mode & 0o777 == 0o600
        assert "cannot write" in await here.type(f"/session export {file}")
