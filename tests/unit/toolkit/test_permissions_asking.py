"""Asking: who may answer, how far an answer goes, and what happens when none comes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.support.permits import Desk, Says, desk, says

from harness import connect
from harness.testing.memory import MemoryBackend, _NoTransport
from harness.toolkit import ToolCall
from harness.toolkit.events import Event, PermissionAsked, PermissionReplied
from harness.toolkit.interfaces import Verdict
from harness.toolkit.permissions.approver import Approver, EventApprover
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.rules.rule import Action, Rule
from harness.toolkit.permissions.rules.settings import Mode
from harness.toolkit.permissions.rules.store import RuleFile


async def test_without_an_approver_what_would_be_asked_is_denied_with_what_to_do() -> None:
    verdict = await desk().decide("write_file", "/srv/a")
    assert (verdict.allowed, verdict.by) == (False, "no approver")
    assert "harness permissions add" in verdict.reason
    assert 'permissions.mode = "auto"' in verdict.reason


async def test_no_way_to_allow_it_is_named_that_does_not_allow_it() -> None:
    reason = (await desk().decide("run_shell", "$TOOL --version")).reason
    assert "a rule (harness permissions add) for exactly this text" in reason
    assert "mode" not in reason
    reason = (await desk().decide("send_keys", "x<Enter>")).reason
    assert reason.endswith("no rule or mode allows it")


async def test_an_approval_for_once_is_asked_again() -> None:
    approver = says(ApprovalScope.ONCE)
    made = desk(approver)
    assert [await made.allows("write_file", "/srv/a") for _ in range(2)] == [True, True]
    assert len(approver.questions) == 2


@pytest.mark.parametrize(
    ("scope", "same", "sibling", "deeper", "other_tool", "other_session"),
    [
        (ApprovalScope.ONCE, 1, 1, 1, 1, 1),
        (ApprovalScope.EXACT, 0, 1, 1, 1, 1),
        (ApprovalScope.DIRECTORY, 0, 0, 0, 1, 1),
        (ApprovalScope.TOOL, 0, 0, 0, 1, 1),
        (ApprovalScope.SESSION, 0, 0, 0, 0, 1),
        (ApprovalScope.ALWAYS, 0, 1, 1, 1, 0),
    ],
)
async def test_how_far_each_answer_goes(
    scope: ApprovalScope, same: int, sibling: int, deeper: int, other_tool: int, other_session: int, tmp_path: Path
) -> None:
    approver = says(scope)
    calls = [
        (same, ("write_file", "/srv/a"), "s1"),
        (sibling, ("write_file", "/srv/b"), "s1"),
        (deeper, ("write_file", "/srv/x/y"), "s1"),
        (other_tool, ("change",), "s1"),
        (other_session, ("write_file", "/srv/a"), "s2"),
    ]
    for number, (asked, words, session) in enumerate(calls):
        backend = MemoryBackend()
        await backend.files.write("/srv/a", b"")
        made = desk(approver, backend=backend, file=tmp_path / f"{number}.json")
        approver.questions.clear()
        assert await made.allows("write_file", "/srv/a")
        assert await made.allows(*words, session=session)
        assert len(approver.questions) == 1 + asked, words


async def test_a_denial_for_the_session_denies_that_and_nothing_else() -> None:
    approver = says(ApprovalScope.DENY_SESSION, reason="not today")
    made = desk(approver)
    verdict = await made.decide("write_file", "/srv/a")
    assert (verdict.allowed, verdict.reason, verdict.by) == (False, "not today", "operator (deny-session)")
    assert (await made.decide("write_file", "/srv/a")).by.startswith("deny rule")
    await made.decide("write_file", "/srv/b")
    assert [question.what for question in approver.questions] == ["write /srv/a", "write /srv/b"]


async def test_only_what_was_asked_about_is_denied_or_granted() -> None:
    answers = [ApprovalDecision(ApprovalScope.EXACT), ApprovalDecision(ApprovalScope.DENY_SESSION)]
    made = desk(Says(lambda question: answers.pop(0)))
    assert await made.allows("write_file", "/srv/a")
    assert not await made.allows("write_file", "/srv/a", "/srv/b")
    assert await made.allows("write_file", "/srv/a")
    assert not await made.allows("write_file", "/srv/b")


async def test_a_grant_for_a_call_without_a_subject_covers_its_arguments_and_no_others() -> None:
    approver = says(ApprovalScope.EXACT)
    made = desk(approver)
    assert await made.allows("change", size=1, why="because")
    assert await made.allows("change", size=1, why="for another reason")
    assert len(approver.questions) == 1
    assert await made.allows("change", size=2)
    assert len(approver.questions) == 2
    assert approver.questions[1].what == 'change {"size": 2}'


class Here(_NoTransport):
    """A transport that knows which one of its target's name it is at."""

    which = ""

    @property
    def identity(self) -> str:
        return self.which


