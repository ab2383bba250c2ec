"""Sub-agents: conversations of their own, kept with their parent's, and under all of its limits."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.agent_desk import profile_for
from tests.support.model_server import (
    Answer,
    Asked,
    Call,
    Gate,
    ModelServer,
    ReportedUsage,
    Text,
    call,
    model_server,
    say,
)

from harness import connect
from harness.agent.agent import Agent
from harness.agent.events import AgentPaused, AnswerCompleted, RequestStarted, TurnCompleted
from harness.agent.models import ModelTable, Price
from harness.agent.opening import HumanHandlers, open_agent, with_agent_pack
from harness.agent.settings import AgentSettings
from harness.agent.storage import ConversationNote, ConversationSummary, MemoryLog, StoredConversation, StoredTurn
from harness.agent.stored_usage import SubagentLog, spent_in, texts_of
from harness.agent.sub_agents import NamedTargets, Subagents, messages_of
from harness.agent.usage import Usage
from harness.cli.prompt.line_mode import LineSurface
from harness.cli.prompt.view import EventView
from harness.errors import TargetNotFound
from harness.toolkit.assembly import ToolkitSettings, open_toolkit
from harness.toolkit.catalog import ToolSettings
from harness.toolkit.events import Event, SubagentStarted, ToolCallCompleted
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.questions import ApprovalDecision as Reply
from harness.toolkit.permissions.questions import ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings

LIMIT = 60.0
WHY = {"risk": "low", "mutation": True, "privesc": False, "why": "a test"}


def task(prompt: str, **more: Any) -> Call:
    return Call("task", {"prompt": prompt, **more})


def first_prompt(asked: Asked) -> str:
    """What a conversation began with."""
    content = next(one["content"] for one in asked.body["messages"] if one["role"] == "user")
    return content if isinstance(content, str) else str(content[0]["text"])


class Scripts:
    """Replies for each conversation, told apart by its first prompt."""

    def __init__(self, scripts: Mapping[str, Sequence[Answer]]) -> None:
        self._scripts = {prompt: list(answers) for prompt, answers in scripts.items()}
        self._one = threading.Lock()
        self.asked: dict[str, list[Asked]] = {prompt: [] for prompt in scripts}

    def __call__(self, asked: Asked) -> Answer:
        with self._one:
            prompt = first_prompt(asked)
            self.asked[prompt].append(asked)
            return self._scripts[prompt].pop(0)


@dataclass
class Household:
    """An agent whose sub-agents have models."""

    agent: Agent
    server: ModelServer
    scripts: Scripts
    log: MemoryLog
    seen: list[Event] = field(default_factory=list)

    async def say(self, prompt: str) -> str:
        with anyio.fail_after(LIMIT):
            result = await self.agent.turn(prompt)
        assert result.status == "completed", result
        return result.text

    async def until(self, kind: type[Event], number: int) -> None:
        """Wait for the so-many-th event of a kind."""
        with self.agent.events.subscribe() as events:
            left = number - sum(isinstance(one, kind) for one in self.seen)
            while left > 0:
                left -= isinstance(await anext(events), kind)

    def of_calls(self, name: str) -> list[ToolCallCompleted]:
        return [one for one in self.seen if isinstance(one, ToolCallCompleted) and one.outcome.call.name == name]


@asynccontextmanager
async def household(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    scripts: Mapping[str, Sequence[Answer]],
    *,
    mode: Mode = Mode.AUTO,
    handlers: HumanHandlers | None = None,
    settings: AgentSettings | None = None,
    log: MemoryLog | None = None,
    session_id: str = "",
    prices: Price | None = None,
    tools: ToolSettings | None = None,
) -> AsyncIterator[Household]:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.chdir(home)
    monkeypatch.setenv("HARNESS_TEST_KEY", "key-of-the-test")
    replies, kept = Scripts(scripts), log or MemoryLog()
    with model_server(replies) as server:
        profile = replace(profile_for(server), prices=prices)
        other = replace(profile, name="other", model="other-model")
        spawner = Subagents(ModelTable((profile, other), "test"), notes=kept.notes)
        toolkit_settings = with_agent_pack(ToolkitSettings(tools or ToolSettings(), PermissionSettings(mode)))
        async with (
            connect("local:") as execution,
            open_toolkit(toolkit_settings) as toolkit,
            open_agent(
                execution,
                toolkit,
                profile,
                settings=settings,
                handlers=handlers,
                log=kept,
                session_id=session_id,
                spawner=spawner,
            ) as agent,
        ):
            made = Household(agent, server, replies, kept)
            with agent.events.listening(made.seen.append):
                yield made
        assert server.refused == []


@pytest.mark.usefixtures("needs_process")
async def test_a_sub_agent_has_a_conversation_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = {
        "what is up?": [
            Answer((task("look around", subagent_type="explore", description="looking"),)),
            say("All well."),
        ],
        "look around": [call("run_shell", {"command": "echo from below", **WHY}), say("There was: from below")],
    }
    async with household(tmp_path, monkeypatch, scripts) as house:
        assert await house.say("what is up?") == "All well."
        (done,) = house.of_calls("task")
        assert done.outcome.result.text == "There was: from below"
        (below,) = house.of_calls("run_shell")
        assert below.parent_call == done.outcome.call.call_id
        assert below.outcome.call.agent_id.startswith("explore-")
        started = next(one for one in house.seen if isinstance(one, SubagentStarted))
        assert (started.agent_id, started.title) == (below.outcome.call.agent_id, "looking")
        assert house.agent.state.spent.answers == 4
        above, under = house.scripts.asked["what is up?"], house.scripts.asked["look around"]
        assert "task" in above[0].text
        assert "You work for another agent" in under[0].text
        assert "change nothing" in under[0].text
        assert "what is up?" not in under[1].text
        assert "There was: from below" in above[1].text
        assert [one.parent_call for one in house.seen if isinstance(one, TurnCompleted)] == [""]
    session = str(done.outcome.result.metadata["session_id"])
    assert [one.turn_id for one in house.log.turns if one.origin == "agent"] == []
    assert "from below" in "".join(texts_of(house.log.notes)[session])
    stored = StoredConversation(session=SUMMARY, turns=tuple(house.log.turns), notes=tuple(house.log.notes))
    assert spent_in(stored) == house.agent.state.spent


def tools_in(asked: Asked) -> dict[str, Mapping[str, Any]]:
    """The definitions that a model was sent, by name."""
    return {one["function"]["name"]: one["function"] for one in asked.body["tools"]}


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("profile", ["", "hex"])
async def test_a_model_at_the_depth_limit_is_not_offered_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    kind = {"subagent_type": "general-purpose", "description": "d"}
    scripts = {f"at {depth}": [Answer((task(f"at {depth + 1}", **kind),)), say(f"was {depth}")] for depth in range(3)}
    scripts["at 3"] = [say("the end")]
    settings = ToolSettings(tool_profile=profile, max_agent_depth=3)
    async with household(tmp_path, monkeypatch, scripts, tools=settings) as house:
        assert await house.say("at 0") == "was 0"
        offered = ["task" in tools_in(house.scripts.asked[f"at {depth}"][0]) for depth in range(4)]
    assert offered == [True, True, True, False]


def declare(directory: Path, name: str, text: str) -> Path:
    """Declare a type of sub-agents in a file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.md"
    path.write_text(text)
    path.chmod(0o644)
    return path


