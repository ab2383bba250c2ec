"""``task``: sub-agents without a model, whose calls are real."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.toolbox import ALLOWED, toolbox

from harness import ExecutionContext, connect
from harness.cli.asking import approval_text
from harness.errors import ConnectionLost
from harness.testing.agents import Script, ScriptedSpawner
from harness.toolkit import CallOutcome, CallStatus, Executor, Registry, ToolCall
from harness.toolkit.assembly import ToolkitSettings, open_toolkit
from harness.toolkit.catalog import ToolSettings, load_catalogue
from harness.toolkit.contract import PermissionRequest
from harness.toolkit.delegation import AgentType, SpawnRequest, SpawnResult
from harness.toolkit.events import (
    Event,
    JobExited,
    PermissionAsked,
    SubagentCompleted,
    SubagentStarted,
    ToolCallCompleted,
)
from harness.toolkit.hooks.dispatch import HookInvocation, Hooks
from harness.toolkit.interfaces import Verdict
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.session.file_versions import ReadTracker
from harness_tools import agents, core, interaction
from harness_tools.agents import TYPES, USUAL, type_named


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    """This machine without a terminal, with its state apart."""
    for name in ("STATE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    async with connect("local:") as opened:
        yield opened


def parent(execution: ExecutionContext, spawner: ScriptedSpawner | None, *, depth: int = 0, **more: Any) -> Executor:
    """The executor of an agent with the tools of several sets, and a real read tracker."""
    made = toolbox([*core.tools(), *agents.tools(), *interaction.tools()], execution=execution, **more).executor
    return replace(made, spawner=spawner, depth=depth, reads=ReadTracker().of("s1", execution), cwd="/")


async def task(executor: Executor, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(60):
        return await executor.call(ToolCall("task", {"prompt": "do it", **arguments}))


def runs(script: Script) -> ScriptedSpawner:
    return ScriptedSpawner(script)


def facts(outcome: CallOutcome) -> dict[str, Any]:
    assert isinstance(outcome.result.data, dict)
    return outcome.result.data


def offered(spawner: ScriptedSpawner) -> set[str]:
    return {tool.name for tool in spawner.executors[-1].registry.list()}


# -- what it does


async def test_an_agent_does_its_part_and_its_last_words_come_back(here: ExecutionContext, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("the answer is 42\n")
    spawner = ScriptedSpawner([ToolCall("read_file", {"path": str(tmp_path / "notes")})])
    executor = replace(parent(here, spawner), model="large")
    outcome = await task(executor, description="notes", subagent_type="explore", system="be brief", model="small")
    assert (outcome.status, outcome.result.text) == (CallStatus.OK, "the answer is 42")
    request, child = spawner.requests[0], spawner.executors[0]
    assert (request.prompt, request.kind.name, request.description, request.model) == (
        "do it",
        "explore",
        "notes",
        "small",
    )
    assert request.system.endswith("\n\nbe brief")
    assert (request.timeout, request.rounds) == (300.0, 8)
    assert (child.depth, child.model, child.cwd, child.session_id) == (1, "small", "/", request.session_id)
    assert facts(outcome)["session_id"] == request.session_id
    assert request.session_id.startswith("s1.")
    assert child.services.policy is executor.services.policy


async def test_everything_that_happens_in_it_can_be_attributed(here: ExecutionContext) -> None:
    spawner = ScriptedSpawner([ToolCall("time", {}), ToolCall("run_shell", {"command": "echo hunter2"})])
    executor = parent(here, spawner)
    with executor.events.subscribe() as events:
        with anyio.fail_after(60):
            outcome = await executor.call(ToolCall("task", {"prompt": "say hunter2", "description": "x"}, "c1"))
        seen = events.drain()
    agent, session = facts(outcome)["agent_id"], facts(outcome)["session_id"]
    inside = [event for event in seen if event.parent_call]
    assert {event.parent_call for event in inside} == {"c1"}
    assert {event.session_id for event in inside} == {session}
    assert agent == f"general-{session.removeprefix('s1.')}"
    done = [event.outcome.call for event in inside if isinstance(event, ToolCallCompleted)]
    assert [(call.name, call.agent_id) for call in done] == [("time", agent), ("run_shell", agent)]
    started = next(event for event in seen if isinstance(event, SubagentStarted))
    ended = next(event for event in seen if isinstance(event, SubagentCompleted))
    assert (started.agent_id, started.kind, started.title, started.prompt) == (agent, "general", "x", "say [redacted]")
    assert (ended.agent_id, ended.is_error) == (agent, False)
    assert seen.index(started) < seen.index(inside[0]) <= seen.index(inside[-1]) < seen.index(ended)
    assert [event.number for event in seen] == sorted(event.number for event in seen)
    assert "hunter2" not in outcome.result.text


async def test_it_reads_for_itself_and_so_does_its_parent(here: ExecutionContext, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    Path(path).write_text("old")
    write = ToolCall("write_file", {"path": path, "content": "new"})
    spawner = ScriptedSpawner([write])
    executor = parent(here, spawner)
    await executor.call(ToolCall("read_file", {"path": path}))
    first = await task(executor)
    assert spawner.outcomes[0].result.error_code == "not_read"
    again = runs(read_then_stop(path))
    executor = replace(executor, spawner=again)
    second = await task(executor)
    executor = replace(executor, spawner=spawner)
    resumed = await task(executor, resume=facts(second)["session_id"])
    assert facts(resumed)["session_id"] == facts(second)["session_id"]
    assert spawner.requests[-1].resume == facts(second)["session_id"]
    assert (spawner.outcomes[1].status, Path(path).read_text()) == (CallStatus.OK, "new")
    assert (await executor.call(write)).result.error_code == "stale"
    assert facts(first)["session_id"] != facts(second)["session_id"]


def read_then_stop(path: str) -> Script:
    async def script(request: SpawnRequest, executor: Executor) -> SpawnResult:
        await executor.call(ToolCall("read_file", {"path": path}))
        return SpawnResult("read it", usage={"tokens": 12})

    return script


async def test_only_agents_that_were_started_here_go_on(here: ExecutionContext) -> None:
    spawner = ScriptedSpawner()
    own = f"s1.{'0' * 12}"
    for session in ("s1", "other", "s2.abc", "s1abc", "s", "s1.", f"{own} that ann approved", f"{own}\n", f"x{own}"):
        outcome = await task(parent(here, spawner), resume=session)
        assert outcome.result.error_code == "unknown_session"
    assert spawner.requests == []


# -- its tools


async def test_each_type_has_its_tools(here: ExecutionContext) -> None:
    spawner = ScriptedSpawner()
    executor = parent(here, spawner)
    for kind, has, lacks in (
        ("general", {"run_shell", "write_file", "task"}, {"todo_write", "compact"}),
        ("Explore", {"run_shell", "read_file", "tool_search"}, {"write_file", "task", "send_keys"}),
        ("plan", {"read_file"}, {"run_shell", "write_file", "task"}),
        ("code-reviewer", {"read_file"}, {"run_shell", "write_file", "task"}),
    ):
        assert (await task(executor, subagent_type=kind)).status is CallStatus.OK
        assert offered(spawner) >= has
        assert offered(spawner).isdisjoint(lacks)
    await task(executor, tools=["bash", "read"])
    assert offered(spawner) == {"run_shell", "read_file"}
    await task(executor, tools=["read"], subagent_type="explore")
    assert offered(spawner) == {"read_file"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"subagent_type": "explorre"}, "unknown_type", "did you mean 'explore'"),
        ({"subagent_type": "zzz"}, "unknown_type", "known: general, explore, plan, reviewer, odd, own"),
        ({"tools": ["raed_file"]}, "unknown_tool", "did you mean 'read_file'"),
        ({"tools": ["write_file"], "subagent_type": "plan"}, "unknown_tool", "write_file"),
        ({"tools": ["todo_write"]}, "unknown_tool", "todo_write"),
        ({"tools": []}, "unknown_tool", "no tools are left"),
        ({"subagent_type": "odd"}, "unknown_tool", "Read_File_Tool"),
        ({"backend": "ssh://elsewhere"}, "agent_failed", "sub-agents cannot work on ssh://elsewhere"),
        ({"timeout": 0}, "invalid_args", "timeout"),
        ({"prompt": ""}, "invalid_args", "prompt"),
        ({"prompt": "x" * 200_000}, "invalid_args", "prompt"),
        ({"resume": "a\0b"}, "invalid_args", "NUL"),
    ],
)
async def test_what_cannot_be_started_is_told(here: ExecutionContext, arguments: Any, code: str, words: str) -> None:
    types = (AgentType("odd", "has a wrong name", ("Read_File_Tool",)), AgentType("own", "is another's", ("time",)))
    spawner = ScriptedSpawner(types=types)
    outcome = await task(parent(here, spawner), **arguments)
    assert (outcome.result.error_code, spawner.requests) == (code, [])
    assert words in outcome.result.text


async def test_a_type_of_the_program_is_one_like_the_others(here: ExecutionContext) -> None:
    spawner = ScriptedSpawner(
        [ToolCall("time", {"format": "date"})], types=(AgentType("own", "x", ("time",), "be exact"),)
    )
    assert (await task(parent(here, spawner), type="own")).status is CallStatus.OK
    assert (offered(spawner), spawner.requests[0].system) == ({"time"}, "be exact")


async def test_a_model_reads_the_types_of_the_program_in_each_profile(here: ExecutionContext) -> None:
    spawner = ScriptedSpawner(types=(AgentType("own", "is the program's"), AgentType("Explore", "looks otherwise")))
    settings = ToolkitSettings(tools=ToolSettings(extra_packs=("agents",)))
    async with open_toolkit(settings) as toolkit:
        for profile, name in (("none", "task"), ("hex", "task"), ("hygge", "subagent")):
            async with toolkit.executor(here, spawner=spawner, profile=profile) as executor:
                tool = executor.registry.lookup(name)
                lines = tool.description.splitlines()
                assert lines[-1] == "- own: is the program's."
                assert "- Explore: looks otherwise." in lines
                assert len(lines) == 6
                assert '"own"' in json.dumps(tool.schema)
        async with toolkit.executor(here, spawner=ScriptedSpawner(), profile="none") as executor:
            assert "own" not in executor.registry.lookup("task").description.splitlines()[-1]


def test_every_name_of_the_usual_types_is_a_tool_or_comes_with_a_pack() -> None:
    known = load_catalogue(ToolSettings()).known
    assert {name for name in USUAL if known.get(name) is None} == set()
    assert [kind.name for kind in TYPES] == ["general", "explore", "plan", "reviewer"]
    assert type_named("general-purpose") is TYPES[0]


# -- its depth


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_agents_start_agents_until_the_limit(here: ExecutionContext, limit: int) -> None:
    depths: list[tuple[int, bool]] = []
    refused: list[CallOutcome] = []

    async def script(request: SpawnRequest, executor: Executor) -> SpawnResult:
        depths.append((executor.depth, executor.registry.get("task") is not None))
        outcome = await executor.call(ToolCall("Agent", {"prompt": "deeper"}))
        if outcome.result.is_error:
            refused.append(outcome)
        return SpawnResult(f"at {executor.depth}")

    outcome = await task(replace(parent(here, runs(script)), max_agent_depth=limit))
    assert outcome.result.text == "at 1"
    assert depths == [(depth, depth < limit) for depth in range(1, limit + 1)]
    assert [one.result.error_code for one in refused] == ["unknown_tool"]


async def test_at_the_limit_nothing_is_started_and_below_it_is(here: ExecutionContext) -> None:
    spawner = ScriptedSpawner()
    at = await task(parent(here, spawner, depth=2))
    assert (at.result.error_code, spawner.requests) == ("depth_limit", [])
    below = await task(parent(here, spawner, depth=1))
    assert (below.status, len(spawner.requests)) == (CallStatus.OK, 1)
    named = await task(parent(here, spawner, depth=1), tools=["task"])
    assert named.result.error_code == "unknown_tool"


LIMITS: list[tuple[dict[str, Any], dict[str, Any], str | None, int]] = [
    ({}, {}, None, 2),
    ({}, {}, "hygge", 2),
    ({}, {}, "hex", 5),
    ({"tool_profile": "hex"}, {}, None, 5),
    ({"tool_profile": "hex"}, {}, "none", 2),
    ({"tool_profile": "hex", "max_agent_depth": 1}, {}, None, 1),
    ({"max_agent_depth": 3}, {}, "hex", 3),
    ({"max_agent_depth": 3}, {"max_agent_depth": 4}, "hex", 4),
    ({"max_agent_depth": 3}, {"max_agent_depth": 0}, None, 0),
]
"""The settings, what a program says, the session's profile, and the limit that counts."""


