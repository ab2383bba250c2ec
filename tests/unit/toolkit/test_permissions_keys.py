"""Keys are judged by what they would make the foreground do, on a real pane."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.permits import Desk, desk, says
from tests.support.toolbox import toolbox

from harness import connect
from harness.config import Config
from harness.context import ExecutionContext
from harness.toolkit import ToolCall
from harness.toolkit.events import PermissionAsked
from harness.toolkit.permissions.access_requests import TYPED_SECRET
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.questions import ApprovalScope
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode
from harness.toolkit.redaction.redactor import MARK
from harness_tools.terminal import SendKeys


@pytest.fixture
async def pane(needs_tmux: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    """A context with a pane of its own."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    socket = f"hx-{secrets.token_hex(4)}"
    try:
        async with connect("local:", tmux=True, config=Config(tmux_socket=socket, shell="/bin/bash")) as ctx:
            yield ctx
    finally:
        subprocess.run(["tmux", "-L", socket, "kill-server"], check=False, capture_output=True, timeout=20)


async def runs(pane: ExecutionContext, command: str, *, shows: str = "", program: str = "") -> None:
    """Have a program in the foreground, and wait until it shows a line of its own, or is there."""
    await pane.send_keys(literal_text=command, enter=True)
    with anyio.fail_after(60):
        while not await _is_there(pane, shows, program):  # noqa: ASYNC110  # no other sign
            await anyio.sleep(0.02)


async def _is_there(pane: ExecutionContext, shows: str, program: str) -> bool:
    """The line that was typed holds what it will show, so only a line that is nothing else counts."""
    if program:
        return (await pane.list_panes())[0].foreground == program
    return (await pane.capture_pane()).rstrip().split("\n")[-1].strip() == shows


async def idle(pane: ExecutionContext) -> None:
    """Wait until the pane is at its prompt again: a result comes a moment before that."""
    with anyio.fail_after(20):
        while (await pane.list_panes())[0].busy:  # noqa: ASYNC110  # no other sign
            await anyio.sleep(0.02)


async def decided(made: Desk, keys: str) -> tuple[bool, str]:
    verdict = await made.decide("send_keys", keys)
    return verdict.allowed, verdict.by


async def test_at_a_prompt_keys_are_the_command_that_they_start(pane: ExecutionContext, tmp_path: Path) -> None:
    made = desk(execution=pane, rules=(Rule(Action.DENY, argument="rm *", match=Match.GLOB),))
    assert await decided(made, "ls<Enter>") == (True, "read-only")
    assert await decided(made, "<C-c>") == (True, "read-only")
    assert (await decided(made, "make<Enter>"))[1] == "no approver"
    assert (await decided(made, "ls"))[1] == "no approver"
    assert (await decided(made, "<Up>"))[1] == "no approver"
    assert not (await decided(made, "ls; rm x<Enter>"))[0]
    assert await decided(made, "cat ~/.ssh/id_rsa<Enter>") == (False, "hard denial")
    await pane.run_shell("cd /etc")
    await idle(pane)
    assert await decided(made, "cat shadow<Enter>") == (False, "hard denial")
    assert await decided(made, "cat hosts<Enter>") == (True, "read-only")
    made.ctx = replace(made.ctx, cwd=str(tmp_path))  # where tools start, and no pane's shell
    assert await decided(made, "cat shadow<Enter>") == (False, "hard denial")


async def test_keys_for_a_line_that_is_not_known_ask_in_every_mode_and_show_it(pane: ExecutionContext) -> None:
    await pane.run_shell("true")
    await idle(pane)
    await pane.send_keys(literal_text="rm -rf half")
    with anyio.fail_after(20):
        while "rm -rf half" not in await pane.capture_pane():  # noqa: ASYNC110  # no other sign
            await anyio.sleep(0.02)
    approver = says(ApprovalScope.ALWAYS)
    made = desk(approver, mode=Mode.AUTO, execution=pane, rules=(Rule(Action.ALLOW),))
    for keys in ("<Enter>", "ls<Enter>", " x", "<C-u>"):
        assert (await decided(made, keys))[0]
    assert [question.what for question in approver.questions] == ["<Enter>", "ls<Enter>", " x", "<C-u>"]
    assert all("rm -rf half" in question.reason for question in approver.questions)
    assert {question.scopes for question in approver.questions} == {(ApprovalScope.ONCE, ApprovalScope.DENY_ONCE)}


