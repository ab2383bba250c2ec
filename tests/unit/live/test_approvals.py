"""An approver that dashboards share: who is asked, whose answer counts, and which answers are possible."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import anyio
import pytest

from harness.errors import HarnessError
from harness.live.sessions.approvals import MAX_SHOWN_CHARS, SharedApprover
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.deny_all import DenyAllApprover
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.values import ToolCall

QUESTION = ApprovalRequest(
    "r1",
    ToolCall("run_shell", {"command": "touch a", "why": "w"}, "c1"),
    "touch a",
    "no rule allows it",
    "local:",
    (ApprovalScope.ONCE, ApprovalScope.EXACT, ApprovalScope.DENY_ONCE),
    timeout=60.0,
)


@dataclass
class Own(Approver):
    """An approver that is told when to answer, and what."""

    answer: ApprovalDecision = field(default_factory=lambda: ApprovalDecision(ApprovalScope.ONCE))
    may_answer: anyio.Event = field(default_factory=anyio.Event)
    elsewhere: list[ApprovalDecision] = field(default_factory=list)
    cancelled: bool = False

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        try:
            await self.may_answer.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled = True
            raise
        return self.answer

    def answered_elsewhere(self, question: ApprovalRequest, answer: ApprovalDecision) -> None:
        self.elsewhere.append(answer)


def shared(own: Approver, *, operators: bool = True) -> SharedApprover:
    return SharedApprover(own, lambda: operators, lambda: None)


async def decided(
    approver: SharedApprover, action: str, question: ApprovalRequest = QUESTION, **more: str
) -> ApprovalDecision:
    """Ask, and answer in a dashboard."""
    found: list[ApprovalDecision] = []
    approver.expect(question)

    async def ask() -> None:
        found.append(await approver.ask(question))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        approver.decide(action, {"request_id": question.request_id, **more}, "dashboard: anna")
    approver.forget(question)
    return found[0]


async def test_a_dashboard_answers_and_the_own_approver_is_cancelled_and_told() -> None:
    own = Own()
    answer = await decided(shared(own), "approve")
    assert (answer.scope, answer.by) == (ApprovalScope.ONCE, "dashboard: anna")
    assert own.cancelled
    assert own.elsewhere == [answer]


async def test_the_own_answer_ends_the_request_for_dashboards() -> None:
    own = Own()
    own.may_answer.set()
    approver = shared(own)
    approver.expect(QUESTION)
    assert len(approver.states()) == 1
    assert (await approver.ask(QUESTION)).by == "operator"
    assert approver.states() == ()
    with pytest.raises(HarnessError, match="answered already"):
        approver.decide("approve", {"request_id": "r1"}, "dashboard: anna")
    approver.forget(QUESTION)
    with pytest.raises(HarnessError, match="is over"):
        approver.decide("approve", {"request_id": "r1"}, "dashboard: anna")
    assert own.elsewhere == []


async def test_when_both_answer_in_the_same_moment_the_one_that_was_confirmed_counts() -> None:
    own = Own(ApprovalDecision(ApprovalScope.ONCE))
    approver = shared(own)
    found: list[ApprovalDecision] = []
    approver.expect(QUESTION)

    async def ask() -> None:
        found.append(await approver.ask(QUESTION))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        own.may_answer.set()
        approver.decide("deny", {"request_id": "r1"}, "dashboard: anna")  # it was told that this counts
        with pytest.raises(HarnessError, match="answered already"):
            approver.decide("approve", {"request_id": "r1"}, "dashboard: bert")
    assert found[0].scope is ApprovalScope.DENY_ONCE
    assert own.elsewhere == found


async def test_nobody_is_waited_for_without_an_approver_and_a_dashboard_that_may_act() -> None:
    approver = shared(DenyAllApprover(), operators=False)
    approver.expect(QUESTION)
    answer = await approver.ask(QUESTION)
    assert (answer.scope, answer.by, approver.by_sight) == (ApprovalScope.DENY_ONCE, "nobody", False)
    approver = shared(DenyAllApprover())
    assert approver.by_sight  # so that a request whose text is hidden is denied unasked
    assert (await decided(approver, "approve")).by == "dashboard: anna"


async def test_only_offered_answers_are_possible() -> None:
    approver = shared(Own())
    approver.expect(QUESTION)
    for action, more, message in (
        ("approve", {"scope": "session"}, "not available"),
        ("approve", {"scope": "deny-once"}, "not available"),
        ("deny", {"scope": "once"}, "not available"),
        ("edit", {"text": "touch a"}, "was not changed"),
        ("edit", {"text": " "}, "was not changed"),
    ):
        with pytest.raises(HarnessError, match=message):
            approver.decide(action, {"request_id": "r1", **more}, "dashboard: anna")
    assert len(approver.states()) == 1
    answer = await decided(shared(Own()), "edit", text="touch b")
    assert answer.call is not None
    assert answer.call.arguments == {"command": "touch b", "why": "w"}


async def test_what_is_not_shown_completely_can_only_be_denied() -> None:
    question = replace(QUESTION, what="x" * (MAX_SHOWN_CHARS + 1))
    approver = shared(Own())
    approver.expect(question)
    (state,) = approver.states()
    assert (state.is_complete, len(state.text) < MAX_SHOWN_CHARS + 50) == (False, True)
    for action in ("approve", "edit"):
        with pytest.raises(HarnessError, match="can only be denied here"):
            approver.decide(action, {"request_id": "r1", "text": "y"}, "dashboard: anna")
    approver.decide("deny", {"request_id": "r1"}, "dashboard: anna")


async def test_a_call_with_a_secret_cannot_be_changed() -> None:
    question = replace(QUESTION, call=ToolCall("run_shell", {"command": "curl -H [redacted] x"}, "c1"))
    approver = shared(Own())
    approver.expect(question)
    assert approver.states()[0].editable == ""
    with pytest.raises(HarnessError, match="cannot be changed"):
        approver.decide("edit", {"request_id": "r1", "text": "curl x"}, "dashboard: anna")


async def test_what_cannot_be_seen_is_escaped() -> None:
    approver = shared(Own())
    hidden = "touch a\u202e b\u200b\nnext"
    changed = replace(QUESTION, what=hidden, call=replace(QUESTION.call, arguments={"command": hidden}))
    approver.expect(changed)
    (state,) = approver.states()
    assert state.text == "touch a\\u202e b\\u200b\nnext"
    assert (state.is_complete, state.editable, state.edit_text) == (True, "", "")
    approver.forget(changed)
    approver.expect(replace(QUESTION, what="\u202e" * (MAX_SHOWN_CHARS // 2)))
    (state,) = approver.states()
    assert not state.is_complete


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_changed_call_is_reported_whoever_changed_it(is_own: bool) -> None:
    changed = replace(QUESTION.call, arguments={"command": "touch b", "why": "w"})
    own = Own(ApprovalDecision(ApprovalScope.ONCE, call=changed))
    approver, reported = shared(own), list[ToolCall]()
    approver.on_changed_call = reported.append
    await decided(approver, "approve", replace(QUESTION, request_id="r2"))
    assert reported == []
    if is_own:
        own.may_answer.set()
        approver.expect(QUESTION)
        await approver.ask(QUESTION)
        approver.forget(QUESTION)
    else:
        await decided(approver, "edit", text="touch b")
    assert reported == [changed]