async def test_the_limit_is_the_programs_the_settings_or_the_profiles(here: ExecutionContext) -> None:
    for chosen, said, profile, limit in LIMITS:
        settings = ToolkitSettings(tools=ToolSettings(extra_packs=("agents",), **chosen))
        async with (
            open_toolkit(settings, **said) as toolkit,
            toolkit.executor(here, spawner=ScriptedSpawner(), profile=profile) as executor,
        ):
            offered_here = any(tool.own.name == "task" for tool in executor.registry.list())
        assert (executor.max_agent_depth, offered_here) == (limit, limit > 0), (chosen, said, profile)


# -- its limits and its end


async def test_it_has_a_budget_of_calls(here: ExecutionContext) -> None:
    codes: list[str] = []

    async def script(request: SpawnRequest, executor: Executor) -> SpawnResult:
        for _ in range(request.calls + 2):
            codes.append((await executor.call(ToolCall("time", {}))).result.error_code)
        return SpawnResult("done")

    await task(parent(here, runs(script)))
    assert codes == [""] * 64 + ["over_budget"] * 2


@pytest.mark.parametrize("how", ["error", "exception", "defect", "lost", "timeout"])
async def test_a_failure_names_the_session_that_can_go_on(here: ExecutionContext, how: str) -> None:
    async def script(request: SpawnRequest, executor: Executor) -> SpawnResult:
        if how == "error":
            return SpawnResult("I could not", is_error=True)
        if how == "defect":
            raise ZeroDivisionError("hunter2")
        if how == "lost":
            raise ConnectionLost("the link was lost")
        if how == "timeout":
            await anyio.sleep_forever()
        raise ValueError("no")

    executor = parent(here, runs(script))
    with executor.events.subscribe() as events:
        outcome = await task(executor, timeout=1)
        ended = [event for event in events.drain() if isinstance(event, SubagentCompleted)]
    assert outcome.result.error_code == ("timeout" if how == "timeout" else "agent_failed")
    assert f'resume="{facts(outcome)["session_id"]}"' in outcome.result.text
    assert outcome.result.metadata["session_id"] == facts(outcome)["session_id"]
    assert [event.is_error for event in ended] == [True]
    assert "hunter2" not in outcome.result.text