NAMED = {"": ("task", "explore"), "hex": ("task", "Explore"), "hygge": ("subagent", "explore")}
"""What profiles call the tool that starts agents, and one of the types."""


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("profile", NAMED)
async def test_a_model_reads_which_types_there_are_and_one_from_a_file_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    directory = tmp_path / "harness" / "agents"
    text = "---\ndescription: reads logs\ntools: Read, run_shell, compact\nmodel: other\n---\nBe quick about logs.\n"
    declare(directory, "log-reader", text)
    declare(directory, "broken", "---\ndescription: d\ntols: time\n---\n")
    tool, known = NAMED[profile]
    given = {"prompt": "read them", "subagent_type": "log-reader", "description": "d"}
    wrong = {"prompt": "x", "subagent_type": "broken", "description": "d"}
    scripts = {
        "go": [Answer((Call(tool, given), Call(tool, wrong))), say("ok")],
        "read them": [say("nothing in them")],
    }
    async with household(tmp_path, monkeypatch, scripts, tools=ToolSettings(tool_profile=profile)) as house:
        await house.say("go")
    above, below = house.scripts.asked["go"][0], house.scripts.asked["read them"][0]
    definition = tools_in(above)[tool]
    kinds = definition["parameters"]["properties"]["subagent_type"]["enum"]
    assert {known, "log-reader"} <= set(kinds)
    assert "broken" not in kinds
    assert "\n- log-reader: reads logs." in definition["description"]
    assert f"\n- {known}: investigates and changes nothing" in definition["description"]
    assert len(tools_in(below)) == 2
    assert below.model == "other-model"
    assert "Be quick about logs." in below.text
    results = (one.outcome.result for one in house.of_calls("task"))
    done, failed = sorted(results, key=lambda result: result.is_error)
    assert (done.text, failed.error_code) == ("nothing in them", "unknown_type")
    assert f"{directory}/broken.md:3: unknown key 'tols'" in failed.text