def elsewhere(which: str) -> MemoryBackend:
    backend = MemoryBackend()
    backend.transport = Here(backend.target)
    backend.transport.which = which
    return backend


async def test_a_grant_on_one_target_says_nothing_of_another_of_that_name(tmp_path: Path) -> None:
    for scope in (ApprovalScope.ALWAYS, ApprovalScope.SESSION, ApprovalScope.TOOL, ApprovalScope.EXACT):
        approver, file = says(scope), tmp_path / f"{scope}.json"
        one = desk(approver, backend=elsewhere("a1"), file=file)
        assert await one.allows("write_file", "/srv/a")
        other = desk(approver, backend=elsewhere("b2"), file=file)
        other.policy._family = one.policy._family
        assert await other.allows("write_file", "/srv/a")
        assert [question.target.partition("#")[2] for question in approver.questions] == ["a1", "b2"]


async def test_always_survives_a_restart_and_is_literal(tmp_path: Path) -> None:
    file = tmp_path / "permissions.json"
    assert await desk(says(ApprovalScope.ALWAYS), file=file).allows("write_file", "/srv/*")
    fresh = desk(file=file)
    assert await fresh.allows("write_file", "/srv/*")
    assert not await fresh.allows("write_file", "/srv/a")


async def test_an_answer_that_cannot_be_kept_warns_and_holds_for_the_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    made = desk(says(ApprovalScope.ALWAYS), file=tmp_path / "file" / "permissions.json")
    with caplog.at_level(logging.WARNING):
        assert await made.allows("write_file", "/srv/a")
    assert "to this session only" in caplog.text


async def test_a_text_with_a_secret_is_not_written_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "permissions.json"
    approver = says(ApprovalScope.ALWAYS)
    made = desk(approver, file=file)
    assert await made.allows("change", password="hunter2")
    assert await made.allows("change", password="hunter2")
    assert len(approver.questions) == 1
    assert not file.exists() or "hunter2" not in file.read_text()
    assert "hunter2" not in approver.questions[0].what + str(approver.questions[0].call) + caplog.text
    assert "contains a secret" in caplog.text


# -- the events, and who answers


async def events_of(made: Desk, *words: str, **arguments: object) -> tuple[Verdict, list[Event]]:
    with made.ctx.events.subscribe() as events:
        verdict = await made.decide(*words, **arguments)
        return verdict, events.drain()


async def test_each_question_is_published_and_gets_one_reply_with_its_id() -> None:
    made = desk(says(ApprovalScope.ONCE))
    verdict, events = await events_of(made, "write_file", "/srv/a", risk="high", why="it is hunter2")
    asked, replied = events
    assert isinstance(asked, PermissionAsked)
    assert isinstance(replied, PermissionReplied)
    assert (asked.what, asked.details) == ("write /srv/a", {"risk": "high", "why": "it is [redacted]"})
    assert (replied.request_id, replied.allowed, replied.by) == (asked.request_id, True, "operator")
    assert verdict.allowed


async def test_what_the_caller_says_of_a_call_decides_nothing() -> None:
    made = desk()
    for words in ({"risk": "low", "mutation": False}, {"risk": "high", "mutation": True, "privesc": True}):
        assert not await made.allows("write_file", "/srv/a", **words)
        assert await made.allows("read_file", "/srv/a", **words)


async def answered_by_watching(
    made: Desk, approver: EventApprover, answer: Callable[[PermissionAsked], None], *words: str
) -> Verdict:
    """Decide, with somebody who answers to the events that come."""
    verdicts: list[Verdict] = []
    with made.ctx.events.subscribe() as events, anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def decide() -> None:
                verdicts.append(await made.decide(*words))
                tasks.cancel_scope.cancel()

            tasks.start_soon(decide)
            async for event in events:
                if isinstance(event, PermissionAsked):
                    answer(event)
    return verdicts[0]


async def test_whoever_watches_the_events_answers_by_the_id_of_the_question() -> None:
    approver = EventApprover()
    made = desk(approver)

    def answer(event: PermissionAsked) -> None:
        assert not approver.answer("another", ApprovalDecision(ApprovalScope.ONCE))
        assert [question.request_id for question in approver.pending] == [event.request_id]
        assert approver.answer(event.request_id, ApprovalDecision(ApprovalScope.ONCE, "ann"))
        assert not approver.answer(event.request_id, ApprovalDecision(ApprovalScope.DENY_ONCE, "bob"))

    verdict = await answered_by_watching(made, approver, answer, "write_file", "/srv/a")
    assert (verdict.allowed, verdict.by) == (True, "ann (once)")
    assert approver.pending == ()