async def test_what_is_typed_at_a_question_for_a_secret_is_asked_each_time_and_shown_nowhere(
    pane: ExecutionContext, caplog: pytest.LogCaptureFixture
) -> None:
    await runs(pane, "read -s -p 'Password: ' x", shows="Password:")
    approver = says(ApprovalScope.ALWAYS)
    made = desk(approver, mode=Mode.AUTO, execution=pane, rules=(Rule(Action.ALLOW),))
    made.policy.timed.set("all")
    with made.ctx.events.subscribe() as events:
        for _ in range(2):
            assert (await made.decide("send_keys", "s3same<Enter>", literal_text="s3same")).allowed
        shown = str(events.drain()) + str(approver.questions) + caplog.text
    assert len(approver.questions) == 2
    assert approver.questions[0].scopes == (ApprovalScope.ONCE, ApprovalScope.DENY_ONCE)
    assert "type a secret" in approver.questions[0].what
    assert "s3same" not in shown
    assert PermissionAsked.__name__ in shown
    assert made.policy.session_rules("s1") == ()
    made.policy.approver = says(ApprovalScope.DENY_SESSION)
    assert not (await decided(made, "s3same<Enter>"))[0]
    assert made.policy.session_rules("s1") == ()
    denying = desk(approver, execution=pane, rules=(Rule(Action.DENY, argument=TYPED_SECRET),))
    assert not (await decided(denying, "s3same<Enter>"))[0]
    assert not (await decided(desk(mode=Mode.AUTO, execution=pane), "s3same<Enter>"))[0]


@pytest.mark.parametrize("approver", [None, says(ApprovalScope.ONCE)])
async def test_no_audit_keeps_what_is_typed_at_a_question_for_a_secret(
    pane: ExecutionContext, approver: Approver | None
) -> None:
    await runs(pane, "read -s -p 'Password: ' x", shows="Password:")
    made = toolbox([SendKeys()], execution=pane)
    services = replace(made.executor.services, policy=RulePolicy(approver=approver))
    typed = {"literal_text": "s3same", "keys": ["s", "3"], "enter": True, "pane": "main", "why": "to log in"}
    await replace(made.executor, services=services).call(ToolCall("send_keys", typed))
    (entry,) = made.ledger.begun + made.ledger.denied
    assert entry.call.arguments == {**typed, "literal_text": MARK, "keys": [MARK, MARK]}
    assert entry.details == {"why": "to log in"}


async def test_keys_for_a_program_are_asked_with_its_name_and_granted_for_it_alone(pane: ExecutionContext) -> None:
    await runs(pane, "cat; echo left", program="cat")
    approver = says(ApprovalScope.EXACT)
    made = desk(approver, mode=Mode.AUTO, execution=pane)
    for _ in range(2):
        assert (await decided(made, "y<Enter>"))[0]
    assert [question.what for question in approver.questions] == ["y<Enter> (into cat)"]
    assert await decided(made, "<C-c>") == (True, "mode auto")


async def test_without_a_terminal_there_is_nothing_to_type_into() -> None:
    assert not (await decided(desk(mode=Mode.AUTO), "ls<Enter>"))[0]


async def test_a_command_that_was_granted_in_one_directory_of_a_pane_asks_in_another(
    pane: ExecutionContext, tmp_path: Path
) -> None:
    approver = says(ApprovalScope.EXACT)
    made = desk(approver, execution=pane)
    (tmp_path / "other").mkdir()
    await pane.run_shell(f"cd {tmp_path}")
    assert await made.allows("run_shell", "rm -r build")
    assert await made.allows("run_shell", "rm -r build")
    assert len(approver.questions) == 1
    await pane.run_shell("cd other")
    await idle(pane)
    assert await made.allows("run_shell", "rm -r build")
    assert len(approver.questions) == 2