@pytest.mark.usefixtures("needs_process")
async def test_a_file_gives_no_type_more_than_its_parent_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "harness" / "agents"
    declare(directory, "writer", "---\ndescription: d\ntools: write_file, read_file\n---\n")
    path = declare(directory, "typo", "---\ndescription: d\nmodel: test\ntools: wriet_file\n---\n")
    declare(directory, "only-writes", "---\ndescription: d\ntools: write_file\n---\n")
    untrusted = tmp_path / ".harness" / "agents"
    declare(untrusted, "explore", "---\ndescription: d\n---\nDo as the project says.")
    declare(untrusted, "theirs", "---\ndescription: d\n---\nDo as the project says.")
    kinds = ("writer", "typo", "only-writes", "theirs", "explore")
    scripts = {
        "go": [Answer(tuple(task(f"as {kind}", subagent_type=kind) for kind in kinds)), say("ok")],
        "as writer": [say("wrote nothing")],
        "as explore": [say("looked")],
    }
    tools = ToolSettings(exclude=("write_file",))
    async with household(tmp_path, monkeypatch, scripts, tools=tools) as house:
        await house.say("go")
    results = [one.outcome.result for one in house.of_calls("task")]
    texts = {one.text: one.error_code for one in results}
    assert set(tools_in(house.scripts.asked["as writer"][0])) == {"read_file"}
    assert texts.pop("wrote nothing") == texts.pop("looked") == ""
    assert sorted(texts.values()) == ["unknown_tool", "unknown_tool", "unknown_type"]
    assert any(text.startswith(f"{path}:4: unknown tool 'wriet_file'") for text in texts)
    assert any("no tools are left for an agent of type only-writes" in text for text in texts)
    assert any("unknown agent type 'theirs'" in text for text in texts)
    assert "Do as the project says." not in house.scripts.asked["as explore"][0].text


@pytest.mark.usefixtures("needs_process")
async def test_sub_agents_of_one_answer_work_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gates = [Gate(), Gate()]
    scripts = {
        "both": [Answer((task("left"), task("right"))), say("Both.")],
        "left": [Answer((gates[0], Text("L")))],
        "right": [Answer((gates[1], Text("R")))],
    }
    async with household(tmp_path, monkeypatch, scripts) as house, anyio.create_task_group() as tasks:
        tasks.start_soon(house.say, "both")
        with anyio.fail_after(LIMIT):
            for gate in gates:
                await gate.reached()
        for gate in gates:
            gate.open()
    results = [one.outcome.result.text for one in house.of_calls("task")]
    assert sorted(results) == ["L", "R"]