async def test_a_timeout_beyond_any_is_the_longest(here: ExecutionContext) -> None:
    spawner = ScriptedSpawner()
    outcome = await task(parent(here, spawner), timeout="9000")
    assert spawner.requests[0].timeout == 1800.0
    assert "[timeout was 9000 s; 1800 s is the maximum]" in outcome.result.text


@pytest.mark.parametrize("how", ["ends", "fails", "is cancelled"])
async def test_what_it_left_behind_is_ended_and_its_locks_are_free(
    here: ExecutionContext, tmp_path: Path, how: str
) -> None:
    path, started = str(tmp_path / "file"), anyio.Event()

    async def script(request: SpawnRequest, executor: Executor) -> SpawnResult:
        await executor.call(ToolCall("run_shell", {"command": "sleep 300", "wait": False}))
        if how == "ends":
            return SpawnResult("done")
        async with executor.locks.hold([f"{here.identity}\0{path}"]):
            started.set()
            if how == "fails":
                raise ConnectionLost("the model went away")
            await anyio.sleep_forever()
        raise AssertionError

    executor = parent(here, runs(script))
    outcomes: list[CallOutcome] = []
    seen: list[Event] = []

    async def run() -> None:
        with executor.events.listening(seen.append):
            outcomes.append(await task(executor, timeout=60))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        if how == "is cancelled":
            with anyio.fail_after(60):
                await started.wait()
            executor.cancel()
    jobs = [job for job in await here.jobs() if job.command == "sleep 300"]
    assert [job.status.value for job in jobs] == ["interrupted"]
    assert [event.job_id for event in seen if isinstance(event, JobExited)] == [jobs[0].job_id]
    assert (await executor.call(ToolCall("write_file", {"path": path, "content": "x"}))).status is CallStatus.OK
    if how != "is cancelled":
        assert facts(outcomes[0])["ended_jobs"] == [jobs[0].job_id]
        assert f"[jobs that it had left running were killed: {jobs[0].job_id}]" in outcomes[0].result.text
    else:
        assert outcomes[0].status is CallStatus.CANCELLED