async def test_an_answer_from_within_the_event_is_not_too_early() -> None:
    approver = EventApprover()
    made = desk(approver)
    publish = made.ctx.events.publish

    def at_once(event: Event) -> Event:
        if isinstance(event, PermissionAsked):
            assert approver.answer(event.request_id, ApprovalDecision(ApprovalScope.ONCE))
        return publish(event)

    made.ctx.events.publish = at_once  # type: ignore[method-assign]  # a subscriber that is as quick as can be
    with anyio.fail_after(5):
        assert await made.allows("write_file", "/srv/a")


@pytest.mark.parametrize("agent", ["agent", "its-parent"])
async def test_an_agent_cannot_approve_and_may_deny(agent: str) -> None:
    approver = EventApprover()
    made = desk(approver)

    def answer(event: PermissionAsked) -> None:
        for scope in ApprovalScope:
            assert not scope.allows or not approver.answer(event.request_id, ApprovalDecision(scope, agent_id=agent))
        assert approver.answer(event.request_id, ApprovalDecision(ApprovalScope.DENY_ONCE, agent_id=agent))

    assert not (await answered_by_watching(made, approver, answer, "write_file", "/srv/a")).allowed


async def test_an_approver_that_passes_on_an_agents_approval_has_denied() -> None:
    made = desk(Says(lambda question: ApprovalDecision(ApprovalScope.SESSION, agent_id="agent")))
    verdict = await made.decide("write_file", "/srv/a")
    assert (verdict.allowed, verdict.by) == (False, "agent agent (deny-once)")
    assert made.policy.session_rules("s1") == ()


class Silent(Approver):
    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.over: list[str] = []

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        self.asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    def forget(self, question: ApprovalRequest) -> None:
        self.over.append(question.request_id)


async def test_a_question_without_an_answer_is_a_denial_after_its_time() -> None:
    approver = Silent()
    made = desk(approver, approval_timeout=0.05)
    with anyio.fail_after(5):
        verdict, events = await events_of(made, "write_file", "/srv/a")
    assert (verdict.allowed, verdict.reason) == (False, "the approval request timed out after 0.05 s")
    assert [type(event) for event in events] == [PermissionAsked, PermissionReplied]
    assert len(approver.over) == 1
    assert desk().policy.settings.approval_timeout == 60


async def test_a_question_that_is_given_up_gets_a_reply_and_lets_the_next_one_ask() -> None:
    approver = Silent()
    made = desk(approver, approval_timeout=30)
    with made.ctx.events.subscribe() as events, anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.decide, "write_file", "/srv/a")
            await approver.asked.wait()
            tasks.cancel_scope.cancel()
        replied = events.drain()[-1]
        assert isinstance(replied, PermissionReplied)
        assert (replied.allowed, replied.by) == (False, "nobody")
        made.policy.approver = says(ApprovalScope.ONCE)
        assert await made.allows("write_file", "/srv/a")


async def test_an_approver_that_fails_has_approved_nothing() -> None:
    def fails(question: ApprovalRequest) -> ApprovalDecision:
        raise OSError("no terminal")

    verdict = await desk(Says(fails)).decide("write_file", "/srv/a")
    assert (verdict.allowed, verdict.by) == (False, "approver (deny-once)")
    assert "no terminal" in verdict.reason


async def test_a_changed_call_is_handed_back_to_be_judged_again() -> None:
    changed = ToolCall("write_file", {"path": "/tmp/b"})
    verdict = await desk(Says(lambda question: ApprovalDecision(ApprovalScope.ONCE, call=changed))).decide(
        "write_file", "/srv/a"
    )
    assert (verdict.allowed, verdict.call) == (True, changed)


async def through(made: Desk, tool: str, path: str) -> Verdict:
    """Decide as the pipeline does: a changed call is decided again."""
    request = made.request(tool, path, arguments={"path": path})
    for _ in range(3):
        verdict = await made.policy.decide(request, made.ctx)
        if verdict.call is None:
            return verdict
        arguments = verdict.call.arguments
        assert not isinstance(arguments, str)
        request = made.request(tool, str(arguments["path"]), arguments=arguments)
    raise AssertionError("it was changed again and again")