@pytest.mark.usefixtures("needs_process")
async def test_the_prompt_shows_what_sub_agents_do_and_not_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = {
        "go": [Answer((Text("I ask."), task("look"))), say("All done.")],
        "look": [Answer((Text("hidden words"), Call("run_shell", {"command": "echo hi", **WHY}))), say("hidden end")],
    }
    said: list[str] = []
    master, slave = os.openpty()
    with os.fdopen(os.dup(slave)) as keyboard:
        monkeypatch.setattr("sys.stdin", keyboard)
        view = EventView(LineSurface(slave), words=said.append)
    async with household(tmp_path, monkeypatch, scripts) as house:
        with house.agent.events.listening(view.heard):
            await house.say("go")
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert "".join(said) == "I ask.\nAll done.\n"
    assert "echo hi" in shown
    assert "hidden words" not in shown


@pytest.mark.usefixtures("needs_process")
async def test_a_sub_agent_goes_on_later_and_with_a_later_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {"begin": [Answer((task("count"),)), say("ok")], "count": [say("one"), say("two")]}
    async with household(tmp_path, monkeypatch, first, session_id="abcd") as house:
        await house.say("begin")
        session = str(house.of_calls("task")[0].outcome.result.metadata["session_id"])
        assert session.startswith("abcd.")
        assert list(messages_of(house.log.notes)) == [session]
    log = MemoryLog()
    log.notes = list(house.log.notes)
    later = {
        "again": [Answer((task("and next?", resume=session), task("who?", resume="abcd.0123456789ab"))), say("ok")],
        "count": [say("two")],
    }
    async with household(tmp_path, monkeypatch, later, session_id="abcd", log=log) as house:
        await house.say("again")
        texts = [one.outcome.result.text for one in house.of_calls("task")]
        (asked,) = house.scripts.asked["count"]
    assert "two" in texts
    assert any("is no longer available" in text for text in texts)
    assert [one["content"] for one in asked.body["messages"] if one["role"] == "assistant"] == ["one"]
    assert "and next?" in asked.text


@pytest.mark.usefixtures("needs_process")
async def test_a_sub_agent_that_does_not_finish_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = [Answer((Text(f"try {n}"), Call("run_shell", {"command": f"echo {n}", **WHY}))) for n in range(20)]
    scripts = {"go": [Answer((task("forever"),)), say("It gave up.")], "forever": endless}
    async with household(tmp_path, monkeypatch, scripts) as house:
        await house.say("go")
        (done,) = house.of_calls("task")
        assert len(house.scripts.asked["forever"]) == 8
    assert done.outcome.result.is_error
    assert "did not finish: the turn has reached max_steps (8)" in done.outcome.result.text
    assert "Its last message: try 7" in done.outcome.result.text
    assert 'resume="' in done.outcome.result.text


@pytest.mark.usefixtures("needs_process")
async def test_a_cancel_ends_the_sub_agent_and_nothing_begins_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    scripts = {
        "go": [Answer((task("slow"), Call("run_shell", {"command": "touch later", **WHY}))), say("Fine.")],
        "slow": [Answer((Text("I am"), gate, Text(" done")))],
    }
    async with household(tmp_path, monkeypatch, scripts) as house:
        async with anyio.create_task_group() as tasks:

            async def work() -> None:
                assert (await house.agent.turn("go")).status == "cancelled"

            tasks.start_soon(work)
            with anyio.fail_after(LIMIT):
                await gate.reached()
                house.agent.cancel()
        assert not (tmp_path / "later").exists()
        assert await house.say("and now?") == "Fine."
        gate.open()
    notes = [json.loads(one.text) for one in house.log.notes if one.kind == "subagent"]
    assert [one["status"] for one in notes if one["what"] == "turn_ended"] == ["cancelled"]


@pytest.mark.usefixtures("needs_process")
async def test_a_pause_holds_sub_agents_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    scripts = {
        "go": [Answer((task("steps"),)), say("Done.")],
        "steps": [Answer((gate, Call("run_shell", {"command": "touch made", **WHY}))), say("made")],
    }
    async with household(tmp_path, monkeypatch, scripts) as house, anyio.create_task_group() as tasks:
        tasks.start_soon(house.say, "go")
        with anyio.fail_after(LIMIT):
            await gate.reached()
            house.agent.pause("operator")
            gate.open()
            await house.until(AnswerCompleted, 2)  # with the call
            await anyio.wait_all_tasks_blocked()
        assert not (tmp_path / "made").exists()
        house.agent.resume("operator")
    assert (tmp_path / "made").exists()