async def test_agents_work_at_once(here: ExecutionContext) -> None:
    met, both = [0], anyio.Event()

    async def script(request: SpawnRequest, executor: Executor) -> SpawnResult:
        met[0] += 1
        if met[0] == 2:
            both.set()
        with anyio.fail_after(60):
            await both.wait()
        return SpawnResult(request.prompt)

    executor = parent(here, runs(script))
    outcomes = await executor.batch([ToolCall("task", {"prompt": prompt}) for prompt in ("one", "two")])
    assert [outcome.result.text for outcome in outcomes] == ["one", "two"]
    assert len({facts(outcome)["session_id"] for outcome in outcomes}) == 2


# -- who may


async def test_each_of_its_calls_is_judged_by_the_same_policy(here: ExecutionContext) -> None:
    def answer(request: PermissionRequest) -> Verdict:
        return Verdict(False, "no commands", "rule") if request.call.name == "run_shell" else ALLOWED

    spawner = ScriptedSpawner([ToolCall("run_shell", {"command": "touch /tmp/never"})])
    await task(parent(here, spawner, answer=answer))
    assert spawner.outcomes[0].status is CallStatus.DENIED


class _Person(Approver):
    def __init__(self, scope: ApprovalScope = ApprovalScope.ONCE) -> None:
        self.scope = scope
        self.questions: list[ApprovalRequest] = []

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        self.questions.append(question)
        return ApprovalDecision(self.scope, "person")


