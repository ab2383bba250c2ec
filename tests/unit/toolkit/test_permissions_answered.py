"""What an answer lets run, and nothing else: changed calls, calls that wait behind others, a pause after the answer."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import pytest
from tests.support.permits import Desk, Says, desk, says

from harness import connect
from harness.agent.turn import Gate, GatedApprover
from harness.toolkit import ToolCall
from harness.toolkit.contract import CallNotes
from harness.toolkit.interfaces import Verdict
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.rules.rule import Action, Rule

CHANGED = {"command": "touch b"}


def edits(arguments: dict[str, str]) -> Says:
    """The operator changes what is asked first, and refuses everything else."""
    answers = [ApprovalDecision(ApprovalScope.ONCE, call=ToolCall("run_shell", dict(arguments)))]
    return Says(lambda question: answers.pop() if answers else ApprovalDecision(ApprovalScope.DENY_ONCE))


async def shell(made: Desk, command: str, *, session: str = "s1", call_id: str = "c1") -> Verdict:
    request = made.request("run_shell", command, arguments={"command": command})
    request = replace(request, call=replace(request.call, call_id=call_id))
    notes = made.notes.setdefault((session, call_id), CallNotes())
    return await made.policy.decide(request, replace(made.ctx, session_id=session, notes=notes))


async def test_the_audit_says_of_each_call_that_was_changed_who_did_it() -> None:
    for command, allowed, why in (
        ("touch b", True, "as operator changed it: approved"),
        ("ls", True, "as operator changed it: it only reads"),
        ("cat ~/.ssh/id_rsa", False, "as operator changed it: "),
    ):
        made = desk(edits({"command": command}))
        assert (await shell(made, "touch a")).call is not None
        verdict = await shell(made, command)
        assert (verdict.allowed, verdict.call) == (allowed, None)
        assert verdict.reason.startswith(why)


async def test_a_change_approves_one_call_of_one_session_once() -> None:
    approver = edits(CHANGED)
    made = desk(approver)
    assert (await shell(made, "touch a")).call is not None
    assert not (await shell(made, "touch b", session="s1.0123456789ab")).allowed
    assert not (await shell(made, "touch b", call_id="c2")).allowed
    assert (await shell(made, "touch b")).allowed
    assert not (await shell(made, "touch b")).allowed
    assert len(approver.questions) == 4


async def test_a_change_that_a_rule_allowed_leaves_no_approval_behind() -> None:
    approver = edits(CHANGED)
    made = desk(approver)
    assert (await shell(made, "touch a")).call is not None
    made.policy._family.add("s1", [Rule(Action.ALLOW, tool="run_shell")])
    assert (await shell(made, "touch b")).allowed
    made.policy.end_session("s1")
    assert not (await shell(made, "touch b")).allowed
    assert len(approver.questions) == 2


async def test_a_change_whose_call_is_over_before_it_is_judged_again_is_forgotten() -> None:
    made = desk(edits(CHANGED))
    assert (await shell(made, "touch a")).call is not None
    assert len(made.policy._changed) == 1
    made.notes.clear()
    gc.collect()
    assert len(made.policy._changed) == 0


async def test_a_change_to_something_else_is_asked_about() -> None:
    approver = edits(CHANGED)
    made = desk(approver)
    assert (await shell(made, "touch a")).call is not None
    assert not (await shell(made, "touch c")).allowed
    assert len(approver.questions) == 2


@dataclass
class Waits(Approver):
    """Answers when it is let."""

    before: Callable[[], None]
    asked: anyio.Event = field(default_factory=anyio.Event)
    go: anyio.Event = field(default_factory=anyio.Event)
    questions: list[ApprovalRequest] = field(default_factory=list)

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        self.questions.append(question)
        self.asked.set()
        await self.go.wait()
        self.before()
        return ApprovalDecision(ApprovalScope.TOOL)


@pytest.mark.usefixtures("needs_process")
async def test_what_waited_behind_a_question_is_looked_at_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("")
    (tmp_path / "key.pem").write_text("")
    link = tmp_path / "link"
    link.symlink_to("b")

    def swap() -> None:
        link.unlink()
        link.symlink_to("key.pem")

    approver = Waits(swap)
    got: dict[str, bool] = {}
    async with connect("local:") as ctx:
        made = desk(approver, execution=ctx)
        turns, second = made.policy._family.turn, anyio.Event()

        def turn(session: str) -> anyio.Lock:
            if approver.questions:
                second.set()
            return turns(session)

        monkeypatch.setattr(made.policy._family, "turn", turn)

        async def one(name: str) -> None:
            got[name] = await made.allows("write_file", str(tmp_path / name))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one, "a")
                await approver.asked.wait()
                tasks.start_soon(one, "link")
                await second.wait()
                approver.go.set()
    assert got == {"a": True, "link": False}
    assert len(approver.questions) == 1


async def test_what_was_approved_waits_for_a_paused_agent_without_a_limit() -> None:
    deadlines: list[float] = []

    class Watched(Gate):
        async def wait_until_open(self) -> None:
            deadlines.append(anyio.current_effective_deadline())
            self.resume()
            await super().wait_until_open()

    gate = Watched()
    gate.pause()
    made = desk(GatedApprover(says(ApprovalScope.ONCE), gate), approval_timeout=30.0)
    assert await made.allows("write_file", "/srv/a")
    assert deadlines == [math.inf]


async def test_what_is_approved_in_advance_waits_for_a_paused_agent_too() -> None:
    gate = Gate()
    gate.pause()
    made = desk(GatedApprover(says(ApprovalScope.DENY_ONCE), gate))
    made.policy.timed.set("all")
    allowed: list[bool] = []

    async def one() -> None:
        allowed.append(await made.allows("write_file", "/srv/a"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            await anyio.wait_all_tasks_blocked()
            assert allowed == []
            gate.resume()
    assert allowed == [True]