@pytest.mark.usefixtures("needs_process")
async def test_a_paused_sub_agent_sends_no_model_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = {
        "go": [Answer((task("steps"),)), say("Done.")],
        "steps": [call("run_shell", {"command": "touch made", **WHY}), say("made")],
    }
    async with household(tmp_path, monkeypatch, scripts) as house, anyio.create_task_group() as tasks:

        def pause_after_call(event: Event) -> None:
            if isinstance(event, ToolCallCompleted) and event.outcome.call.name == "run_shell":
                house.agent.pause("operator")

        with house.agent.events.listening(pause_after_call), anyio.fail_after(LIMIT):
            tasks.start_soon(house.say, "go")
            await house.until(AgentPaused, 1)
            await anyio.wait_all_tasks_blocked()
        assert len(house.scripts.asked["steps"]) == 1
        requests = sum(isinstance(one, RequestStarted) for one in house.seen)
        house.agent.resume("operator")
        with anyio.fail_after(LIMIT):
            await house.until(TurnCompleted, 1)
    assert requests == 2  # the parent's first and the sub-agent's first
    assert len(house.scripts.asked["steps"]) == 2


@dataclass
class Noting(Approver):
    """Says yes to everything, and keeps what was asked."""

    questions: list[ApprovalRequest] = field(default_factory=list)

    async def ask(self, question: ApprovalRequest) -> Reply:
        self.questions.append(question)
        return Reply(ApprovalScope.ONCE)


@pytest.mark.usefixtures("needs_process")
async def test_who_approves_sees_which_agent_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = {
        "go": [Answer((task("make it"),)), say("ok")],
        "make it": [call("run_shell", {"command": "touch made", **WHY}), say("made")],
    }
    noting = Noting()
    async with household(tmp_path, monkeypatch, scripts, mode=Mode.ASK, handlers=HumanHandlers(noting)) as house:
        await house.say("go")
    assert [one.call.name for one in noting.questions] == ["task", "run_shell"]
    assert noting.questions[0].call.agent_id == "agent"
    assert noting.questions[1].call.agent_id.startswith("general-")


@pytest.mark.usefixtures("needs_process")
async def test_another_model_is_asked_for_by_name_and_only_one_that_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = {
        "go": [Answer((task("one", model="other"), task("two", model="openai:dear-model"))), say("ok")],
        "one": [say("from the other")],
    }
    async with household(tmp_path, monkeypatch, scripts) as house:
        await house.say("go")
        assert house.scripts.asked["one"][0].model == "other-model"
    texts = [one.outcome.result.text for one in house.of_calls("task")]
    assert "from the other" in texts
    assert any("model 'openai:dear-model' is not available; available models: test, other" in text for text in texts)


@pytest.mark.usefixtures("needs_process")
async def test_an_agent_below_a_sub_agent_has_the_model_of_that_one_unless_it_asks_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = {
        "go": [Answer((task("one", model="other"),)), Answer((task("four"),)), say("ok")],
        "one": [Answer((task("two"), task("three", model="test"))), say("done")],
        "two": [say("two")],
        "three": [say("three")],
        "four": [say("four")],
    }
    async with household(tmp_path, monkeypatch, scripts) as house:
        await house.say("go")
        models = {prompt: asked[0].model for prompt, asked in house.scripts.asked.items()}
    own = models["go"]
    assert models == {"go": own, "one": "other-model", "two": "other-model", "three": own, "four": own}


@pytest.mark.usefixtures("needs_process")
async def test_what_sub_agents_cost_counts_against_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dear = Answer((Text("dear"), Call("run_shell", {"command": "true", **WHY})), usage=ReportedUsage(1_000_000, 0))
    cheap = Answer((task("spend"),), usage=ReportedUsage(10, 0))
    scripts = {"go": [cheap, say("never said")], "spend": [dear, say("never said")]}
    price = Price(Decimal(2), Decimal(2))
    async with household(tmp_path, monkeypatch, scripts, prices=price) as house:
        house.agent.settings = AgentSettings(conversation_budget_usd=1.5)
        with anyio.fail_after(LIMIT):
            result = await house.agent.turn("go")
        assert house.agent.state.spent.cost == pytest.approx(2.00002)
    assert result.status == "limit"
    assert "conversation_budget_usd" in result.failure


