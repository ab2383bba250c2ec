"""What was answered in a session holds for the agents that it starts, and for nobody above or beside them."""

from __future__ import annotations

import anyio
import pytest
from tests.support.permits import Says, desk, says

from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.remembered_answers import sessions_above
from harness.toolkit.permissions.rules.rule import Action, Match, Rule

AGENT, SIBLING = "s1.0123456789ab", "s1.ba9876543210"
BELOW = f"{AGENT}.aaaaaaaaaaaa"


@pytest.mark.parametrize(
    ("session", "above"),
    [
        ("s1", []),
        (AGENT, ["s1"]),
        (BELOW, [AGENT, "s1"]),
        ("web.1", []),
        ("web.1.0123456789ab", ["web.1"]),
        ("s1.0123456789AB", []),
        (".0123456789ab", []),
        ("", []),
    ],
)
def test_a_session_of_an_agent_names_those_that_started_it(session: str, above: list[str]) -> None:
    assert list(sessions_above(session)) == above


@pytest.mark.parametrize("scope", [ApprovalScope.EXACT, ApprovalScope.TOOL, ApprovalScope.SESSION])
async def test_what_a_session_was_allowed_its_agents_are_and_the_audit_says_so(scope: ApprovalScope) -> None:
    approver = says(scope, by="ann")
    made = desk(approver)
    assert await made.allows("write_file", "/srv/a")
    for session in (AGENT, BELOW):
        verdict = await made.decide("write_file", "/srv/a", session=session)
        assert verdict.allowed
        assert verdict.by.startswith("session rule ")
        assert verdict.by.endswith(f"answered {scope} by ann for the agents of session s1"), verdict.by
    assert len(approver.questions) == 1
    own = await made.decide("write_file", "/srv/a")
    assert own.by.endswith(f"answered {scope} by ann")


async def test_what_an_agent_was_allowed_neither_its_session_is_nor_another_agent() -> None:
    approver = says(ApprovalScope.SESSION)
    made = desk(approver)
    assert await made.allows("write_file", "/srv/a", session=AGENT)
    assert await made.allows("write_file", "/srv/b", session=BELOW)
    assert len(approver.questions) == 1
    made.policy.approver = None
    for session in ("s1", SIBLING, "s2", f"s2.{AGENT.partition('.')[2]}"):
        assert not await made.allows("write_file", "/srv/a", session=session)


async def test_what_a_session_was_denied_its_agents_are() -> None:
    made = desk(says(ApprovalScope.DENY_SESSION))
    assert not await made.allows("write_file", "/srv/a")
    made.policy.approver = says(ApprovalScope.SESSION)
    assert await made.allows("write_file", "/srv/b", session=AGENT)
    assert not await made.allows("write_file", "/srv/a", session=AGENT)


async def test_a_denial_beats_what_was_inherited_and_once_is_not() -> None:
    approver = says(ApprovalScope.ONCE)
    made = desk(approver)
    assert await made.allows("write_file", "/srv/a")
    assert await made.allows("write_file", "/srv/a", session=AGENT)
    assert len(approver.questions) == 2
    denied = desk(says(ApprovalScope.SESSION), rules=(Rule(Action.DENY, argument="/srv/db/**", match=Match.GLOB),))
    assert await denied.allows("write_file", "/srv/a")
    assert not await denied.allows("write_file", "/srv/db/x", session=AGENT)


async def test_the_answers_of_agents_end_with_the_session() -> None:
    made = desk(says(ApprovalScope.SESSION))
    for session in ("s1", AGENT, "s2"):
        assert await made.allows("write_file", "/srv/a", session=session)
    made.policy.end_session("s1")
    made.policy.approver = None
    for session, allowed in (("s1", False), (AGENT, False), (BELOW, False), ("s2", True)):
        assert await made.allows("write_file", "/srv/a", session=session) is allowed


async def test_one_person_answers_for_a_session_and_its_agents_one_question_after_the_other() -> None:
    running, most, go, first = 0, 0, anyio.Event(), anyio.Event()

    class Slow(Says):
        async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
            nonlocal running, most
            self.questions.append(question)
            running += 1
            most = max(most, running)
            first.set()
            await go.wait()
            running -= 1
            return ApprovalDecision(ApprovalScope.TOOL)

    approver = Slow()
    made = desk(approver)
    verdicts: list[bool] = []

    async def one(session: str) -> None:
        verdicts.append(await made.allows("write_file", "/srv/a", session=session))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "s1")
            await first.wait()
            for session in (AGENT, BELOW, SIBLING):
                tasks.start_soon(one, session)
            await anyio.wait_all_tasks_blocked()
            go.set()
    assert (verdicts, most, len(approver.questions)) == ([True] * 4, 1, 1)
