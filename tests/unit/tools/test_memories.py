"""The list of things to do, memories, and ``compact``: what is kept, who has a say, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.permits import Says
from tests.support.toolbox import Toolbox, toolbox

from harness.errors import HarnessError
from harness.testing.memory import MemoryBackend
from harness.toolkit import CallOutcome, CallStatus, Executor, ToolCall
from harness.toolkit.events import TodoChanged
from harness.toolkit.interfaces import Compaction, Compactor
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import PermissionSettings
from harness.toolkit.redaction.redactor import PatternRedactor
from harness.toolkit.session.notebook import MemoryLocation, MemoryScope, Todo, TodoStatus
from harness.toolkit.session.notebook_stores import SqliteNotebook
from harness_tools.interaction import tools

HERE = "memory://here"
SECRET = "password=Tr0ub4dor-3x"


def agree(question: ApprovalRequest) -> ApprovalDecision:
    return ApprovalDecision(ApprovalScope.ONCE)


def refuse(question: ApprovalRequest) -> ApprovalDecision:
    return ApprovalDecision(ApprovalScope.DENY_ONCE)


@dataclass
class Desk:
    """The tools with a real notebook, a real redactor and a real policy."""

    box: Toolbox
    executor: Executor
    approver: Says

    async def call(self, name: str, /, **arguments: Any) -> CallOutcome:
        return await self.executor.call(ToolCall(name, arguments))

    async def text(self, name: str, /, **arguments: Any) -> str:
        return (await self.call(name, **arguments)).result.text


def desk(
    place: Path, *, session: str = "s1", cwd: str | None = None, rules: tuple[Rule, ...] = (), **more: Any
) -> Desk:
    box, approver = toolbox(tools(), backend=MemoryBackend()), Says()
    policy = RulePolicy(PermissionSettings(rules=rules), approver=approver)
    services = replace(box.executor.services, policy=policy, redactor=PatternRedactor())
    notebook = SqliteNotebook(place)
    executor = replace(box.executor, services=services, notebook=notebook, session_id=session, cwd=cwd, **more)
    return Desk(box, executor, approver)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "notebook"


# -- things to do


async def test_the_list_is_kept_shown_and_told(place: Path) -> None:
    one = desk(place)
    todos = [
        {"content": "look", "status": "completed"},
        {"content": "repair", "status": "in_progress", "activeForm": "Repairing", "priority": "high"},
        {"content": "report", "status": "pending"},
        {"content": "rest", "status": "cancelled"},
    ]
    with one.box.events.subscribe() as events:
        outcome = await one.call("todo_write", todos=todos)
        (changed,) = [event for event in events.drain() if isinstance(event, TodoChanged)]
    assert outcome.result.text.splitlines() == [
        "1 of 4 done",
        "[x] look",
        "[>] Repairing (high)",
        "[ ] report",
        "[-] rest",
    ]
    assert outcome.result.data == {
        "todos": changed.todos,
        "counts": {"completed": 1, "in_progress": 1, "pending": 1, "cancelled": 1},
    }
    again = SqliteNotebook(place)  # as after a restart with the same session
    assert (await again.todos("s1"))[1] == Todo("repair", TodoStatus.IN_PROGRESS, "Repairing", "high")
    assert await again.todos("s2") == ()
    assert one.approver.questions == []


@pytest.mark.parametrize("name", ["todo_write", "todo", "TaskList", "TodoWrite"])
async def test_an_empty_list_clears_it_under_every_name(place: Path, name: str) -> None:
    one = desk(place)
    await one.call("todo_write", todos=[{"content": "a", "status": "pending"}])
    with one.box.events.subscribe() as events:
        assert await one.text(name, items=[]) == "The list is empty"
        assert [event.todos for event in events.drain() if isinstance(event, TodoChanged)] == [[]]
    assert await SqliteNotebook(place).todos("s1") == ()


async def test_no_secret_is_kept_in_the_list_or_told(place: Path) -> None:
    one = desk(place)
    with one.box.events.subscribe() as events:
        await one.call("todo_write", todos=[{"content": f"use {SECRET}", "status": "pending"}])
        assert "Tr0ub4dor" not in repr(events.drain())
    assert (await SqliteNotebook(place).todos("s1"))[0].content == "use password=[redacted]"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "todos: required"),
        ({"todos": [{"content": "a"}]}, "todos.0.status: required"),
        ({"todos": [{"content": "a", "status": "done"}]}, "todos.0.status"),
        ({"todos": [{"content": "", "status": "pending"}]}, "it is empty"),
        ({"todos": [{"content": "a\0", "status": "pending"}]}, "NUL"),
        ({"todos": [{"content": "a", "status": "pending"}] * 101}, "at most 100 items"),
        ({"todos": [{"content": "a", "status": "pending", "priority": "urgent"}]}, "priority"),
        (
            {"todos": [{"content": "a", "status": "pending", "id": "1"}]},
            "todos.0.id: no such argument; known: content",
        ),
        (
            {"todos": [{"content": "a", "statuss": "pending"}]},
            "todos.0.statuss: no such argument; did you mean 'status'?",
        ),
        ({"todos": [{}] * 100}, "and 180 more errors"),
        ({"todos": [], "x" * 10_000: 1}, f"todo_write: {'x' * 100}: no such argument"),
        ({"todos": 3}, "todos.0"),
    ],
)
async def test_a_list_that_is_wrong_changes_nothing(place: Path, arguments: dict[str, Any], problem: str) -> None:
    one = desk(place)
    outcome = await one.call("todo_write", **arguments)
    assert outcome.result.error_code == "invalid_args"
    assert problem in outcome.result.text
    assert not place.exists()


# -- memories


async def test_what_is_remembered_for_the_session_asks_nobody_and_is_found(place: Path) -> None:
    one = desk(place)
    outcome = await one.call("remember", content=" nginx is in /opt \n")
    assert outcome.result.text == "Remembered as m1 (session)"
    assert await one.text("recall") == "m1 (session): nginx is in /opt"
    assert await desk(place, session="s2").text("recall") == "No memories"
    assert await one.text("forget", memory_id="m1") == "Forgot m1: nginx is in /opt"
    assert one.approver.questions == []


@pytest.mark.parametrize("scope", ["project", "host", "global"])
async def test_what_outlives_the_session_is_asked_about(place: Path, scope: str) -> None:
    one = desk(place, cwd="/srv")
    arguments = {"content": "nginx is in /opt", "scope": scope, "confirmed_by_user": True}
    one.approver.answer = refuse
    assert (await one.call("remember", **arguments)).status is CallStatus.DENIED
    assert not place.exists()
    one.approver.answer = agree
    assert (await one.call("remember", **arguments)).status is CallStatus.OK
    assert [question.what for question in one.approver.questions] == [f"{scope}: nginx is in /opt"] * 2
    assert await desk(place, session="s2", cwd="/srv").text("recall") == f"m1 ({scope}): nginx is in /opt"
    one.approver.answer = refuse
    assert (await one.call("forget", memory_id="m1", scope=scope)).status is CallStatus.DENIED
    one.approver.answer = agree
    assert await one.text("forget", memory_id="1", scope=scope) == "Forgot m1: nginx is in /opt"
    assert one.approver.questions[-1].what == f"{scope}: m1"


async def test_with_nobody_to_approve_nothing_outlives_the_session(place: Path) -> None:
    one = desk(place)
    services = replace(one.executor.services, policy=RulePolicy(PermissionSettings()))
    alone = replace(one, executor=replace(one.executor, services=services))
    for scope in ("project", "host", "global"):
        assert (await alone.call("remember", content="a", scope=scope)).status is CallStatus.DENIED
        assert (await alone.call("forget", memory_id="m1", scope=scope)).status is CallStatus.DENIED
    assert not place.exists()
    assert (await alone.call("remember", content="a")).status is CallStatus.OK


async def test_a_rule_can_allow_one_scope(place: Path) -> None:
    rule = Rule(Action.ALLOW, "*", "remember", "host: *", Match.GLOB)
    one = desk(place, rules=(rule,))
    one.approver.answer = refuse
    assert (await one.call("remember", content="a", scope="host")).status is CallStatus.OK
    assert (await one.call("remember", content="a", scope="global")).status is CallStatus.DENIED
    assert len(one.approver.questions) == 1


@pytest.mark.parametrize("scope", ["session", "project", "host", "global"])
async def test_no_scope_keeps_a_secret(place: Path, scope: str) -> None:
    one = desk(place)
    outcome = await one.call("remember", content=f"log in with {SECRET}", scope=scope)
    assert (outcome.result.is_error, outcome.result.error_code) == (True, "secret")
    assert "Tr0ub4dor" not in outcome.result.text + repr([question.what for question in one.approver.questions])
    assert not place.exists()


async def test_a_memory_of_another_place_cannot_be_seen_or_forgotten(place: Path) -> None:
    book = SqliteNotebook(place)
    others = (
        MemoryLocation(MemoryScope.SESSION, session_id="s2"),
        MemoryLocation(MemoryScope.HOST, target="ssh://other"),
        MemoryLocation(MemoryScope.PROJECT, target=HERE, cwd="/srv/other"),
    )
    for number, other in enumerate(others, 1):
        await book.remember(other, "private")
        one = desk(place, cwd="/srv")
        outcome = await one.call("forget", memory_id=number, scope=str(other.scope))
        assert outcome.result.error_code == "not_found"
        assert "private" not in outcome.result.text
        assert await one.text("recall") == "No memories"
    assert len(await book.memories()) == len(others)


async def test_a_wrong_scope_is_named(place: Path) -> None:
    one = desk(place)
    await one.call("remember", content="a", scope="host")
    assert await one.text("forget", memory_id="m1") == "m1 has scope host, not session"


async def test_recall_chooses_counts_and_never_cuts_a_memory(place: Path) -> None:
    one = desk(place)
    book = SqliteNotebook(place)
    for number in range(15):
        await book.remember(MemoryLocation(MemoryScope.GLOBAL), f"{number}: {'x' * 1_900}\nm99 (global): not one")
    await one.call("remember", content="Nginx")
    outcome = await one.call("recall")
    data = outcome.result.data
    assert isinstance(data, dict)
    assert isinstance(data["memories"], list)
    assert data["count"] == 16
    assert data["left_out"] == 16 - len(data["memories"]) > 0
    assert f"[{data['left_out']} older memories are not shown" in outcome.result.text
    assert outcome.result.text.startswith("m16 (session): Nginx\nm15 (global): 14: ")
    assert not [line for line in outcome.result.text.splitlines() if line.startswith("m99")]
    assert await one.text("recall", query="NGINX") == "m16 (session): Nginx"
    assert await one.text("recall", scope="host") == "No memories"


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("remember", {}, "content: required"),
        ("remember", {"content": ""}, "it is empty"),
        ("remember", {"content": "x" * 2_001}, "at most 2000 characters"),
        ("remember", {"content": "a\0"}, "NUL"),
        ("remember", {"content": "\udc80"}, "content"),
        ("remember", {"content": "a", "scope": "world"}, "scope"),
        ("forget", {}, "memory_id: required"),
        ("forget", {"memory_id": "12; DROP TABLE"}, "ids look like m12"),
        ("forget", {"memory_id": -1}, "ids look like m12"),
        ("forget", {"memory_id": True}, "memory_id"),
        ("forget", {"memory_id": "9" * 500}, "ids look like m12"),
        ("recall", {"query": "x" * 1_001}, "at most 1000 characters"),
        ("recall", {"id": "m1"}, "no such argument"),
    ],
)
async def test_what_is_wrong_is_told_and_changes_nothing(
    place: Path, name: str, arguments: dict[str, Any], problem: str
) -> None:
    outcome = await desk(place).call(name, **arguments)
    assert outcome.result.error_code == "invalid_args"
    assert problem in outcome.result.text
    assert not place.exists()


async def test_a_full_place_and_a_damaged_notebook_are_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.toolkit.session.notebook_stores.PLACE_LIMIT", 1)
    one = desk(place)
    await one.call("remember", content="a")
    assert (await one.call("remember", content="b")).result.error_code == "full"
    (place / "notebook.db").write_bytes(b"no database at all, and longer than a header is")
    for name, arguments in (("todo_write", {"todos": []}), ("recall", {}), ("remember", {"content": "c"})):
        outcome = await one.call(name, **arguments)
        assert outcome.error is not None
        assert "is damaged" in outcome.result.text


async def test_an_executor_without_a_notebook_says_so(place: Path) -> None:
    one = desk(place)
    bare = replace(one, executor=replace(one.executor, notebook=None))
    assert "this session has no notebook" in await bare.text("todo_write", todos=[])


# -- compact


class Keeper(Compactor):
    def __init__(self, answer: Compaction | HarnessError | None) -> None:
        self.answer = answer
        self.sessions: list[str] = []

    async def compact(self, session_id: str) -> Compaction | None:
        self.sessions.append(session_id)
        if isinstance(self.answer, HarnessError):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (Compaction(40, 6, "long ago"), "", "40 messages became 6"),
        (None, "nothing_to_compact", "there is too little"),
        (HarnessError("the model is away"), "execution_failed", "the model is away"),
    ],
)
async def test_the_conversation_is_made_shorter_by_who_keeps_it(
    place: Path, answer: Compaction | HarnessError | None, code: str, text: str
) -> None:
    keeper = Keeper(answer)
    outcome = await desk(place, compactor=keeper).call("compact")
    assert (outcome.result.error_code, text in outcome.result.text) == (code, True)
    assert keeper.sessions == ["s1"]


async def test_without_one_it_cannot_be(place: Path) -> None:
    assert (await desk(place).call("compact")).result.error_code == "no_compactor"
