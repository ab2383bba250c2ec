"""The policy in the executor's pipeline, with the tools that there are, on this machine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.permits import Says, desk
from tests.support.toolbox import Toolbox, toolbox

from harness import connect
from harness.toolkit import CallStatus, ToolCall
from harness.toolkit.contract import Hook
from harness.toolkit.events import Event, PermissionAsked, PermissionReplied, ToolCallCompleted, ToolCallRequested
from harness.toolkit.permissions.policy import RulePolicy, SecretGuard
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness_tools.files import ReadFile, WriteFile
from harness_tools.shell import RunShell

pytestmark = pytest.mark.usefixtures("needs_process")


@pytest.fixture
async def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Toolbox]:
    """The tools on this machine, with a real policy that asks."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    async with connect("local:") as execution:
        yield toolbox([ReadFile(), WriteFile(), RunShell()], execution=execution)


def with_policy(made: Toolbox, policy: RulePolicy, *hooks: Hook) -> Toolbox:
    executor = replace(made.executor, services=replace(made.executor.services, policy=policy, hooks=hooks))
    return replace(made, executor=executor)


async def test_what_is_denied_leaves_no_intent_and_what_is_approved_runs_once(box: Toolbox, tmp_path: Path) -> None:
    made = with_policy(box, RulePolicy())
    write = ToolCall("write_file", {"path": f"{tmp_path}/a", "content": "x", "risk": "low", "why": "a test"})
    assert (await made.executor.call(write)).status is CallStatus.DENIED
    assert (made.ledger.begun, len(made.ledger.denied), (tmp_path / "a").exists()) == ([], 1, False)
    assert made.ledger.denied[0].details == {"risk": "low", "why": "a test"}
    asked = with_policy(box, RulePolicy(approver=Says()))
    with asked.events.subscribe() as events:
        assert (await asked.executor.call(write)).status is CallStatus.OK
        kinds: list[type[Event]] = [type(event) for event in events.drain()]
    assert kinds == [ToolCallRequested, PermissionAsked, PermissionReplied, ToolCallCompleted]
    assert (tmp_path / "a").read_text() == "x"
    assert [entry.verdict.by for entry in made.ledger.begun] == ["operator (once)"]


async def test_the_operator_may_edit_the_command_first(box: Toolbox, tmp_path: Path) -> None:
    def edits(question: object) -> ApprovalDecision:
        return ApprovalDecision(
            ApprovalScope.ONCE, by="ann", call=ToolCall("run_shell", {"command": f"touch {tmp_path}/good"})
        )

    approver = Says(edits)
    made = with_policy(box, RulePolicy(approver=approver))
    outcome = await made.executor.call(ToolCall("run_shell", {"command": f"touch {tmp_path}/bad"}))
    assert (outcome.status, outcome.call.arguments) == (CallStatus.OK, {"command": f"touch {tmp_path}/good"})
    assert ((tmp_path / "good").exists(), (tmp_path / "bad").exists()) == (True, False)
    assert (len(approver.questions), made.ledger.begun[0].verdict.by) == (1, "ann")


async def test_a_read_only_command_runs_without_anybody(box: Toolbox) -> None:
    outcome = await with_policy(box, RulePolicy()).executor.call(ToolCall("run_shell", {"command": "echo hello"}))
    assert (outcome.status, outcome.result.text.count("hello") > 0) == (CallStatus.OK, True)


async def test_a_secret_that_a_link_led_to_after_the_decision_is_not_shown(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TOKEN=1")
    (tmp_path / "plain").write_text("plain")
    link = tmp_path / "link"
    link.symlink_to("plain")
    policy = RulePolicy(PermissionSettings(mode=Mode.AUTO))

    class Late(RulePolicy):
        """Decides, and then the link is changed."""

        async def decide(self, request, ctx):  # type: ignore[no-untyped-def]  # as in the policy
            verdict = await policy.decide(request, ctx)
            os.symlink(".env", tmp_path / "new")
            os.replace(tmp_path / "new", link)
            return verdict

    call = ToolCall("read_file", {"path": str(link)})
    unguarded = await with_policy(box, Late()).executor.call(call)
    assert "TOKEN=1" in unguarded.result.text, "without the guard it is shown: this test can fail"
    box.results.kept.clear()
    link.unlink()
    link.symlink_to("plain")
    guarded = await with_policy(box, Late(), SecretGuard(policy)).executor.call(call)
    assert guarded.result.is_error
    assert "TOKEN" not in str(guarded.result)
    box.results.kept.clear()
    link.unlink()
    link.symlink_to("plain")
    shown = await with_policy(box, policy, SecretGuard(policy)).executor.call(call)
    assert shown.result.text == "plain"


async def test_a_guard_that_cannot_find_out_shows_nothing(box: Toolbox, tmp_path: Path) -> None:
    policy = RulePolicy()

    async def fails(path: str, execution: object) -> str:
        raise OSError("no answer")

    policy.read_denial = fails  # type: ignore[method-assign]  # a target that does not answer
    (tmp_path / "plain").write_text("plain")
    made = with_policy(box, policy, SecretGuard(policy))
    outcome = await made.executor.call(ToolCall("read_file", {"path": f"{tmp_path}/plain"}))
    assert "plain" not in outcome.result.text.replace(f"{tmp_path}/plain", "")


async def test_a_decision_of_one_session_is_none_of_another(box: Toolbox) -> None:
    made = desk(Says(lambda question: ApprovalDecision(ApprovalScope.SESSION)))
    assert await made.allows("write_file", "/srv/a", session="one")
    made.policy.approver = None
    assert not await made.allows("write_file", "/srv/a", session="two")


class Broken(Says):
    """An approver that fails before it is asked."""

    def expect(self, question: ApprovalRequest) -> None:
        raise OSError("no screen")


def nothing(question: ApprovalRequest) -> ApprovalDecision:
    return None  # type: ignore[return-value]  # the defect


@pytest.mark.parametrize(
    ("approver", "why"),
    [(Says(nothing), "TypeError: it returned NoneType, not ApprovalDecision"), (Broken(), "no screen")],
)
async def test_a_failing_approver_is_a_denial_that_names_it(
    box: Toolbox, approver: Says, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = with_policy(box, RulePolicy(approver=approver))
    outcome = await made.executor.call(ToolCall("run_shell", {"command": "touch /nowhere/x"}))
    assert (outcome.status, outcome.error) == (CallStatus.DENIED, None)
    assert outcome.result.text.startswith("not allowed: the approver failed: ")
    (record,) = [record for record in caplog.records if "the approver failed" in record.getMessage()]
    assert record.exc_info is not None
    assert why in outcome.result.text
    assert (made.ledger.begun, len(made.ledger.denied)) == ([], 1)