async def test_with_everything_real_its_questions_say_who_asks(here: ExecutionContext, tmp_path: Path) -> None:
    spawner = ScriptedSpawner([ToolCall("run_shell", {"command": f"echo hi > {tmp_path}/made"})])
    person, told, seen = _Person(), Hooks(), list[Event]()
    occasions: list[HookInvocation] = []
    told.on("subagent_stop", occasions.append)
    settings = ToolkitSettings(tools=ToolSettings(extra_packs=("agents",)))
    async with open_toolkit(settings) as toolkit:
        async with toolkit.executor(here) as alone:
            assert alone.registry.get("task") is None
            assert alone.registry.get("tool_search") is not None
        async with toolkit.executor(here, approver=person, spawner=spawner, hooks=told, session_id="s1") as executor:
            with executor.events.listening(seen.append):
                outcome = await task(executor)
    assert outcome.status is CallStatus.OK, outcome.result.text
    assert (tmp_path / "made").read_text() == "hi\n"
    agent = facts(outcome)["agent_id"]
    assert [(one.call.name, one.call.agent_id, one.session_id) for one in person.questions] == [
        ("task", "", "s1"),
        ("run_shell", agent, facts(outcome)["session_id"]),
    ]
    assert f"requested by agent {agent}" in approval_text(person.questions[1])
    assert "requested by" not in approval_text(person.questions[0])
    asked = [event for event in seen if isinstance(event, PermissionAsked)]
    assert [bool(event.parent_call) for event in asked] == [False, True]
    assert [(one.session_id, one.agent_id) for one in occasions] == [("s1", agent)]


async def test_what_the_session_was_allowed_its_agent_does_without_asking_again(
    here: ExecutionContext, tmp_path: Path
) -> None:
    command = ToolCall("run_shell", {"command": f"echo hi >> {tmp_path}/made"})
    spawner, person = ScriptedSpawner([command]), _Person(ApprovalScope.TOOL)
    settings = ToolkitSettings(tools=ToolSettings(extra_packs=("agents",)))
    async with open_toolkit(settings) as toolkit:
        async with toolkit.executor(here, approver=person, spawner=spawner, session_id="s1") as executor:
            await executor.call(command)
            session = facts(await task(executor))["session_id"]
        (written,) = await toolkit.ledger.calls_of(session)
    assert [one.call.name for one in person.questions] == ["run_shell", "task"]
    assert (tmp_path / "made").read_text() == "hi\nhi\n"
    assert "answered tool by person for the agents of session s1" in str(written.call)


async def test_another_target_is_opened_for_it_and_closed_again(here: ExecutionContext) -> None:
    class Elsewhere(ScriptedSpawner):
        left = False

        @asynccontextmanager
        async def open_target(self, url: str) -> AsyncIterator[ExecutionContext]:
            assert url == "local:"
            async with connect(url) as opened:
                yield opened
            self.left = True

    spawner = Elsewhere([ToolCall("run_shell", {"command": "echo there"})])
    outcome = await task(parent(here, spawner), backend="local:")
    assert "there" in outcome.result.text
    assert spawner.executors[0].execution is not here
    assert spawner.left


async def test_without_anybody_who_brings_a_model_there_are_no_agents(here: ExecutionContext) -> None:
    outcome = await task(parent(here, None))
    assert outcome.error is not None
    assert "no model is configured" in outcome.result.text


def test_the_set_says_what_it_is() -> None:
    found = Registry(agents.tools())
    assert [tool.name for tool in found.list()] == ["task", "tool_search"]
    made = found.lookup("task")
    assert (made.traits.mutating, made.traits.parallelizable) == (True, True)
    assert set(made.traits.aliases) == {"subagent", "Agent"}
    assert all(kind.name in made.description for kind in TYPES)