async def test_a_call_that_was_changed_is_not_asked_about_again_and_is_denied_where_it_must_be() -> None:
    for path, allowed in (("/tmp/b", True), ("~/.ssh/id_rsa", False)):
        approver = changes_it_to(path)
        made = desk(approver)
        assert (await through(made, "write_file", "/srv/a")).allowed is allowed
        assert len(approver.questions) == 1


def changes_it_to(path: str) -> Says:
    return Says(lambda question: ApprovalDecision(ApprovalScope.ONCE, call=ToolCall("x", {"path": path})))


@pytest.mark.usefixtures("needs_process")
async def test_an_answer_holds_for_what_was_asked_about(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    (tmp_path / "b").write_text("")
    link = tmp_path / "link"
    link.symlink_to("a")

    def swap(question: ApprovalRequest) -> ApprovalDecision:
        link.unlink()
        link.symlink_to("b")
        return ApprovalDecision(ApprovalScope.EXACT)

    async with connect("local:") as ctx:
        verdict = await desk(Says(swap), execution=ctx).decide("write_file", str(link))
    assert (verdict.allowed, "has changed while" in verdict.reason) == (False, True)


async def test_the_answers_of_a_session_end_with_it() -> None:
    made = desk(says(ApprovalScope.SESSION))
    assert await made.allows("write_file", "/srv/a")
    made.policy.end_session("s1")
    made.policy.approver = None
    assert not await made.allows("write_file", "/srv/a")


class Slow(Approver):
    """Says when it was asked, and answers when it is told to."""

    def __init__(self, scope: ApprovalScope) -> None:
        self.scope = scope
        self.running = 0
        self.most = 0
        self.asked = 0
        self.go = anyio.Event()
        self.first = anyio.Event()

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        self.asked += 1
        self.running += 1
        self.most = max(self.most, self.running)
        self.first.set()
        await self.go.wait()
        self.running -= 1
        return ApprovalDecision(self.scope)


@pytest.mark.parametrize(
    ("scope", "asked"),
    [(ApprovalScope.ONCE, 4), (ApprovalScope.EXACT, 2), (ApprovalScope.TOOL, 1), (ApprovalScope.SESSION, 1)],
)
async def test_questions_of_a_session_come_one_by_one_and_an_answer_settles_those_that_it_covers(
    scope: ApprovalScope, asked: int
) -> None:
    approver = Slow(scope)
    made = desk(approver)
    verdicts: list[bool] = []

    async def one(path: str) -> None:
        verdicts.append(await made.allows("write_file", path))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for path in ("/srv/a", "/srv/a", "/srv/b", "/srv/b"):
                tasks.start_soon(one, path)
            await approver.first.wait()
            await anyio.wait_all_tasks_blocked()
            approver.go.set()
    assert (verdicts, approver.most, approver.asked) == ([True] * 4, 1, asked)


async def test_a_file_that_does_not_exist_is_granted_with_its_directory_as_the_target_has_it() -> None:
    made = desk(says(ApprovalScope.DIRECTORY))
    assert await made.allows("write_file", "~/new/a")
    assert [str(rule) for rule in made.policy.session_rules("s1")] == [
        "allow write_file '/home/user/new' and below on memory://here"
    ]


async def test_the_root_is_never_granted_as_a_directory() -> None:
    made = desk(says(ApprovalScope.DIRECTORY))
    assert await made.allows("write_file", "/a")
    assert made.policy.session_rules("s1") == ()


# -- the user's file


async def test_a_file_that_cannot_be_trusted_asks_whatever_it_could_have_denied(tmp_path: Path) -> None:
    file = tmp_path / "permissions.json"
    file.write_text("{")
    file.chmod(0o600)
    approver = says(ApprovalScope.EXACT)
    made = desk(approver, mode=Mode.AUTO, file=file, rules=(Rule(Action.ALLOW),))
    assert await made.allows("read_file", "/srv/a")
    assert await made.allows("read_file", "/srv/a")
    assert "deny rules cannot be read" in approver.questions[0].reason
    assert len(approver.questions) == 1
    assert not await desk(mode=Mode.AUTO, file=file).allows("read_file", "/srv/a")
    assert file.read_text() == "{"


async def test_a_rule_that_another_process_adds_counts_soon(tmp_path: Path) -> None:
    file = tmp_path / "permissions.json"
    made = desk(mode=Mode.AUTO, file=file)
    assert await made.allows("write_file", "/srv/a")
    RuleFile(file).add([Rule(Action.DENY, argument="/srv/a")])
    made.clock.now += 0.3
    assert not await made.allows("write_file", "/srv/a")