@pytest.mark.usefixtures("needs_process")
async def test_the_budget_of_a_turn_holds_for_its_sub_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dear = Answer((Text("dear"), Call("run_shell", {"command": "true", **WHY})), usage=ReportedUsage(1_000_000, 0))
    scripts = {
        "go": [Answer((task("spend"),), usage=ReportedUsage(10, 0)), say("never said")],
        "spend": [dear, say("never said")],
    }
    async with household(tmp_path, monkeypatch, scripts, prices=Price(Decimal(2), Decimal(2))) as house:
        house.agent.settings = AgentSettings(turn_budget_usd=1.5)
        with anyio.fail_after(LIMIT):
            first = await house.agent.turn("go")
        assert (first.status, len(house.scripts.asked["go"]), len(house.scripts.asked["spend"])) == ("limit", 1, 1)
        assert "the turn has cost $2.00" in first.failure
        assert await house.say("go on")  # what counts is one turn, and another has its own budget


# -- where they may be sent


@pytest.mark.usefixtures("needs_process")
async def test_agents_are_sent_only_to_targets_that_the_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[targets.here]\nurl = "local:"\n')
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    targets = NamedTargets(str(file))
    for name in ("here", "local:"):
        async with targets.open(name) as execution:
            assert (await execution.run_shell("echo hi")).stdout == "hi\n"
    for name in ("ssh://somewhere", "there", "", "ssh://["):
        with pytest.raises(TargetNotFound, match="the settings name: here"):
            async with targets.open(name):
                raise AssertionError


# -- notes

SUMMARY = ConversationSummary(session_id="s", created=0, changed=0, target="local:", identity="local:")


async def test_the_notes_of_several_sub_agents_are_told_apart() -> None:
    parent = MemoryLog()
    one, two = SubagentLog(parent, "s.1"), SubagentLog(parent, "s.2")
    await one.turn_started("t1", "look")
    await one.append(["a", "b"])
    await two.append(["x"])
    await one.replaced(["ab"], "both")
    await one.append(["c"])
    one.note("odd", "text")
    await one.noted("odd", "text")
    await one.turn_ended("t1", "completed", Usage(input_tokens=5, answers=1, unpriced=1).json())
    assert texts_of(parent.notes) == {"s.1": ["ab", "c"], "s.2": ["x"]}
    turn = StoredTurn(turn_id="t", prompt="p", usage=Usage(1, 1, cost=0.5, answers=1).json())
    stored = StoredConversation(session=SUMMARY, turns=(turn,), notes=tuple(parent.notes))
    found = spent_in(stored)
    assert (found.input_tokens, found.answers, found.cost) == (6, 2, 0.5)
    assert messages_of(parent.notes) == {}  # no message could be read


@given(
    st.lists(
        st.builds(
            ConversationNote,
            at=st.just(0.0),
            kind=st.just("subagent"),
            text=st.text()
            | st.sampled_from(
                [
                    "{}",
                    "[]",
                    "1",
                    '{"agent":1,"what":"messages","messages":3}',
                    '{"agent":"a","what":"messages","messages":["x"]}',
                ]
            ),
        )
    )
)
def test_notes_that_mean_nothing_are_left_out(notes: list[ConversationNote]) -> None:
    assert set(texts_of(notes)) <= {"a"}
    assert messages_of(notes) == {}


def test_the_pack_of_agents_is_added_where_the_operator_chose_no_tools() -> None:
    assert with_agent_pack(ToolkitSettings()).tools.extra_packs == ("agents",)
    for tools in (
        ToolSettings(packs=("core",)),
        ToolSettings(include=("time",)),
        ToolSettings(extra_packs=("agents",)),
    ):
        assert with_agent_pack(ToolkitSettings(tools=tools)).tools == tools
